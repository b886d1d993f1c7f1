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

static inline void ck_assert_values(const gd_tensor *t, double a, double b, double c)
{
    double values[3] = {NAN, NAN, NAN};
    const char *error = gd_error(ctx);
    ck_assert_msg(t && gd_tensor_read_f64(t, values, 3) == GD_OK, "no values: %s", error);
    ck_assert_double_eq_tol(values[0], a, 1e-14 * (1 + fabs(a)));
    ck_assert_double_eq_tol(values[1], b, 1e-14 * (1 + fabs(b)));
    ck_assert_double_eq_tol(values[2], c, 1e-14 * (1 + fabs(c)));
}

#endif
