/* op_test.h - shared by the tests of ops: tensors of random numbers in every memory layout, and
 * comparison with a reference.
 *
 * A reference works on packed arrays of double, read from the tensors as they were stored, in its
 * own way: plain loops over indices, a full Jacobian, long double. Nothing here shares code with
 * the library. Free the arrays that a function returns. */
#ifndef GRADUS_OP_TEST_H
#define GRADUS_OP_TEST_H

#include <math.h>
#include <string.h>

#include "check_main.h"
#include "numbers.h"
#include "watched.h"

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

/* ---- Tensors and arrays ------------------------------------------------------------------- */

static inline gd_context *test_context(int threads)
{
    return watched_context((gd_context_options){.threads = threads, .seed = 1});
}

/* An array of zeros; one element more than asked for, so that none has an address too. */
static inline double *zeros(int64_t count)
{
    double *array = calloc((size_t)count + 1, sizeof *array);
    ck_assert_ptr_nonnull(array);
    return array;
}

/* The elements of t. */
static inline double *values_of(const gd_tensor *t)
{
    ck_assert_msg(t != NULL, "a tensor is missing");
    double *values = zeros(gd_tensor_count(t));
    ck_assert_msg(gd_tensor_read_f64(t, values, gd_tensor_count(t)) == GD_OK, "cannot read: %s",
                  gd_error(gd_tensor_context(t)));
    return values;
}

/* The bytes of t, which must be packed. */
static inline void *bytes_of(const gd_tensor *t, size_t *size)
{
    ck_assert_ptr_nonnull(t);
    *size = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
    void *bytes = malloc(*size + 1);
    ck_assert_int_eq(gd_tensor_read(t, bytes, *size), GD_OK);
    return bytes;
}

/* The bytes of some results. */
typedef struct result_bits {
    unsigned char *all;
    size_t bytes;
} result_bits;

/* The results have the same bits in every call. `first` is {0} before the first one, and its memory
 * is freed after the last. */
static inline void assert_same_bits(result_bits *first, gd_tensor *const *results, int count)
{
    result_bits own = {0};
    for (int i = 0; i < count; i++) {
        size_t size;
        void *part = bytes_of(results[i], &size);
        own.all = realloc(own.all, own.bytes + size + 1);
        memcpy(own.all + own.bytes, part, size);
        own.bytes += size;
        free(part);
    }
    if (!first->all) {
        *first = own;
        return;
    }
    ck_assert_uint_eq(first->bytes, own.bytes);
    ck_assert_msg(!memcmp(first->all, own.all, own.bytes), "other bits than at first");
    free(own.all);
}

/* A user's tensor with elements in [low, high); it requires a gradient, unless they are whole. */
static inline gd_tensor *random_leaf(gd_context *ctx, gd_dtype dtype, int ndim,
                                     const int64_t *shape, double low, double high, uint64_t *seed)
{
    gd_tensor *t = gd_tensor_create(ctx, dtype, ndim, shape);
    ck_assert_no_error(ctx);
    double *values = zeros(gd_tensor_count(t));
    for (int64_t i = 0; i < gd_tensor_count(t); i++) {
        values[i] = random_in(seed, low, high);
        if (dtype == GD_INT32) values[i] = floor(values[i]);
    }
    gd_tensor_write_f64(t, values, gd_tensor_count(t));
    if (dtype != GD_INT32) gd_tensor_set_requires_grad(t, true);
    ck_assert_no_error(ctx);
    free(values);
    return t;
}

/* How the elements lie in memory. */
typedef enum layout { PACKED, TRANSPOSED, SLICED, EXPANDED, LAYOUTS } layout;

/* A random tensor that keeps its gradient; in other layouts than PACKED a view of a leaf that has
 * its dimensions in the opposite order, longer rows, or a first dimension of 1. */
static inline gd_tensor *random_tensor(gd_context *ctx, gd_dtype dtype, shape s, layout way,
                                       double low, double high, uint64_t *seed)
{
    int axes[GD_MAX_DIMS], last = s.ndim - 1;
    shape base = s;
    if (s.ndim == 0) way = PACKED;
    for (int d = 0; d < s.ndim; d++) {
        axes[d] = last - d;
        if (way == TRANSPOSED) base.dim[d] = s.dim[last - d];
    }
    if (way == SLICED) base.dim[last] += 3;
    if (way == EXPANDED) base.dim[0] = 1;
    gd_tensor *t = random_leaf(ctx, dtype, base.ndim, base.dim, low, high, seed);
    if (way == TRANSPOSED) t = gd_permute(t, axes);
    if (way == SLICED) t = gd_slice(t, -1, 2, 2 + s.dim[last]);
    if (way == EXPANDED) t = gd_expand(t, s.ndim, s.dim);
    return way == PACKED || dtype == GD_INT32 ? t : gd_retain_grad(t);
}

