/* pool.h - the arguments of the pooling ops, and where their windows lie. */
#ifndef GRADUS_POOL_H
#define GRADUS_POOL_H

#include "gradus/autograd.h"
#include "gradus/ops.h"

enum { POOL_ROWS, POOL_COLS, POOL_AXES };

typedef struct gd_pool_args {
    int64_t kernel[POOL_AXES], stride[POOL_AXES], padding[POOL_AXES];
} gd_pool_args;

/* Planes of x, [size[0], size[1]], and of y, [pooled[0], pooled[1]]. */
typedef struct gd_pool_planes {
    gd_pool_args args;
    int64_t planes;
    int64_t size[POOL_AXES], pooled[POOL_AXES];
} gd_pool_planes;

static inline gd_pool_planes gd_pool_planes_of(const gd_call *call, const gd_tensor *x,
                                               const gd_tensor *y)
{
    gd_pool_planes p;
    p.args = *(const gd_pool_args *)call->args;
    p.planes = 1;
    const int leading = gd_tensor_ndim(x) - POOL_AXES;
    for (int d = 0; d < leading; d++) p.planes *= gd_tensor_shape(x)[d];
    for (int axis = 0; axis < POOL_AXES; axis++) {
        p.size[axis] = gd_tensor_shape(x)[leading + axis];
        p.pooled[axis] = gd_tensor_shape(y)[leading + axis];
    }
    return p;
}

#endif
