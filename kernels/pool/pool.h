/* pool.h - where the windows of the pooling ops lie, whose arguments are those of convolutions. */
#ifndef GRADUS_POOL_H
#define GRADUS_POOL_H

#include "conv/conv.h"

enum { POOL_ROWS, POOL_COLS, POOL_AXES };

/* Planes of x, [size[0], size[1]], and of y, [pooled[0], pooled[1]]. */
typedef struct gd_pool_planes {
    conv_args args;
    int64_t planes;
    int64_t size[POOL_AXES], pooled[POOL_AXES];
} gd_pool_planes;

static inline gd_pool_planes gd_pool_planes_of(const gd_call *call, const gd_tensor *x,
                                               const gd_tensor *y)
{
    gd_pool_planes p;
    p.args = *(const conv_args *)call->args;
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
