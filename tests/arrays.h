/* arrays.h - random inputs in every memory layout, and slow models of what ops do with them.
 *
 * A model works on packed arrays of double, read from the tensors as they were stored, with plain
 * loops over indices. */
#ifndef GRADUS_TEST_ARRAYS_H
#define GRADUS_TEST_ARRAYS_H

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gradus/gradus.h"

static uint64_t arrays_state = 0x2545f4914f6cdd1d;

static inline uint64_t random_bits(void)
{
    arrays_state ^= arrays_state << 13;
    arrays_state ^= arrays_state >> 7;
    arrays_state ^= arrays_state << 17;
    return arrays_state;
}

static inline int64_t random_below(int64_t n)
{
    return (int64_t)(random_bits() % (uint64_t)n);
}

static inline double random_in(double low, double high)
{
    return low + (high - low) * (double)(random_bits() >> 11) * 0x1p-53;
}

/* ---- Shapes ------------------------------------------------------------------------------- */

typedef struct shape {
    int ndim;
    int64_t dim[GD_MAX_DIMS];
} shape;

#define SHAPE(...) ((shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})
#define SCALAR_SHAPE ((shape){0})

static inline int64_t count_of(shape s)
{
    int64_t count = 1;
    for (int d = 0; d < s.ndim; d++) count *= s.dim[d];
    return count;
}

static inline shape shape_of(const gd_tensor *t)
{
    shape s = {gd_tensor_ndim(t), {0}};
    for (int d = 0; d < s.ndim; d++) s.dim[d] = gd_tensor_shape(t)[d];
    return s;
}

static inline bool same_shape(shape a, shape b)
{
    return a.ndim == b.ndim && !memcmp(a.dim, b.dim, (size_t)a.ndim * sizeof *a.dim);
}

/* The index of place `place` of shape s. */
static inline void unravel(shape s, int64_t place, int64_t *index)
{
    for (int d = s.ndim - 1; d >= 0; d--) {
        index[d] = place % s.dim[d];
        place /= s.dim[d];
    }
}

/* Where an array of shape `from`, broadcast to shape `to`, has the element of place `place`. */
static inline int64_t broadcast_place(shape from, shape to, int64_t place)
{
    int64_t index[GD_MAX_DIMS], at = 0;
    unravel(to, place, index);
    for (int d = 0; d < from.ndim; d++) {
        int64_t i = index[to.ndim - from.ndim + d];
        at = at * from.dim[d] + (from.dim[d] == 1 ? 0 : i);
    }
    return at;
}

/* ---- Tensors ------------------------------------------------------------------------------ */

/* How the elements lie in memory. */
enum { PACKED, TRANSPOSED, SLICED, LAYOUTS };

static inline double *read_all(const gd_tensor *t)
{
    ck_assert_msg(t != NULL, "a tensor is missing");
    double *values = malloc((size_t)gd_tensor_count(t) * sizeof(double) + 1);
    ck_assert_ptr_nonnull(values);
    ck_assert_int_eq(gd_tensor_read_f64(t, values, gd_tensor_count(t)), GD_OK);
    return values;
}

static inline gd_tensor *random_leaf(gd_context *ctx, gd_dtype dtype, shape s, double low,
                                     double high)
{
    int64_t count = count_of(s);
    gd_tensor *t = gd_tensor_create(ctx, dtype, s.ndim, s.dim);
    double *values = malloc((size_t)count * sizeof(double) + 1);
    for (int64_t i = 0; i < count; i++) {
        values[i] = random_in(low, high);
        if (dtype == GD_INT32) values[i] = floor(values[i]);
    }
    ck_assert_msg(gd_tensor_write_f64(t, values, count) == GD_OK, "%s", gd_error(ctx));
    free(values);
    if (dtype != GD_INT32) gd_tensor_set_requires_grad(t, true);
    return t;
}

/* A random tensor that keeps its gradient; other layouts than PACKED are views of a larger or
 * permuted one. */
static inline gd_tensor *random_tensor(gd_context *ctx, gd_dtype dtype, shape s, int layout,
                                       double low, double high)
{
    if (s.ndim == 0) layout = PACKED;
    if (layout == PACKED) return random_leaf(ctx, dtype, s, low, high);
    shape base = s;
    if (layout == SLICED) {
        base.dim[s.ndim - 1] += 3;
        gd_tensor *t = random_leaf(ctx, dtype, base, low, high);
        t = gd_slice(t, -1, 2, 2 + s.dim[s.ndim - 1]);
        return dtype == GD_INT32 ? t : gd_keep_grad(t);
    }
    int axes[GD_MAX_DIMS];
    for (int d = 0; d < s.ndim; d++) {
        base.dim[d] = s.dim[s.ndim - 1 - d];
        axes[d] = s.ndim - 1 - d;
    }
    gd_tensor *t = gd_permute(random_leaf(ctx, dtype, base, low, high), axes);
    return dtype == GD_INT32 ? t : gd_keep_grad(t);
}

/* The rounding of one element: half a unit in the last place, relative. */
static inline double rounding_of(gd_dtype dtype)
{
    switch (dtype) {
    case GD_FLOAT64:
        return 0x1p-53;
    case GD_FLOAT32:
        return 0x1p-24;
    case GD_BFLOAT16:
        return 0x1p-8;
    default:
        return 0x1p-11;
    }
}

/* t is close to `wanted`: within `ulps` roundings of the value, plus those of `scale` for what
 * cancelled on the way. NaN and infinities must be the same. */
static inline void assert_close(const gd_tensor *t, const double *wanted, double ulps, double scale,
                                const char *what)
{
    double *values = read_all(t), unit = rounding_of(gd_tensor_dtype(t));
    double fine = gd_tensor_dtype(t) == GD_FLOAT64 ? 0x1p-53 : 0x1p-24; /* of the computation */
    for (int64_t i = 0; i < gd_tensor_count(t); i++) {
        if (isnan(wanted[i]) && isnan(values[i])) continue;
        if (isinf(wanted[i]) && values[i] == wanted[i]) continue;
        double error = fabs(values[i] - wanted[i]);
        double allowed = unit * fabs(wanted[i]) + ulps * fine * (fabs(wanted[i]) + scale);
        if (gd_tensor_dtype(t) == GD_FLOAT16) allowed += 0x1p-25; /* subnormal */
        if (error <= allowed) continue; /* an assertion for each element would be slow */
        ck_abort_msg("%s: element %lld is %.17g, expected %.17g (%s)", what, (long long)i,
                     values[i], wanted[i], gd_dtype_name(gd_tensor_dtype(t)));
    }
    free(values);
}

/* Runs the backward of y with a random cotangent, which is returned as it was stored. */
static inline double *backward_random(gd_context *ctx, gd_tensor *y)
{
    ck_assert_msg(y != NULL, "%s", gd_error(ctx) ? gd_error(ctx) : "no result");
    gd_tensor *u = random_leaf(ctx, gd_tensor_dtype(y), shape_of(y), -1, 1);
    gd_backward_options options = {.cotangents = &u};
    gd_status status = gd_backward_from(&y, 1, &options);
    ck_assert_msg(status == GD_OK, "%s", gd_error(ctx));
    return read_all(u);
}

#endif
