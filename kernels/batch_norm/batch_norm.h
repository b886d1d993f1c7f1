/* batch_norm.h - the arguments of batch_norm, and the shape that its kernels see. */
#ifndef GRADUS_BATCH_NORM_H
#define GRADUS_BATCH_NORM_H

#include "gradus/autograd.h"

enum { BATCH_X, BATCH_WEIGHT, BATCH_BIAS, BATCH_MEAN, BATCH_VAR, BATCH_INPUTS };

typedef struct gd_batch_norm_args {
    double eps, momentum;
} gd_batch_norm_args;

/* x as [B, C, S]: S places of each channel in each of B examples. */
typedef struct gd_channels {
    int64_t B, C, S;
} gd_channels;

static inline gd_channels gd_channels_of(const gd_tensor *x)
{
    gd_channels shape = {gd_tensor_shape(x)[0], gd_tensor_shape(x)[1], 1};
    for (int d = 2; d < gd_tensor_ndim(x); d++) shape.S *= gd_tensor_shape(x)[d];
    return shape;
}

/* The variance with n - 1, from that with n. */
static inline double gd_unbiased(double variance, int64_t n)
{
    return variance * ((double)n / (double)(n - 1));
}

#endif
