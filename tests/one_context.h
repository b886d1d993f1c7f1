/* one_context.h - for tests of ops: one context for each test, which has no error at the end. */
#ifndef GRADUS_TEST_ONE_CONTEXT_H
#define GRADUS_TEST_ONE_CONTEXT_H

#include "op_test.h"

static gd_context *ctx;
static uint64_t seed = 1;

static inline void setup(void)
{
    ctx = test_context(2);
}

static inline void teardown(void)
{
    gd_synchronize(ctx); /* which looks at the margins of memory, if there are any */
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};

#endif
