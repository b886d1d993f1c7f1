/* dropout.h - the arguments of dropout. */
#ifndef GRADUS_DROPOUT_H
#define GRADUS_DROPOUT_H

#include "kernel.h"

typedef struct gd_dropout_args {
    double p; /* the probability of a zero */
} gd_dropout_args;

#endif
