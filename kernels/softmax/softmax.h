/* softmax.h - what softmax and log_softmax keep of their arguments. */
#ifndef GRADUS_SOFTMAX_H
#define GRADUS_SOFTMAX_H

#include "kernel.h"

typedef struct gd_softmax_args {
    int axis; /* 0 or more */
} gd_softmax_args;

#endif
