/* draw_step.h - the arguments of draw_step. */
#ifndef GRADUS_DRAW_STEP_H
#define GRADUS_DRAW_STEP_H

#include "gradus/ops.h"
#include "kernel.h"

typedef struct draw_step_args {
    double temperature;
} draw_step_args;

/* Below this the inverse may be infinite: the likeliest is drawn. */
#define DRAW_STEP_COLDEST 2.2250738585072014e-308

#endif
