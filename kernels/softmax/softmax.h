/* softmax.h - the arguments of softmax and log_softmax. */
#ifndef GRADUS_SOFTMAX_H
#define GRADUS_SOFTMAX_H

#include "kernel.h"

typedef struct gd_softmax_args {
    int axis; /* 0 or more */
} gd_softmax_args;

#endif
