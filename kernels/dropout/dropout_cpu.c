/* dropout_cpu.c - the CPU kernels of dropout. */
#include "dropout/dropout.h"

/* out[i] (+)= in[i] * scale where half i % 2 of word i / 2 of the call's random stream keeps it,
 * else 0. Forward and backward are this one function: the mask is a pure function of (seed, offset,
 * i), so nothing is stored. */
static void apply_mask(const gd_call *call, REAL *out, const REAL *in, int64_t n, bool add)
{
    const gd_dropout_args *args = call->args;
    uint32_t threshold = gd_dropout_threshold(args->p);
    REAL scale = (REAL)gd_dropout_scale(threshold);
#pragma omp parallel for num_threads(gd_threads_for(call->threads, n)) schedule(static)
    for (int64_t block = 0; block < n; block += GD_BLOCK) {
        uint32_t words[GD_BLOCK / 2] = {0};
        uint16_t bits[GD_BLOCK];
        int64_t size = gd_min64(GD_BLOCK, n - block), word_count = gd_divide_up(size, 2);
        if (threshold) {
            gd_philox(call->seed, 0, call->random_offset + (uint64_t)block / 2, word_count, words);
        }
        for (int64_t i = 0; i < word_count; i++) {
            bits[2 * i] = (uint16_t)words[i];
            bits[2 * i + 1] = (uint16_t)(words[i] >> 16);
        }
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            REAL kept = bits[i] < threshold ? 0 : in[block + i] * scale; /* [dx] */
            out[block + i] = add ? out[block + i] + kept : kept;
        }
    }
}

gd_status GD_REAL_NAME(dropout_forward)(const gd_call *call)
{
    apply_mask(call, gd_data(call->output[0]), gd_data(call->input[0]),
               gd_tensor_count(call->output[0]), false);
    return GD_OK;
}

/* dx = dy keep / (1 - p) */
gd_status GD_REAL_NAME(dropout_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    apply_mask(call, gd_data(call->dinput[0]), gd_data(call->doutput[0]),
               gd_tensor_count(call->dinput[0]), call->accumulate[0]);
    return GD_OK;
}
