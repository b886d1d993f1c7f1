/* sample_token_cpu.c - the CPU kernel of sample_token: one pass for the largest logit, one for the
 * sum of the weights, and one that adds them up again until the sum passes the drawn part of it. */
#include "decode/sample_token.h"

#include <math.h>
#include "arguments.h"

static double weight_of(REAL logit, REAL largest, double temperature)
{
    if (temperature < DRAW_STEP_COLDEST) return logit == largest;
    return exp(((double)logit - (double)largest) * (1 / temperature));
}

/* -1: a logit is not finite. */
static int32_t draw(const REAL *logits, int64_t V, double temperature, double u)
{
    REAL largest = logits[0];
    for (int64_t v = 0; v < V; v++) {
        if (!isfinite(logits[v])) return -1;
        if (logits[v] > largest) largest = logits[v];
    }
    double sum = 0, passed = 0;
    for (int64_t v = 0; v < V; v++) sum += weight_of(logits[v], largest, temperature);
    const double goal = temperature < DRAW_STEP_COLDEST ? 0 : u * sum;
    for (int64_t v = 0; v < V; v++) {
        passed += weight_of(logits[v], largest, temperature);
        if (goal < passed) return (int32_t)v;
    }
    return (int32_t)V - 1; /* not reached: it ends at the sum, and u < 1 */
}

gd_status GD_REAL_NAME(sample_token_forward)(const gd_call *call)
{
    const sample_token_args *args = call->args;
    int32_t *next = gd_data(call->input[1]), *ids = gd_data(call->input[2]);
    const int64_t capacity = gd_tensor_count(call->input[2]), position = next[1];
    uint32_t word;
    if (position < 0 || position >= capacity)
        return gd_refuse(
            call, "the position in next is %lld, wanted 0 to %lld, the places of ids %s",
            (long long)position, (long long)capacity - 1, gd_shape_text(call->input[2]).text);
    gd_philox(call->seed, 0, call->random_offset, 1, &word);
    const int32_t id = draw(gd_data(call->input[0]), gd_tensor_count(call->input[0]),
                            args->temperature, word / 4294967296.0);
    *(int32_t *)gd_data(call->output[0]) = ids[position] = id;
    if (id >= 0) next[0] = id, next[1]++;
    return GD_OK;
}
