/* shape.h - the arguments of the ops in this folder. */
#ifndef GRADUS_SHAPE_H
#define GRADUS_SHAPE_H

#include "kernel.h"

#ifdef __CUDACC__
#define GD_ON_BOTH __host__ __device__
#else
#define GD_ON_BOTH
#endif

/* reshape, expand: the wanted shape. */
typedef struct gd_shape_args {
    int ndim, unused;
    int64_t shape[GD_MAX_DIMS];
} gd_shape_args;

/* An axis from the user, negative ones counted from the end; false, with the error set, if x has no
 * such axis, or was freed. */
static inline bool gd_resolve_axis(const char *op, const gd_tensor *x, int *axis)
{
    int ndim = gd_tensor_ndim(x), given = *axis;
    if (!gd_tensor_usable(x, op, "x")) return false;
    if (given < 0) *axis += ndim;
    if (*axis >= 0 && *axis < ndim) return true;
    gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT,
            "%s: axis is %d, wanted one of the %d dimensions of x %s", op, given, ndim,
            gd_shape_text(x).text);
    return false;
}

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

/* flip: the axes as bits. */
typedef struct gd_flip_args {
    uint32_t axes;
} gd_flip_args;

/* tril, triu: the diagonal to which elements are kept, 0 for that of the first element, above it
 * positive. */
typedef struct gd_triangle_args {
    int64_t diagonal;
} gd_triangle_args;

/* Of row i of a matrix with N columns: the columns [first, end) that are kept. */
typedef struct gd_kept_columns {
    int64_t first, end;
} gd_kept_columns;

GD_ON_BOTH static inline gd_kept_columns gd_triangle_row(int64_t i, int64_t N, int64_t diagonal,
                                                         bool upper)
{
    /* No overflow: the diagonal is near (triangle.c). */
    const int64_t at = i + diagonal + (upper ? 0 : 1); /* [tril] [triu] */
    const int64_t edge = at < 0 ? 0 : at > N ? N : at;
    gd_kept_columns kept = {upper ? edge : 0, upper ? N : edge};
    return kept;
}

typedef struct gd_concat_args {
    int axis;
} gd_concat_args;

typedef struct gd_cast_args {
    gd_dtype dtype;
} gd_cast_args;

#endif
