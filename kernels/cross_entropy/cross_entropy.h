/* cross_entropy.h - what cross_entropy keeps of its arguments. */
#ifndef GRADUS_CROSS_ENTROPY_H
#define GRADUS_CROSS_ENTROPY_H

#include "gradus/ops.h"
#include "kernel.h"

typedef gd_cross_entropy_options gd_cross_entropy_args;

#endif
