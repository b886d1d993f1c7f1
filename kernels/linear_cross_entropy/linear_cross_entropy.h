/* linear_cross_entropy.h - the sizes of the op, what it saves, and how many rows of logits it
 * computes at once. */
#ifndef GRADUS_LINEAR_CROSS_ENTROPY_H
#define GRADUS_LINEAR_CROSS_ENTROPY_H

#include "cross_entropy/cross_entropy.h"

/* x [M, K], weight [V, K] */
typedef struct head_sizes {
    int64_t M, K, V;
} head_sizes;

static inline head_sizes head_sizes_of(const gd_call *call)
{
    const gd_tensor *weight = call->input[1];
    return (head_sizes){gd_tensor_count(call->input[2]), gd_tensor_dim(weight, 1),
                        gd_tensor_dim(weight, 0)};
}

/* The columns of the logits and of d. On a GPU rows are padded to 16 bytes: tensor cores take about
 * 6 times as long for 50257 columns of 16 bits as for 50304. */
static inline int64_t head_columns(const gd_call *call, gd_dtype dtype)
{
    const int64_t V = gd_tensor_dim(call->input[1], 0);
    if (gd_context_device(call->context) == GD_CPU) return V;
    return gd_round_up(V, 16 / (int64_t)gd_dtype_size(dtype));
}

/* What the forward saves: the factor, and d or, where the rows go in pieces, its two products. */
enum { SAVE_D, SAVE_FACTOR, SAVE_DX, SAVE_DWEIGHT, HEAD_SAVES };

/* The rows of a piece. Each piece reads and writes dweight, 8 bytes of an element for 6 HEAD_ROWS
 * operations, which with 4096 takes a GPU's memory a twentieth of the time of the products. */
enum { HEAD_ROWS = 4096 };

/* Whether the forward computes the gradients in pieces of rows: where that needs less than half of
 * the memory of d, whose elements have `element` bytes; those of sums have `sum`. */
static inline bool head_in_pieces(const head_sizes *s, size_t element, size_t sum)
{
    const double row = (double)element * (double)s->V, all = row * (double)s->M;
    const double gradients = (double)sum * ((double)s->M + (double)s->V) * (double)s->K;
    return s->M > HEAD_ROWS && 2 * ((double)HEAD_ROWS * row + gradients) < all;
}

/* How many rows of logits the forward computes at once: all if d is saved, HEAD_ROWS if gradients
 * are, and without a backward 128 MiB of them. */
static inline int64_t head_piece(const gd_call *call, size_t element)
{
    const head_sizes s = head_sizes_of(call);
    const int64_t most = 128 << 20, rows = most / ((int64_t)element * gd_max64(s.V, 1));
    if (call->save[SAVE_D]) return gd_max64(s.M, 1);
    if (call->save[SAVE_FACTOR]) return HEAD_ROWS;
    return gd_max64(rows / 64 * 64, 64);
}

#endif
