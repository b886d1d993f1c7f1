/* test.c - sum, mean, max and logsumexp against plain loops in double. */
#include "one_context.h"
#include "reduce/reduce.h"
#include "test_special.h"
#include "test_ranges.h"
#include "twin.h"

TWIN(prod)

typedef gd_tensor *reduction(gd_tensor *x, const int *axes, int count, bool keep_dims);

enum { SUM, MEAN, MAX, LOGSUMEXP, REDUCTIONS };
static reduction *const reductions[] = {gd_sum, gd_mean, gd_max, gd_logsumexp};
static const char *const names[] = {"sum", "mean", "max", "logsumexp"};

/* ---- The model ---------------------------------------------------------------------------- */

/* Gathers the elements of x into groups, one for each result: group[i] is the result that element
 * i belongs to, in the order of the kept axes. Returns the shape of the result. */
static shape group_elements(shape x, unsigned reduced, bool keep_dims, int64_t *group)
{
    shape y = {0};
    for (int d = 0; d < x.ndim; d++) {
        bool kept = !(reduced >> d & 1);
        if (kept || keep_dims) y.dim[y.ndim++] = kept ? x.dim[d] : 1;
    }
    for (int64_t i = 0; i < count_of(x); i++) {
        int64_t index[GD_MAX_DIMS];
        unravel(x, i, index);
        group[i] = 0;
        for (int d = 0; d < x.ndim; d++)
            if (!(reduced >> d & 1)) group[i] = group[i] * x.dim[d] + index[d];
    }
    return y;
}

/* The result of group g, straight from the definition. */
static double reduce_group(int which, const double *x, const int64_t *group, int64_t n, int64_t g)
{
    double sum = 0, exponentials = 0, max = -INFINITY, members = 0;
    for (int64_t i = 0; i < n; i++) {
        if (group[i] != g) continue;
        sum += x[i];
        exponentials += exp(x[i]);
        if (x[i] > max || isnan(x[i])) max = x[i];
        members++;
    }
    const double result[] = {sum, sum / members, max, log(exponentials)};
    return result[which];
}

static double weight(int which, double x, double y, double members, double ties)
{
    const double weights[] = {1, 1 / members, x == y ? 1 / ties : 0, exp(x - y)};
    return weights[which];
}

static void check_reduction(int which, shape s, unsigned reduced, bool keep_dims, gd_dtype dtype,
                            int layout)
{
    int axes[GD_MAX_DIMS] = {0}, axis_count = 0;
    for (int d = s.ndim - 1; d >= 0; d--)
        if (reduced >> d & 1) axes[axis_count++] = d % 2 ? d : d - s.ndim;
    int64_t n = count_of(s), *group = calloc((size_t)n + 1, sizeof *group);
    gd_tensor *x = random_tensor(ctx, dtype, s, (enum layout)layout, -2, 2, &seed);
    shape y_shape = group_elements(s, reduced, keep_dims, group);
    int64_t results = count_of(y_shape);
    double *xv = values_of(x), *y = zeros(results);
    double *dx = zeros(n);

    bool everything = reduced == (1u << s.ndim) - 1 && random_below(&seed, 2);
    gd_tensor *result = reductions[which](x, everything ? NULL : axes, axis_count, keep_dims);
    gd_keep(result);
    double *dy = backward_random(ctx, result, &seed);
    for (int64_t g = 0; g < results; g++) {
        double members = 0, ties = 0;
        y[g] = reduce_group(which, xv, group, n, g);
        for (int64_t i = 0; i < n; i++) {
            members += group[i] == g;
            ties += group[i] == g && xv[i] == y[g];
        }
        for (int64_t i = 0; i < n; i++)
            if (group[i] == g) dx[i] = dy[g] * weight(which, xv[i], y[g], members, ties);
    }
    ck_assert_msg(same_shape(shape_of(result), y_shape), "%s: wrong shape", names[which]);
    /* The loops here add in another order than the kernels. */
    assert_close(result, y, 4, 1 + (double)n / 4, names[which]);
    /* e^(x - y) inherits the rounding of y. */
    double lost =
        which == LOGSUMEXP ? 8 * rounding_of(dtype) / fmin(0x1p-24, rounding_of(dtype)) : 0;
    if (n) assert_close(gd_grad(x), dx, 8 + 4 * lost, 1, names[which]);
    free(group), free(xv), free(y), free(dx), free(dy);
    gd_step_end(ctx);
}

