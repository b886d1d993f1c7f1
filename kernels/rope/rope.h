/* rope.h - what rope keeps of its arguments. */
#ifndef GRADUS_ROPE_H
#define GRADUS_ROPE_H

#include "gradus/ops.h"
#include "kernel.h"

typedef gd_rope_options gd_rope_args; /* with the base filled in */

#endif
