/* norm_linear_decode.h - the arguments of norm_linear_decode. */
#ifndef GRADUS_LINEAR_STEP_H
#define GRADUS_LINEAR_STEP_H

#include "gradus/ops.h"
#include "kernel.h"

typedef struct norm_linear_decode_args {
    double eps;
} norm_linear_decode_args;

#endif
