/* rms_norm.h - what rms_norm.c tells the kernels. */
#ifndef GRADUS_RMS_NORM_H
#define GRADUS_RMS_NORM_H

#include "gradus/autograd.h"

/* The arguments of both records, rms_norm and add_rms_norm. CPU kernels see every tensor in the
 * type that is computed in, so what has to be rounded to a narrower one on the way is said here.
 * GD_FLOAT64: nothing is rounded. */
typedef struct gd_rms_norm_args {
    double eps;
    double offset;       /* y = xhat * (offset + weight) + bias */
    gd_dtype round_xhat; /* xhat, before the weight (round_before_weight) */
    gd_dtype round_sum;  /* x + residual, so that y is the norm of the sum as it is stored */
} gd_rms_norm_args;

#endif