LOOP_TEST(any_axes_of_any_layout, REDUCTIONS)
{
    const shape shapes[] = {SHAPE(3, 5, 4), SHAPE(2, 1, 3, 2), SHAPE(7), SHAPE(1),   SCALAR_SHAPE,
                            SHAPE(2, 0, 3), SHAPE(1, 1),       SHAPE(0), SHAPE(4, 9)};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (unsigned reduced = 0; reduced < 1u << shapes[s].ndim; reduced++)
            for (int layout = 0; layout < LAYOUTS; layout++)
                for (int dtype = 0; dtype < 4; dtype++)
                    check_reduction(_i, shapes[s], reduced, random_below(&seed, 2), (gd_dtype)dtype,
                                    layout);
}

/* Long enough for strips, groups and shares. */
LOOP_TEST(long_axes, REDUCTIONS)
{
    check_reduction(_i, SHAPE(20000), 1, false, GD_FLOAT32, PACKED);
    check_reduction(_i, SHAPE(20000, 2), 1, false, GD_FLOAT32, PACKED);
    check_reduction(_i, SHAPE(2, 20000), 2, false, GD_FLOAT32, TRANSPOSED);
    check_reduction(_i, SHAPE(3, 1500), 1, false, GD_FLOAT64, SLICED);
    check_reduction(_i, SHAPE(7, 3000), 2, true, GD_FLOAT32, SLICED);
    check_reduction(_i, SHAPE(5, 700, 6), 5, false, GD_FLOAT32, PACKED);
    check_reduction(_i, SHAPE(6, 2, 1300), 1, false, GD_FLOAT32, PACKED);
}

/* A model that is faster than check_reduction's, for a sum of many elements. */
TEST(sums_of_many_are_exact_in_double)
{
    const shape s = SHAPE(700, 1100);
    gd_tensor *x = random_tensor(ctx, GD_FLOAT32, s, PACKED, 0, 1, &seed);
    double *xv = values_of(x), rows[700] = {0}, columns[1100] = {0}, all = 0;
    for (int i = 0; i < 700; i++)
        for (int j = 0; j < 1100; j++) {
            rows[i] += xv[i * 1100 + j];
            columns[j] += xv[i * 1100 + j];
            all += xv[i * 1100 + j];
        }
    /* One rounding, at the very end. */
    assert_close(gd_sum(x, (int[]){1}, 1, false), rows, 1e-3, 0, "rows");
    assert_close(gd_sum(x, (int[]){0}, 1, false), columns, 1e-3, 0, "columns");
    assert_close(gd_sum(x, NULL, 0, false), &all, 1e-3, 0, "all");
    free(xv);
}

/* ---- Nothing, NaN, infinity --------------------------------------------------------------- */

TEST(over_nothing)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 0));
    const double wanted[][2] = {{0, 0}, {NAN, NAN}, {-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
    for (int which = 0; which < REDUCTIONS; which++) {
        assert_close(reductions[which](x, (int[]){1}, 1, false), wanted[which], 0, 0, names[which]);
        assert_close(reductions[which](x, NULL, 0, false), wanted[which], 0, 0, names[which]);
    }
}

static void check_special(int which, const float *values, int64_t n, double y, const double *dx)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(n), values);
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *result = reductions[which](x, NULL, 0, false);
    assert_close(result, &y, 2, 0, names[which]);
    gd_backward(result);
    if (dx) assert_close(gd_grad(x), dx, 2, 1, names[which]);
    gd_step_end(ctx);
}

