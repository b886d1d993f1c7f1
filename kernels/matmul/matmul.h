/* matmul.h - what the kernels of matmul share on every device. */
#ifndef GRADUS_MATMUL_H
#define GRADUS_MATMUL_H

#include "gradus/tensor.h"

typedef struct matmul_args {
    bool transpose_a, transpose_b;
} matmul_args;

/* The dimensions before the matrices, and the steps from one matrix to the next along each, in
 * elements: 0 where a or b is broadcast, and where products are summed into one c. */
typedef struct matmul_batch {
    int dims;
    int64_t size[GD_MAX_DIMS], c_step[GD_MAX_DIMS], a_step[GD_MAX_DIMS], b_step[GD_MAX_DIMS];
} matmul_batch;

static inline void matmul_drop_dimension(matmul_batch *batch, int d)
{
    batch->dims--;
    for (; d < batch->dims; d++) {
        batch->size[d] = batch->size[d + 1];
        batch->c_step[d] = batch->c_step[d + 1];
        batch->a_step[d] = batch->a_step[d + 1];
        batch->b_step[d] = batch->b_step[d + 1];
    }
}

#endif
