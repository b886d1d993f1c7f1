/* each_context.h - one context for each test, which has no error at the end. */
#ifndef GRADUS_TEST_EACH_CONTEXT_H
#define GRADUS_TEST_EACH_CONTEXT_H

#include "op_test.h"

static gd_context *ctx;

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

#endif
