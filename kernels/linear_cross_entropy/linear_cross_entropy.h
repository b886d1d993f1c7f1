/* linear_cross_entropy.h - the sizes of the op, and how many rows of logits it computes at once. */
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

/* Without a backward, the logits are computed in blocks of so many rows, and not kept. */
static inline int64_t head_piece(const head_sizes *s, size_t element)
{
    const int64_t most = 128 << 20, rows = most / ((int64_t)element * gd_max64(s->V, 1));
    return gd_max64(rows / 64 * 64, 64);
}

#endif
