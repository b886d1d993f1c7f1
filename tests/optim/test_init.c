/* test_init.c - initial values: the plain numbers with variances of the fans, quantiles, and
 * orthonormal rows or columns. */
#include "each_context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- By fans ------------------------------------------------------------------------------ */

typedef gd_status initialiser(gd_tensor *t);

#define INITIALISER(name, call)         \
    static gd_status name(gd_tensor *t) \
    {                                   \
        return call;                    \
    }

INITIALISER(xavier_uniform, gd_init_xavier_uniform(t, 1.5))
INITIALISER(xavier_normal, gd_init_xavier_normal(t, 1.5))
INITIALISER(kaiming_uniform_in, gd_init_kaiming_uniform(t, GD_FAN_IN, sqrt(2)))
INITIALISER(kaiming_uniform_out, gd_init_kaiming_uniform(t, GD_FAN_OUT, sqrt(2)))
INITIALISER(kaiming_normal_in, gd_init_kaiming_normal(t, GD_FAN_IN, 1))
INITIALISER(kaiming_normal_out, gd_init_kaiming_normal(t, GD_FAN_OUT, 1))

/* Variances for a linear weight [300, 200], fans 200 and 300, and for a convolution's [64, 32, 3,
 * 5], fans 32 15 = 480 and 64 15 = 960. */
static const struct {
    const char *name;
    initialiser *init;
    bool uniform;
    double linear, convolution;
} kinds[] = {
    {"xavier_uniform", xavier_uniform, true, 2.25 * 2 / 500, 2.25 * 2 / 1440},
    {"xavier_normal", xavier_normal, false, 2.25 * 2 / 500, 2.25 * 2 / 1440},
    {"kaiming_uniform, in", kaiming_uniform_in, true, 2.0 / 200, 2.0 / 480},
    {"kaiming_uniform, out", kaiming_uniform_out, true, 2.0 / 300, 2.0 / 960},
    {"kaiming_normal, in", kaiming_normal_in, false, 1.0 / 200, 1.0 / 480},
    {"kaiming_normal, out", kaiming_normal_out, false, 1.0 / 300, 1.0 / 960},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The numbers are those of gd_random_uniform or gd_random_normal of this variance. */
LOOP_TEST(variances_follow_from_the_fans, KINDS)
{
    const shape shapes[] = {SHAPE(300, 200), SHAPE(64, 32, 3, 5)};
    for (int k = 0; k < 2; k++) {
        const double variance = k ? kinds[_i].convolution : kinds[_i].linear;
        const double bound = sqrt(3 * variance);
        gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, shapes[k].ndim, shapes[k].dim);
        const gd_random_state from = gd_random_get(ctx);
        ck_assert_int_eq(kinds[_i].init(t), GD_OK);
        double *got = values_of(t);
        gd_random_set(ctx, from);
        if (kinds[_i].uniform)
            gd_random_uniform(t, -bound, bound);
        else
            gd_random_normal(t, 0, sqrt(variance));
        assert_close(t, got, 4, 0, kinds[_i].name);
        free(got);
        gd_tensor_free(t);
    }
}

/* ---- Orthogonal --------------------------------------------------------------------------- */

static const int64_t matrices[][4] = {
    {7, 7, 1, 1}, {5, 40, 1, 1}, {40, 5, 1, 1}, {64, 64, 1, 1}, {1, 9, 1, 1},
    {9, 1, 1, 1}, {1, 1, 1, 1},  {16, 3, 3, 3}, {130, 7, 2, 3}, {300, 300, 1, 1}};
enum { MATRICES = sizeof matrices / sizeof *matrices };

LOOP_TEST(rows_or_columns_are_orthonormal, MATRICES)
{
    const int64_t *shape = matrices[_i];
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_FLOAT16, GD_BFLOAT16};
    const double tolerances[] = {1e-13, 1e-6, 2e-3, 1.5e-2};
    for (int d = 0; d < 4; d++) {
        gd_tensor *t = gd_tensor_create(ctx, dtypes[d], shape[2] * shape[3] == 1 ? 2 : 4, shape);
        ck_assert_int_eq(gd_init_orthogonal(t, 3), GD_OK);
        double *x = values_of(t);
        const int64_t rows = shape[0], columns = gd_tensor_count(t) / rows;
        const bool tall = rows > columns;
        const int64_t count = tall ? columns : rows, n = tall ? rows : columns;
        for (int64_t i = 0; i < count; i++) {
            for (int64_t j = 0; j <= i; j++) {
                double dot = 0;
                for (int64_t k = 0; k < n; k++)
                    dot += tall ? x[k * columns + i] * x[k * columns + j]
                                : x[i * columns + k] * x[j * columns + k];
                ck_assert_double_le(fabs(dot - 9 * (i == j)), 9 * tolerances[d]);
            }
        }
        free(x);
        gd_tensor_free(t);
    }
}