TEST(nan_and_infinity)
{
    const double inf = INFINITY;
    check_special(SUM, (float[]){1, INFINITY}, 2, inf, (double[]){1, 1});
    check_special(SUM, (float[]){-INFINITY, INFINITY}, 2, NAN, (double[]){1, 1});
    check_special(MAX, (float[]){1, NAN, 2}, 3, NAN, (double[]){0, 1, 0});
    check_special(MAX, (float[]){NAN, 1, 2}, 3, NAN, (double[]){1, 0, 0});
    check_special(MAX, (float[]){1, INFINITY}, 2, inf, (double[]){0, 1});
    check_special(MAX, (float[]){-INFINITY, -INFINITY}, 2, -inf, (double[]){0.5, 0.5});
    check_special(LOGSUMEXP, (float[]){1, INFINITY}, 2, inf, NULL);
    check_special(LOGSUMEXP, (float[]){0, -INFINITY, 0}, 3, log(2), (double[]){0.5, 0, 0.5});
    check_special(LOGSUMEXP, (float[]){-INFINITY, -INFINITY}, 2, -inf, (double[]){0, 0});
    check_special(LOGSUMEXP, (float[]){1, NAN, INFINITY}, 3, NAN, NULL);
    check_special(LOGSUMEXP, (float[]){1000, 1000, 1000, 1000}, 4, 1000 + log(4), NULL);
    check_special(LOGSUMEXP, (float[]){-1000, -1000}, 2, -1000 + log(2), NULL);
    check_special(LOGSUMEXP, (float[]){0, -15}, 2, log1p(exp(-15)), NULL);
}

/* The NaN is found wherever it stands, also behind the vectorised part of a row and in columns. */
TEST(max_finds_nan_everywhere)
{
    enum { N = 1100 };
    float values[N] = {0};
    for (int i = 0; i < N; i += 37) {
        values[i] = NAN;
        gd_tensor *row = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(N), values);
        gd_tensor *rows = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(N / 2, 2), values);
        double columns[2];
        gd_tensor_read_f64(gd_max(rows, (int[]){0}, 1, false), columns, 2);
        ck_assert(isnan(gd_item(gd_max(row, NULL, 0, false))));
        ck_assert(isnan(columns[i % 2]) && columns[1 - i % 2] == 0);
        values[i] = 0;
        gd_step_end(ctx);
    }
}

/* Rows of -inf, also with a lowest finite number at the end, short and long. */
TEST(max_starts_at_minus_infinity)
{
    enum { N = 1100 };
    static double row[N];
    const int lengths[] = {1, 15, 16, 100, N};
    for (int i = 0; i < N; i++) row[i] = -INFINITY;
    for (int k = 0; k < 5 * 2; k++) {
        const double lowest = k % 2 ? -DBL_MAX : -(double)FLT_MAX;
        const int64_t n = lengths[k / 2];
        gd_tensor *x = gd_tensor_create(ctx, k % 2 ? GD_FLOAT64 : GD_FLOAT32, GD_SHAPE(n));
        for (int last = 0; last < 2; last++) {
            row[n - 1] = last ? lowest : -INFINITY;
            gd_tensor_write_f64(x, row, n);
            ck_assert_double_eq(gd_item(gd_max(x, NULL, 0, false)), row[n - 1]);
        }
        row[n - 1] = -INFINITY;
        gd_tensor_free(x);
    }
}

TEST(ties_share_evenly)
{
    check_special(MAX, (float[]){3, 1, 3, 3}, 4, 3, (double[]){1 / 3., 0, 1 / 3., 1 / 3.});
}

/* ---- Threads, variances ------------------------------------------------------------------- */

static gd_tensor *norm_3(gd_tensor *x, const int *axes, int count, bool keep_dims)
{
    return gd_norm(x, 3, axes, count, keep_dims);
}

