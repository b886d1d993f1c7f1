/* shape.h - the arguments of the ops in this folder. */
#ifndef GRADUS_SHAPE_H
#define GRADUS_SHAPE_H

#include "kernel.h"

/* reshape, expand: the wanted shape. */
typedef struct gd_shape_args {
    int ndim, unused;
    int64_t shape[GD_MAX_DIMS];
} gd_shape_args;

/* Copies a user's shape into args; false, with the error set, if it is invalid. */
static inline bool gd_shape_args_set(gd_shape_args *args, const char *op, const gd_tensor *x,
                                     int ndim, const int64_t *shape)
{
    if (ndim < 0 || ndim > GD_MAX_DIMS || (ndim > 0 && !shape)) {
        gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT, "%s: ndim is %d%s, wanted 0 to %d%s", op,
                ndim, ndim > 0 && !shape ? " and shape is NULL" : "", GD_MAX_DIMS,
                ndim > 0 && !shape ? " and a shape" : "");
        return false;
    }
    args->ndim = ndim;
    for (int d = 0; d < ndim; d++) args->shape[d] = shape[d];
    return true;
}

/* permute: dimension i of the result is dimension axes[i] of x. */
typedef struct gd_permute_args {
    int axes[GD_MAX_DIMS];
} gd_permute_args;

/* slice: x[..., start : end, ...] along one axis. */
typedef struct gd_slice_args {
    int axis, unused;
    int64_t start, end;
} gd_slice_args;

typedef struct gd_concat_args {
    int axis;
} gd_concat_args;

typedef struct gd_cast_args {
    gd_dtype dtype;
} gd_cast_args;

#endif