/* Uniformly distributed: the first element of a 2 x 2 rotation is the cosine of a uniform angle,
 * with mean 0 and mean square 1/2, and the determinant is 1 as often as -1. */
TEST(no_direction_is_preferred)
{
    enum { TIMES = 4000 };
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(2, 2));
    double sum[4] = {0}, squares[4] = {0}, determinant = 0, x[4];
    for (int i = 0; i < TIMES; i++) {
        gd_init_orthogonal(t, 1);
        gd_tensor_read_f64(t, x, 4);
        for (int k = 0; k < 4; k++) sum[k] += x[k], squares[k] += x[k] * x[k];
        determinant += x[0] * x[3] - x[1] * x[2];
    }
    for (int k = 0; k < 4; k++) {
        ck_assert_double_le(fabs(sum[k]), 5 * sqrt(0.5 * TIMES));
        ck_assert_double_le(fabs(squares[k] / TIMES - 0.5), 5 * sqrt(0.125 / TIMES));
    }
    ck_assert_double_le(fabs(determinant), 5 * sqrt(TIMES));
    gd_tensor_free(t);
}

/* ---- Truncated normal --------------------------------------------------------------------- */

static double below(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

static const struct {
    double mean, stddev, low, high;
} cut[] = {{0, 1, -2, 2},       {0, 0.02, -0.04, 0.04}, {1, 2, 1.5, 1.75},
           {0, 1, 3, INFINITY}, {0, 1, -INFINITY, -4},  {5, 0.5, -INFINITY, INFINITY},
           {0, 1, 9, 10},       {0, 1, -37, -36},       {-3, 0.1, -3.5, -2.99},
           {0, 1, -0.1, 8}};
enum { CUTS = sizeof cut / sizeof *cut };

/* Element i is the quantile of the i-th uniform number. */
LOOP_TEST(elements_are_quantiles, CUTS)
{
    enum { N = 2000 };
    const double mean = cut[_i].mean, stddev = cut[_i].stddev;
    const double low = cut[_i].low, high = cut[_i].high;
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(N));
    const gd_random_state from = gd_random_get(ctx);
    double u[N], x[N];
    gd_random_uniform(t, 0, 1);
    gd_tensor_read_f64(t, u, N);
    gd_random_set(ctx, from);
    ck_assert_int_eq(gd_init_truncated_normal(t, mean, stddev, low, high), GD_OK);
    gd_tensor_read_f64(t, x, N);
    /* In the upper tail by what is above: there are no digits otherwise. */
    const double side = low > mean ? -1 : 1, least = below(side * (low - mean) / stddev);
    const double all = below(side * (high - mean) / stddev) - least;
    for (int i = 0; i < N; i++) {
        const double part = (below(side * (x[i] - mean) / stddev) - least) / all;
        ck_assert(x[i] >= low && x[i] <= high && isfinite(x[i]));
        ck_assert_double_eq_tol(part, side < 0 ? 1 - u[i] : u[i], 1e-11);
    }
    gd_tensor_free(t);
}

/* ---- Any tensor --------------------------------------------------------------------------- */

/* A transposed view gets what a packed tensor of its shape gets, and other dtypes round it. */
TEST(views_and_dtypes)
{
    const gd_random_state from = gd_random_get(ctx);
    gd_tensor *packed = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(6, 4));
    for (int kind = 0; kind < 2; kind++) {
        for (int dtype = 0; dtype < 4; dtype++) {
            gd_tensor *base = gd_tensor_create(ctx, (gd_dtype)dtype, GD_SHAPE(4, 6));
            gd_tensor *t = gd_transpose(base, 0, 1);
            gd_tensor *want = gd_tensor_create(ctx, (gd_dtype)dtype, GD_SHAPE(6, 4));
            gd_random_set(ctx, from);
            if (kind)
                gd_init_orthogonal(packed, 1);
            else
                gd_init_truncated_normal(packed, 0, 1, -1, 2);
            gd_random_set(ctx, from);
            if (kind)
                gd_init_orthogonal(t, 1);
            else
                gd_init_truncated_normal(t, 0, 1, -1, 2);
            gd_tensor_copy(want, packed);
            double *x = values_of(t), *y = values_of(want);
            ck_assert_mem_eq(x, y, 24 * sizeof *x);
            free(x);
            free(y);
            gd_tensor_free(base);
            gd_tensor_free(want);
            gd_step_end(ctx);
        }
    }
    gd_tensor_free(packed);
}