LOOP_TEST(threads_do_not_change_a_bit, REDUCTIONS + 2)
{
    static reduction *const more[] = {gd_prod, norm_3};
    reduction *const function = _i < REDUCTIONS ? reductions[_i] : more[_i - REDUCTIONS];
    enum { M = 301, N = 407 };
    const int axes[] = {0, 1};
    for (int form = 0; form < 3; form++) {
        result_bits first = {0};
        for (int threads = 1; threads < 5; threads++) {
            uint64_t seed = 777;
            gd_context *own = gd_context_create(&(gd_context_options){.threads = threads});
            gd_tensor *x = random_leaf(own, GD_FLOAT32, GD_SHAPE(M, N), -2, 2, &seed);
            gd_tensor *y = function(x, form == 2 ? NULL : &axes[form], 1, false);
            gd_keep(y);
            free(backward_random(own, y, &seed));
            assert_same_bits(&first, (gd_tensor *[]){gd_grad(x), y}, 2);
            ck_assert_no_error(own);
            gd_context_free(own);
        }
        free(first.all);
    }
}

TEST(variances)
{
    /* 1e6 + {1, 2, 3, 6}: mean 3, squares 4 + 1 + 0 + 9. */
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(4));
    gd_tensor_write_f64(x, (double[]){1e6 + 1, 1e6 + 2, 1e6 + 3, 1e6 + 6}, 4);
    ck_assert_double_eq(gd_item(gd_var(x, NULL, 0, 0, false)), 14. / 4);
    ck_assert_double_eq_tol(gd_item(gd_var(x, NULL, 0, 1, false)), 14. / 3, 1e-14);
    ck_assert_double_eq(gd_item(gd_std(x, NULL, 0, 0, false)), sqrt(14. / 4));
    gd_tensor *one = gd_slice(x, 0, 0, 1);
    ck_assert_double_eq(gd_item(gd_var(one, NULL, 0, 0, false)), 0);
    ck_assert_double_nan(gd_item(gd_var(one, NULL, 0, 1, false)));
}

/* In float16 squares from 256 on, and sums of squares above 65504, would be infinite; in bfloat16
 * the mean 256.5 would be 256, half a deviation off. */
TEST(variances_of_16_bits)
{
    enum { N = 1000 };
    double values[N], slopes[N];
    for (int i = 0; i < N; i++) values[i] = i % 2 ? 10 : -10;
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT16, GD_SHAPE(N));
    ck_assert_int_eq(gd_tensor_set_requires_grad(x, true), GD_OK);
    gd_tensor_write_f64(x, values, N);
    gd_tensor *var = gd_var(x, NULL, 0, 0, false);
    ck_assert_int_eq(gd_tensor_dtype(var), GD_FLOAT16);
    ck_assert_double_eq(gd_item(var), 100);
    for (int i = 0; i < N; i++) values[i] *= 30;
    gd_tensor_write_f64(x, values, N);
    gd_tensor *std = gd_std(x, NULL, 0, 0, false);
    ck_assert_int_eq(gd_tensor_dtype(std), GD_FLOAT16);
    ck_assert_double_eq(gd_item(std), 300);
    ck_assert_int_eq(gd_backward(std), GD_OK);
    gd_tensor_read_f64(gd_grad(x), slopes, N);
    for (int i = 0; i < N; i++) /* (x - mean) / (N std), of 11 bits */
        ck_assert_double_eq_tol(slopes[i], i % 2 ? 1e-3 : -1e-3, 1e-6);

    gd_tensor *y = gd_tensor_create(ctx, GD_BFLOAT16, GD_SHAPE(4));
    gd_tensor_write_f64(y, (double[]){256, 256, 258, 256}, 4);
    ck_assert_double_eq(gd_item(gd_var(y, NULL, 0, 0, false)), 0.75);
    ck_assert_double_eq(gd_item(gd_var(y, NULL, 0, 1, false)), 1);
    ck_assert_double_eq(gd_item(gd_std(y, NULL, 0, 1, false)), 1);
}

