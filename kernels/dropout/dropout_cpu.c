/* dropout_cpu.c - the CPU kernels of dropout. */
#include "dropout/dropout.h"
#include "dropout/formula.h"
#include "loops.h"

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
    const int64_t first = index * GD_BLOCK, n = gd_min64(GD_BLOCK, m->n - first);
    const REAL *in = m->in + first, scale = m->scale;
    REAL *out = m->out + first;
    const uint32_t threshold = m->threshold;
    const bool add = m->add;
    union { /* the lower half of a word is the first, as processors are little-endian */
        uint32_t words[GD_BLOCK / 2];
        uint16_t bits[GD_BLOCK];
    } drawn = {{0}};
    if (threshold)
        gd_philox(m->call->seed, 0, m->call->random_offset + (uint64_t)first / 2,
                  gd_divide_up(n, 2), drawn.words);
    GD_EACH(i, n)
    {
        const REAL kept = dropout(in[i], drawn.bits[i] >= threshold, scale);
        out[i] = add ? out[i] + kept : kept;
        GD_STEP("k", drawn.bits[i] >= threshold);
    }
}

/* to[i] (+)= from[i] * scale where half i % 2 of word i / 2 of the call's random stream keeps it,
 * else 0. Forward and backward are this one function: the mask is a pure function of (seed, offset,
 * i), so nothing is stored. */
static gd_status apply_mask(const gd_call *call, const gd_tensor *to, const gd_tensor *from,
                            bool add)
{
    const gd_dropout_args *args = call->args;
    const uint32_t threshold = gd_dropout_threshold(args->p);
    if (!to) return GD_OK;
    const int64_t n = gd_tensor_count(to);
    const mask m = {call, threshold, (REAL)gd_dropout_scale(threshold), gd_data(to), gd_data(from),
                    n,    add};
    return gd_each_piece(call, n, gd_divide_up(n, GD_BLOCK), mask_block, &m);
}

GD_KERNEL_OF_REAL(dropout_forward, apply_mask(call, call->output[0], call->input[0], false))
GD_KERNEL_OF_REAL(dropout_backward,
                  apply_mask(call, call->dinput[0], call->doutput[0], call->accumulate[0]))