/* ---- Comparison --------------------------------------------------------------------------- */

/* The tolerance that a sum of a few hundred products deserves, its rounding for storage included.
 */
static inline double tolerance_of(gd_dtype dtype)
{
    return dtype == GD_FLOAT64   ? 1e-13
           : dtype == GD_FLOAT32 ? 3e-6
           : dtype == GD_FLOAT16 ? 2e-3
                                 : 1e-2;
}

/* One assertion for each element would be slow: this only fails. */
static inline void not_near(const char *what, int64_t i, double got, double want, double allowed)
{
    ck_abort_msg("%s[%lld] is %.17g, wanted %.17g (allowed %.3g)", what, (long long)i, got, want,
                 allowed);
}

static inline bool is_near(double got, double want, double allowed)
{
    if (isnan(want)) return isnan(got);
    return isinf(want) ? got == want : fabs(got - want) <= allowed;
}

/* For sums, whose terms cancel: a number is within `tolerance` of what is wanted, relative to the
 * largest that is wanted, or to `size` (of the terms) where that is larger; and `ulps` units of the
 * dtype on top, for what was rounded to be stored. All 0: equal. */
typedef struct bound {
    double size, tolerance, ulps;
} bound;

/* NaN and infinities must match. */
static inline void arrays_near(const double *got, const double *want, int64_t count, bound most,
                               gd_dtype dtype, const char *what)
{
    double largest = most.size;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(want[i])) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < count; i++) {
        double allowed = most.tolerance * largest + most.ulps * ulp_of(want[i], dtype);
        if (!is_near(got[i], want[i], allowed)) not_near(what, i, got[i], want[i], allowed);
    }
}

/* The same for t, wanted to be `factor` times want. */
static inline void assert_near(const gd_tensor *t, const double *want, double factor, bound most,
                               const char *what)
{
    ck_assert_msg(t != NULL, "%s is missing", what);
    int64_t count = gd_tensor_count(t);
    double *got = values_of(t), *scaled = zeros(count);
    for (int64_t i = 0; i < count; i++) scaled[i] = factor * want[i];
    arrays_near(got, scaled, count, most, gd_tensor_dtype(t), what);
    free(got), free(scaled);
}

/* The same for terms of size 1, storage included in the tolerance. */
static inline void assert_sums(const char *what, const gd_tensor *t, const double *want,
                               double tolerance)
{
    assert_near(t, want, 1, (bound){1, tolerance, 0}, what);
}

/* For elements that stand alone: each is within one rounding of its dtype and `roundings` of the
 * computation, relative to itself plus `scale` for what cancelled on the way. */
static inline void assert_close(const gd_tensor *t, const double *want, double roundings,
                                double scale, const char *what)
{
    double *got = values_of(t);
    gd_dtype dtype = gd_tensor_dtype(t);
    double unit = dtype == GD_INT32 ? 0 : rounding_of(dtype);
    double fine = rounding_of(dtype == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32);
    for (int64_t i = 0; i < gd_tensor_count(t); i++) {
        double allowed = unit * fabs(want[i]) + roundings * fine * (fabs(want[i]) + scale);
        if (dtype == GD_FLOAT16) allowed += 0x1p-25; /* subnormal */
        if (!is_near(got[i], want[i], allowed)) not_near(what, i, got[i], want[i], allowed);
    }
    free(got);
}

/* ---- Backward ----------------------------------------------------------------------------- */

/* The backward of y with cotangent dy. */
static inline void backward_with(gd_tensor *y, gd_tensor *dy)
{
    ck_assert_no_error(gd_tensor_context(dy));
    gd_backward_options options = {.cotangents = (gd_tensor *const[]){dy}};
    gd_backward_from(&y, 1, &options);
    ck_assert_no_error(gd_tensor_context(dy));
}

/* The backward of y with a random cotangent, which is returned as it was stored. */
static inline double *backward_random(gd_context *ctx, gd_tensor *y, uint64_t *seed)
{
    ck_assert_msg(y != NULL, "%s", gd_error(ctx) ? gd_error(ctx) : "no result");
    gd_tensor *dy =
        random_leaf(ctx, gd_tensor_dtype(y), gd_tensor_ndim(y), gd_tensor_shape(y), -1, 1, seed);
    backward_with(y, dy);
    return values_of(dy);
}

#endif
