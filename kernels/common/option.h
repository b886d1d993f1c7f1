/* option.h - options, which are doubles, as kernels read them: the CPU's and CUDA's. */
#ifndef GRADUS_KERNELS_OPTION_H
#define GRADUS_KERNELS_OPTION_H

#include <float.h>
#include <math.h>

#include "gradus/tensor.h"

/* An option as kernels that compute in `dtype` read it: a number other than 0 stays one,
 * and finite. */
static inline double gd_option_of_dtype(gd_dtype dtype, double value)
{
    if (dtype == GD_FLOAT64 || value == 0 || !isfinite(value)) return value;
    const double size = fmin(fmax(fabs(value), 0x1p-149), (double)FLT_MAX);
    return (double)(float)copysign(size, value);
}

#endif
