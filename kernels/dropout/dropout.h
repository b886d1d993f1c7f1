/* dropout.h - the arguments of dropout, and how 16 random bits decide what is dropped; attention
 * drops its weights in the same way. */
#ifndef GRADUS_DROPOUT_H
#define GRADUS_DROPOUT_H

#include "kernel.h"

typedef struct gd_dropout_args {
    double p; /* the probability of a zero */
} gd_dropout_args;

/* Random bits below it drop an element: p 2^16, rounded. 0: nothing is dropped. */
static inline uint32_t gd_dropout_threshold(double p)
{
    return (uint32_t)fmin(round(p * 65536), 65535);
}

/* 1 / (1 - p), of p as rounded, so that the mean is preserved exactly. */
static inline double gd_dropout_scale(uint32_t threshold)
{
    return 65536.0 / (65536 - threshold);
}

#endif
