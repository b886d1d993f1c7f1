/* layer_norm.h - the arguments of layer_norm. */
#ifndef GRADUS_LAYER_NORM_H
#define GRADUS_LAYER_NORM_H

#include "kernel.h"

typedef struct gd_layer_norm_args {
    double eps;
} gd_layer_norm_args;

#endif
