/* cross_entropy.h - what cross_entropy keeps of its arguments. */
#ifndef GRADUS_CROSS_ENTROPY_H
#define GRADUS_CROSS_ENTROPY_H

#include "gradus/ops.h"
#include "kernel.h"

typedef struct gd_cross_entropy_args {
    gd_reduction reduction;
    int32_t ignore_index;
    bool use_ignore_index;
} gd_cross_entropy_args;

#endif
