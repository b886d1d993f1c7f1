/* linear_step.h - the arguments of linear_step. */
#ifndef GRADUS_LINEAR_STEP_H
#define GRADUS_LINEAR_STEP_H

#include "gradus/ops.h"
#include "kernel.h"

typedef struct linear_step_args {
    double eps;
} linear_step_args;

#endif
