/* one_context.h - for tests of ops on random problems: a context, a seed and the dtypes. */
#ifndef GRADUS_TEST_ONE_CONTEXT_H
#define GRADUS_TEST_ONE_CONTEXT_H

#include "each_context.h"

static uint64_t seed = 1;
static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};

#endif
