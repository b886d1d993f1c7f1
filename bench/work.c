/* work.c - what a call of an op moves and computes at least: bytes and floating-point operations,
 * from the tensors that its kernels get. */
#include "bench.h"

#include <string.h>

static double bytes_of(const gd_tensor *t)
{
    return t ? (double)gd_tensor_count(t) * (double)gd_dtype_size(gd_tensor_dtype(t)) : 0;
}

static bool reads(uint32_t mask, int i)
{
    return mask >> (i < 31 ? i : 31) & 1;
}

/* Every tensor once, as far as it is read or written; of an embedding's table only the rows
 * that the ids name. */
double bench_bytes(const gd_call *call, bool backward)
{
    const gd_op *op = call->op;
    double bytes = 0;
    const bool in_place = backward && call->dinput[0] && call->doutput[0] &&
                          gd_tensor_data(call->dinput[0]) == gd_tensor_data(call->doutput[0]);
    if (op->view && in_place) return 0; /* a view's gradient that took dy's memory */
    if (!strcmp(op->name, "embedding") && !backward) return 2 * bytes_of(call->output[0]);
    for (int i = 0; i < call->inputs; i++) {
        if (!backward || reads(op->backward_reads_inputs, i)) bytes += bytes_of(call->input[i]);
        if (!backward || !call->dinput[i]) continue;
        bytes += bytes_of(call->dinput[i]) * (call->accumulate[i] ? 2 : 1);
    }
    for (int i = 0; i < call->outputs; i++) {
        if (!backward || reads(op->backward_reads_outputs, i)) bytes += bytes_of(call->output[i]);
        if (backward) bytes += bytes_of(call->doutput[i]);
    }
    for (int i = 0; i < call->saves; i++) bytes += bytes_of(call->save[i]);
    return bytes;
}

/* A product of `a` [..., K] with a matrix [N, K], or one of its two gradients. */
static double product_flops(const gd_tensor *a, const gd_tensor *matrix)
{
    return 2 * (double)gd_tensor_count(a) * (double)gd_tensor_dim(matrix, 0);
}

/* Two products of [T, D] by [D, S] per head, half of that since causal; y [B, T, H, D]. The
 * backward counts as 2.5 forwards, for its five products. */
static double attention_flops(const gd_tensor *y, int64_t keys, bool backward)
{
    return 4 * (double)gd_tensor_count(y) * (double)keys * 0.5 * (backward ? 2.5 : 1);
}

/* Those of matrix products; 0 for what memory bounds. */
double bench_flops(const gd_call *call, bool backward)
{
    const char *name = call->op->name;
    const bool packed = !strcmp(name, "rope_attention");
    if (packed || !strcmp(name, "attention"))
        return attention_flops(call->output[0], gd_tensor_dim(call->input[!packed], 1), backward);
    const bool head = !strcmp(name, "linear_cross_entropy");
    if (strcmp(name, "linear") != 0 && !head) return 0;
    int products = !backward;
    for (int i = 0; i < 2; i++) {
        const bool early = head && call->save[2 + i]; /* in pieces: the forward's, saved */
        products += backward ? call->dinput[i] && !early : early;
    }
    return products * product_flops(call->input[0], call->input[1]);
}