LOOP_TEST(variances_of_any_size, VARIANCE_RANGES)
{
    check_variances(ctx, &variance_ranges[_i], 1.2e-7);
}

/* NaN and infinity, no degrees of freedom, equal elements. */
TEST(variances_of_nothing_and_of_nan)
{
    check_special_variances(ctx);
}

/* ---- prod, norm, any, all ----------------------------------------------------------------- */

TEST(products_with_zeros)
{
    check_products_with_zeros(ctx);
}

/* By halves, against the quotients of the derivation: zeros, odd numbers, layouts, 16 bits. */
LOOP_TEST(products_are_their_plain_twin, test_rounds(64))
{
    const gd_dtype dtype = dtypes[_i % 4];
    const layout way = (layout)(_i / 4 % LAYOUTS);
    const shape of = SHAPE(random_size(&seed, 1, 9), random_size(&seed, 1, 9), _i % 5);
    const gd_reduce_args args = {.count = 1 + _i % 2, .axes = {_i / 2 % 3, (_i / 2 + 1) % 3}};
    gd_tensor *x = random_tensor(ctx, dtype, of, way, -1.5, 1.5, &seed);
    double *values = values_of(x);
    for (int64_t i = 0; i < count_of(of); i++)
        if (random_chance(&seed, 0.1)) values[i] = 0;
    if (way != EXPANDED) gd_tensor_write_f64(x, values, count_of(of));
    assert_twin(prod_twin(), &x, 1, &args, 32 * tolerance_of(dtype), &seed);
    free(values);
}

/* Of single elements, too, the result is no view of x. */
TEST(a_product_has_its_own_memory)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 1), (float[]){3, 4});
    gd_tensor *y = gd_prod(x, (int[]){1}, 1, false);
    gd_tensor_fill(y, 9);
    assert_close(x, (double[]){3, 4}, 0, 0, "x");
}

TEST(norms)
{
    check_norms(ctx);
}

TEST(norms_of_any_size)
{
    check_norms_of_any_size(ctx);
}

TEST(norms_of_any_power)
{
    check_norms_of_any_power(ctx);
}

/* Of |(a, -b)|_p: H = (p - 1) (a b)^(p - 2) (a^p + b^p)^(1/p - 2) ((b^2, a b), (a b, a^2)), times v
 * = (1, 1). Numbers of any size have the same directions; H is smaller as they are larger. */
LOOP_TEST(second_derivatives_of_norms_of_any_size, 21)
{
    static const double powers[] = {-7, -0.3, 0.1, 1.5, 2, 3, 7};
    const double p = powers[_i / 3], size = pow(10, 30 * (_i % 3 - 1)), a = 3, b = 4;
    const double factor = (p - 1) * pow(a * b, p - 2) * pow(pow(a, p) + pow(b, p), 1 / p - 2);
    double h[2];
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2)), *dx, *hv;
    gd_tensor_set_requires_grad(x, true);
    gd_tensor_write_f64(x, (double[]){a * size, -b * size}, 2);
    gd_tensor *y = gd_norm(x, p, NULL, 0, false);
    gd_gradients(&y, 1, &(gd_gradients_options){.differentiable = true}, &x, 1, &dx);
    gd_tensor *sum = gd_sum(dx, NULL, 0, false);
    gd_gradients(&sum, 1, NULL, &x, 1, &hv);
    ck_assert_no_error(ctx);
    gd_tensor_read_f64(hv, h, 2);
    ck_assert_double_eq_tol(h[0] * size / (factor * (b * b + a * b)), 1, 2e-5);
    ck_assert_double_eq_tol(h[1] * size / (factor * (a * b + a * a)), 1, 2e-5);
}

TEST(any_and_all)
{
    check_any_and_all(ctx);
}

CHECK_MAIN_WITHIN("reduce", setup, teardown)
