/* reduce.h - shared by the records and the kernels of the reductions. */
#ifndef GRADUS_REDUCE_H
#define GRADUS_REDUCE_H

#include "gradus/autograd.h"

typedef struct gd_reduce_args {
    bool all; /* over all axes; then `axes` is ignored */
    bool keep_dims, unused[2];
    int count;
    int axes[GD_MAX_DIMS]; /* [count], negative: from the end */
} gd_reduce_args;

/* Of var and std. The axes come first: gd_reduced_axes and what builds on it takes both. */
typedef struct gd_variance_args {
    gd_reduce_args reduce;
    double correction;
} gd_variance_args;

/* What var and std save, in the order of the results (reduce.c). */
enum { SAVE_MEAN, SAVE_DEVIATION, SAVE_REST, SAVE_SCALE, VARIANCE_SAVES };

/* What norm saves of each result: the factor of x, and the slope by that (reduce_cpu.c). */
enum { SAVE_UNIT, SAVE_SLOPE, NORM_SAVES };

/* Of norm. */
typedef struct gd_norm_args {
    gd_reduce_args reduce;
    double p;
} gd_norm_args;

/* n - correction, by which the sum of squares is divided; 0 if that is negative. */
static inline double gd_variance_divisor(const gd_variance_args *args, int64_t n)
{
    const double left = (double)n - args->correction;
    return left > 0 ? left : 0;
}

/* By ops (derivations.c). */
void gd_sum_derivative(const gd_call *call);
void gd_mean_derivative(const gd_call *call);
void gd_max_derivative(const gd_call *call);
void gd_logsumexp_derivative(const gd_call *call);
void gd_var_derivative(const gd_call *call);
void gd_std_derivative(const gd_call *call);
void gd_norm_derivative(const gd_call *call);
void gd_prod_definition(const gd_call *call);

/* The axes as bits: bit d is set if axis d of a tensor with ndim dimensions is reduced. */
static inline unsigned gd_reduced_axes(const gd_reduce_args *args, int ndim)
{
    unsigned mask = args->all ? (1u << ndim) - 1 : 0;
    for (int i = 0; !args->all && i < args->count; i++)
        mask |= 1u << (args->axes[i] < 0 ? args->axes[i] + ndim : args->axes[i]);
    return mask;
}

/* Anything of the shape of y with the reduced axes kept at size 1: its shape and packed strides,
 * and n, the number of elements of x behind each of its `count` elements. */
typedef struct result_layout {
    int ndim;
    int64_t shape[GD_MAX_DIMS], strides[GD_MAX_DIMS];
    int64_t count, n;
} result_layout;

static inline result_layout layout_of_result(const gd_call *call)
{
    const gd_tensor *x = call->input[0];
    result_layout layout;
    layout.ndim = gd_tensor_ndim(x);
    layout.count = layout.n = 1;
    const unsigned reduced = gd_reduced_axes((const gd_reduce_args *)call->args, layout.ndim);
    for (int d = layout.ndim - 1; d >= 0; d--) {
        const int64_t size = gd_tensor_shape(x)[d];
        layout.shape[d] = reduced >> d & 1 ? 1 : size;
        layout.strides[d] = layout.count ? layout.count : 1;
        layout.count *= layout.shape[d];
        layout.n *= reduced >> d & 1 ? size : 1;
    }
    return layout;
}

#endif
