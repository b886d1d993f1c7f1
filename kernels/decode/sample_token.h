/* sample_token.h - the arguments of sample_token. */
#ifndef GRADUS_DRAW_STEP_H
#define GRADUS_DRAW_STEP_H

#include "gradus/ops.h"
#include "kernel.h"

typedef struct sample_token_args {
    double temperature;
} sample_token_args;

/* Below this the inverse may be infinite: the likeliest is drawn. */
#define DRAW_STEP_COLDEST 2.2250738585072014e-308

#endif
