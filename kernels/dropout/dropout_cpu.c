/* dropout_cpu.c - the CPU kernels of dropout. */
#include "dropout/dropout.h"
#include "dropout/formula.h"

typedef struct mask {
    const gd_call *call;
    uint32_t threshold;
    REAL scale, *out;
    const REAL *in;
    int64_t n;
    bool add;
} mask;

static void mask_block(const void *work, int64_t index)
{
    const mask *m = work;
    const int64_t block = index * GD_BLOCK;
    const REAL *in = m->in, scale = m->scale;
    REAL *out = m->out;
    const uint32_t threshold = m->threshold;
    union { /* the lower half of a word is the first, as processors are little-endian */
        uint32_t words[GD_BLOCK / 2];
        uint16_t bits[GD_BLOCK];
    } drawn = {{0}};
    int64_t size = gd_min64(GD_BLOCK, m->n - block), word_count = gd_divide_up(size, 2);
    if (threshold) {
        gd_philox(m->call->seed, 0, m->call->random_offset + (uint64_t)block / 2, word_count,
                  drawn.words);
    }
    const bool add = m->add;
#pragma omp simd
    for (int64_t i = 0; i < size; i++) {
        REAL kept = dropout(in[block + i], drawn.bits[i] >= threshold, scale);
        out[block + i] = add ? out[block + i] + kept : kept;
    }
}

/* out[i] (+)= in[i] * scale where half i % 2 of word i / 2 of the call's random stream keeps it,
 * else 0. Forward and backward are this one function: the mask is a pure function of (seed, offset,
 * i), so nothing is stored. */
static void apply_mask(const gd_call *call, REAL *out, const REAL *in, int64_t n, bool add)
{
    const gd_dropout_args *args = call->args;
    uint32_t threshold = gd_dropout_threshold(args->p);
    const mask m = {call, threshold, (REAL)gd_dropout_scale(threshold), out, in, n, add};
    gd_for_each(gd_threads_for(call->threads, n), gd_divide_up(n, GD_BLOCK), mask_block, &m);
}

gd_status GD_REAL_NAME(dropout_forward)(const gd_call *call)
{
    apply_mask(call, gd_data(call->output[0]), gd_data(call->input[0]),
               gd_tensor_count(call->output[0]), false);
    return GD_OK;
}

gd_status GD_REAL_NAME(dropout_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    apply_mask(call, gd_data(call->dinput[0]), gd_data(call->doutput[0]),
               gd_tensor_count(call->dinput[0]), call->accumulate[0]);
    return GD_OK;
}
