/* rms_norm.h - the arguments of the kernels. */
#ifndef GRADUS_RMS_NORM_H
#define GRADUS_RMS_NORM_H

#include "gradus/autograd.h"

/* The arguments of both records, rms_norm and add_rms_norm. CPU kernels get every tensor in the
 * type of the computation, so these say what to round to a narrower type. GD_FLOAT64: nothing is
 * rounded. */
typedef struct gd_rms_norm_args {
    double eps;
    double offset;       /* y = xhat * (offset + weight) + bias */
    gd_dtype round_xhat; /* xhat, before the weight (round_before_weight) */
    gd_dtype round_sum;  /* x + residual, so that y is the norm of the sum as it is stored */
} gd_rms_norm_args;

#endif
