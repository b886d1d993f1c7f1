/* reference.h - what tests of ops need to compare with a reference: random numbers of their own,
 * tensors in and out by way of double, rounding, and comparisons that print both values. Nothing
 * here shares code with the library. */
#ifndef GRADUS_REFERENCE_H
#define GRADUS_REFERENCE_H

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "gradus/gradus.h"

/* A linear congruential generator (Knuth's MMIX); the upper bits are good enough here. */
static inline double ref_uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

/* Near enough to a normal distribution: the sum of 12 uniforms has variance 1. */
static inline double ref_normal(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += ref_uniform(state);
    return sum;
}

static inline int64_t ref_integer(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(ref_uniform(state) * (double)(high - low));
}

/* At least one element, so that an empty tensor has a pointer too. */
static inline double *ref_array(int64_t count)
{
    double *array = calloc((size_t)(count + 1), sizeof *array);
    ck_assert_ptr_nonnull(array);
    return array;
}

/* A tensor of normal numbers; `requires_grad` is set. */
static inline gd_tensor *ref_tensor(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                                    double mean, double deviation, uint64_t *state)
{
    gd_tensor *t = gd_tensor_create(ctx, dtype, ndim, shape);
    int64_t count = gd_tensor_count(t);
    double *values = ref_array(count);
    for (int64_t i = 0; i < count; i++) values[i] = mean + deviation * ref_normal(state);
    gd_tensor_write_f64(t, values, count);
    gd_tensor_set_requires_grad(t, true);
    free(values);
    ck_assert_msg(gd_error(ctx) == NULL, "%s", gd_error(ctx));
    return t;
}

/* The elements of t, to be freed; NULL for NULL. */
static inline double *ref_values(const gd_tensor *t)
{
    if (!t) return NULL;
    double *values = ref_array(gd_tensor_count(t));
    gd_status status = gd_tensor_read_f64(t, values, gd_tensor_count(t));
    ck_assert_msg(status == GD_OK, "%s", gd_error(gd_tensor_context(t)));
    return values;
}

/* The distance between neighbouring numbers of a dtype around a value. */
static inline double ref_ulp(double value, gd_dtype dtype)
{
    static const int bits[GD_DTYPE_COUNT] = {
        [GD_FLOAT32] = 23, [GD_FLOAT64] = 52, [GD_BFLOAT16] = 7, [GD_FLOAT16] = 10};
    static const int lowest[GD_DTYPE_COUNT] = {
        [GD_FLOAT32] = -126, [GD_FLOAT64] = -1022, [GD_BFLOAT16] = -126, [GD_FLOAT16] = -14};
    int exponent = value == 0 || !isfinite(value) ? lowest[dtype] : ilogb(value);
    if (exponent < lowest[dtype]) exponent = lowest[dtype];
    return ldexp(1, exponent - bits[dtype]);
}

/* The nearest number of that dtype, ties to even (its range is taken to be endless). */
static inline double ref_round(double value, gd_dtype dtype)
{
    double ulp = ref_ulp(value, dtype);
    return isfinite(value) ? nearbyint(value / ulp) * ulp : value;
}

/* Each |got - want| <= rtol times the largest |want|; and `ulps` units of the dtype around want in
 * addition, for what was stored in 16 bits. NaN and infinities must be where they are wanted. */
static inline void ref_near(const double *got, const double *want, int64_t count, double rtol,
                            gd_dtype dtype, double ulps, const char *what)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(want[i]) && fabs(want[i]) > largest) largest = fabs(want[i]);
    for (int64_t i = 0; i < count; i++) {
        double allowed = rtol * largest + ulps * ref_ulp(want[i], dtype);
        bool same = isnan(want[i])   ? isnan(got[i])
                    : isinf(want[i]) ? got[i] == want[i]
                                     : fabs(got[i] - want[i]) <= allowed;
        ck_assert_msg(same, "%s[%lld] is %.17g, wanted %.17g (allowed %.3g)", what, (long long)i,
                      got[i], want[i], allowed);
    }
}

#endif