/* Nothing beyond the bounds, though 0.04 is none of the numbers of 16 bits: the nearest is
 * above it. */
TEST(rounded_within_the_bounds)
{
    enum { N = 1 << 16 };
    for (int dtype = 0; dtype < 4; dtype++) {
        gd_tensor *t = gd_tensor_create(ctx, (gd_dtype)dtype, GD_SHAPE(N));
        gd_init_truncated_normal(t, 0, 0.02, -0.04, 0.04);
        double *x = values_of(t);
        int outside = 0;
        for (int i = 0; i < N; i++) outside += !(fabs(x[i]) <= 0.04);
        free(x);
        gd_init_kaiming_uniform(gd_reshape(t, GD_SHAPE(64, 1024)), GD_FAN_IN, 1);
        x = values_of(t);
        for (int i = 0; i < N; i++) outside += !(fabs(x[i]) <= sqrt(3. / 1024));
        ck_assert_int_eq(outside, 0);
        free(x);
        gd_step_end(ctx);
        gd_tensor_free(t);
    }
    gd_tensor *t = gd_tensor_create(ctx, GD_BFLOAT16, GD_SHAPE(2));
    ck_assert(gd_init_truncated_normal(t, 1, 1, 1.001, 1.002));
    ck_assert_error(ctx, "init_truncated_normal: no bfloat16 is between 1.001 and 1.002");
    gd_tensor_free(t);
}

TEST(nothing_to_fill)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(0, 5)),
              *no_fan = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 0, 2, 2));
    for (int i = 0; i < KINDS; i++) {
        ck_assert_int_eq(kinds[i].init(t), GD_OK);
        ck_assert_int_eq(kinds[i].init(no_fan), GD_OK);
    }
    ck_assert_int_eq(gd_init_orthogonal(no_fan, 1), GD_OK);
    ck_assert_int_eq(gd_init_truncated_normal(t, 0, 1, 0, 1), GD_OK);
    gd_tensor_free(t);
    gd_tensor_free(no_fan);
}

#define BAD(call, sentence)                                     \
    do {                                                        \
        ck_assert_int_eq(call, GD_ERROR_ARGUMENT);              \
        ck_assert_ptr_nonnull(strstr(gd_error(ctx), sentence)); \
        gd_error_clear(ctx);                                    \
    } while (0)

TEST(bad_calls_are_sentences)
{
    gd_tensor *v = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4)),
              *ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(2, 2)),
              *w = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 2));
    BAD(gd_init_xavier_uniform(v, 1),
        "init_xavier_uniform: the tensor is float32 [4], wanted a real dtype and at least two");
    BAD(gd_init_kaiming_normal(ids, GD_FAN_IN, 1),
        "init_kaiming_normal: the tensor is int32 [2, 2]");
    BAD(gd_init_kaiming_uniform(w, (gd_fan)7, 1), "fan is 7, wanted GD_FAN_IN or GD_FAN_OUT");
    BAD(gd_init_xavier_normal(w, NAN), "init_xavier_normal: gain is nan");
    BAD(gd_init_orthogonal(w, -1), "init_orthogonal: gain is -1");
    BAD(gd_init_orthogonal(v, 1), "init_orthogonal: the tensor is float32 [4]");
    BAD(gd_init_truncated_normal(ids, 0, 1, -1, 1), "init_truncated_normal: the tensor is int32");
    BAD(gd_init_truncated_normal(w, 0, 0, -1, 1),
        "stddev 0, low -1 and high 1, wanted a finite mean");
    BAD(gd_init_truncated_normal(w, 0, 1, 1, 1), "low 1 and high 1, wanted a finite mean");
    BAD(gd_init_truncated_normal(w, 0, 1, 50, 60),
        "is between 50 and 60, wanted an interval nearer");
    ck_assert_int_eq(gd_init_orthogonal(NULL, 1), GD_ERROR_ARGUMENT);
    gd_tensor_free(v);
    gd_tensor_free(ids);
    gd_tensor_free(w);
}

CHECK_MAIN_WITHIN("init", setup, teardown)
