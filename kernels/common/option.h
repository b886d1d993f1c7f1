/* option.h - options and axes, as ops and kernels read them: the CPU's and CUDA's. */
#ifndef GRADUS_KERNELS_OPTION_H
#define GRADUS_KERNELS_OPTION_H

#include <float.h>
#include <math.h>

#include "gradus/context.h"
#include "gradus/tensor.h"

/* An option as kernels that compute in `dtype` read it: a number other than 0 stays one,
 * and finite. */
static inline double gd_option_of_dtype(gd_dtype dtype, double value)
{
    if (dtype == GD_FLOAT64 || value == 0 || !isfinite(value)) return value;
    const double size = fmin(fmax(fabs(value), 0x1p-149), (double)FLT_MAX);
    return (double)(float)copysign(size, value);
}

/* gd_option (context.h) for whole numbers of any size. */
static inline int64_t gd_whole_option(int64_t field, int64_t unset)
{
    return field == 0 ? unset : field == GD_ZERO ? 0 : field;
}

/* An axis counted from the start; one that x does not have is left as it is, for the message. */
static inline int gd_axis_from_start(const gd_tensor *x, int axis)
{
    const int ndim = gd_tensor_ndim(x);
    return axis < 0 && axis + ndim >= 0 ? axis + ndim : axis;
}

#endif
