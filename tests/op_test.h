/* op_test.h - what the tests of single ops share: contexts, random tensors, comparison with plain
 * arrays of double that the test computed in its own way. */
#ifndef GRADUS_OP_TEST_H
#define GRADUS_OP_TEST_H

#include "check_main.h"
#include "gradus/gradus.h"

#include <math.h>
#include <string.h>

/* A context whose fresh memory is NaN, with this many threads. */
static inline gd_context *test_context(int threads)
{
    gd_context_options options = {.threads = threads, .seed = 1, .poison = true};
    return gd_context_create(&options);
}

/* A number in [-1, 1), from a linear congruential generator. */
static inline double test_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*state >> 11) / 4503599627370496.0 - 1;
}

/* A whole number in [low, high]. */
static inline int64_t test_random_size(uint64_t *state, int64_t low, int64_t high)
{
    int64_t n = (int64_t)((test_random(state) + 1) / 2 * (double)(high - low + 1));
    return low + (n > high - low ? high - low : n);
}

/* The elements of t; free them. */
static inline double *test_values(const gd_tensor *t)
{
    ck_assert_ptr_nonnull(t);
    int64_t n = gd_tensor_count(t);
    double *values = calloc((size_t)n + 1, sizeof *values);
    ck_assert_msg(gd_tensor_read_f64(t, values, n) == GD_OK, "cannot read: %s",
                  gd_error(gd_tensor_context(t)));
    return values;
}

/* A tensor of yours that wants a gradient, with random elements in [-scale, scale). */
static inline gd_tensor *test_leaf(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                                   double scale, uint64_t *state)
{
    gd_tensor *t = gd_tensor_create(ctx, dtype, ndim, shape);
    ck_assert_no_error(ctx);
    int64_t n = gd_tensor_count(t);
    double *values = calloc((size_t)n + 1, sizeof *values);
    for (int64_t i = 0; i < n; i++) values[i] = scale * test_random(state);
    ck_assert_int_eq(gd_tensor_write_f64(t, values, n), GD_OK);
    ck_assert_int_eq(gd_tensor_set_requires_grad(t, true), GD_OK);
    free(values);
    return t;
}

/* Every element of t is within `tolerance` of want's, relative to the largest of want, or to 1
 * where all of them are smaller. */
static inline void test_close(const char *what, const gd_tensor *t, const double *want,
                              double tolerance)
{
    double *got = test_values(t), largest = 1;
    int64_t n = gd_tensor_count(t);
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        bool equal = got[i] == want[i] || (isnan(got[i]) && isnan(want[i]));
        ck_assert_msg(equal || fabs(got[i] - want[i]) <= tolerance * largest,
                      "%s[%lld] is %.17g, wanted %.17g (%s)", what, (long long)i, got[i], want[i],
                      gd_shape_text(t).text);
    }
    free(got);
}

/* The tolerance that a sum of a few hundred products deserves. */
static inline double test_tolerance(gd_dtype dtype)
{
    return dtype == GD_FLOAT64   ? 1e-13
           : dtype == GD_FLOAT32 ? 3e-6
           : dtype == GD_FLOAT16 ? 2e-3
                                 : 1e-2;
}

/* A copy of t's bytes; free it. t must be packed. */
static inline void *test_bytes(const gd_tensor *t, size_t *size)
{
    ck_assert_ptr_nonnull(t);
    *size = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
    void *bytes = malloc(*size + 1);
    ck_assert_int_eq(gd_tensor_read(t, bytes, *size), GD_OK);
    return bytes;
}

/* Runs the backward from y with cotangent dy. */
static inline void test_backward(gd_tensor *y, gd_tensor *dy)
{
    gd_backward_options options = {.cotangents = (gd_tensor *const[]){dy}};
    gd_backward_from(&y, 1, &options);
    ck_assert_no_error(gd_tensor_context(y));
}

#endif
