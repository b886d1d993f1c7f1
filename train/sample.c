/* sample.c - see sample.h. */
#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The id that the logits [V] choose, u uniform in [0, 1). */
static int32_t choose(double *logits, int64_t vocab, double temperature, double u)
{
    int32_t likeliest = 0;
    double sum = 0, passed = 0;
    for (int64_t v = 1; v < vocab; v++) {
        if (logits[v] > logits[likeliest]) likeliest = (int32_t)v;
    }
    if (temperature <= 0) return likeliest;
    double max = logits[likeliest];
    for (int64_t v = 0; v < vocab; v++) {
        logits[v] = exp((logits[v] - max) / temperature);
        sum += logits[v];
    }
    for (int64_t v = 0; v < vocab; v++) {
        passed += logits[v];
        if (u * sum < passed) return (int32_t)v;
    }
    return likeliest;
}

/* The logits of the last position of window [T]. */
static gd_status last_logits(model *m, const int32_t *window, int64_t size, double *logits)
{
    const int64_t shape[2] = {1, size};
    gd_tensor *tokens = gd_tensor_from(m->ctx, GD_INT32, 2, shape, window);
    gd_tensor *all = model_logits(m, tokens); /* [1, T, V] */
    gd_tensor *last = gd_slice(all, 1, size - 1, size);
    gd_tensor_read_f64(last, logits, m->config.vocab);
    gd_step_end(m->ctx);
    gd_tensor_free(tokens);
    return gd_error_status(m->ctx);
}

gd_status sample_text(model *m, const tokenizer *t, int64_t context, int64_t length,
                      double temperature, FILE *file)
{
    int32_t *window = calloc((size_t)context, sizeof *window);
    double *logits = calloc((size_t)m->config.vocab, sizeof *logits);
    int64_t size = 1;
    bool training = m->training;
    m->training = false;
    gd_no_grad_begin(m->ctx);
    if (window && logits) {
        window[0] = tokenizer_first(t);
    } else {
        gd_fail(m->ctx, GD_ERROR_MEMORY, "sample: no memory for a window of %lld",
                (long long)context);
    }
    for (int64_t i = 0; i < length && !gd_error(m->ctx); i++) {
        if (last_logits(m, window, size, logits)) break;
        uint32_t word;
        gd_philox(gd_random_get(m->ctx).seed, 0, gd_random_take(m->ctx, 1), 1, &word);
        int32_t id = choose(logits, t->vocab, temperature, word / 4294967296.0);
        tokenizer_print(t, id, file);
        if (size == context) memmove(window, window + 1, (size_t)--size * sizeof *window);
        window[size++] = id;
    }
    gd_no_grad_end(m->ctx);
    m->training = training;
    free(window);
    free(logits);
    return gd_error_status(m->ctx);
}
