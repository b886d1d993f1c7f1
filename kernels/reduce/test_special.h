/* test_special.h - prod, norm, any and all where their cases for gradcheck do not go: zeros, NaN,
 * numbers out of range, long groups. On the CPU and on a GPU. */
#ifndef GRADUS_SPECIAL_REDUCTIONS_H
#define GRADUS_SPECIAL_REDUCTIONS_H

#include <float.h>

#include "op_test.h"

/* x [n] in one group: its product and slopes. */
static inline void check_prod(gd_context *ctx, gd_dtype dtype, const double *x, int64_t n, double y,
                              const double *dx)
{
    gd_tensor *t = gd_tensor_create(ctx, dtype, GD_SHAPE(n));
    gd_tensor_write_f64(t, x, n);
    gd_tensor_set_requires_grad(t, true);
    gd_tensor *result = gd_prod(t, NULL, 0, false);
    assert_close(result, &y, 2, 0, "prod");
    gd_backward(result);
    assert_close(gd_grad(t), dx, 2, 0, "prod's dx");
    gd_step_end(ctx);
}

static inline void check_products_with_zeros(gd_context *ctx)
{
    for (int d = 0; d < 2; d++) {
        const gd_dtype dtype = d ? GD_FLOAT64 : GD_FLOAT32;
        check_prod(ctx, dtype, (double[]){2, -3, 4}, 3, -24, (double[]){-12, 8, -6});
        check_prod(ctx, dtype, (double[]){2, 0, 4, -1}, 4, 0, (double[]){0, -8, 0, 0});
        check_prod(ctx, dtype, (double[]){0, 2, 0}, 3, 0, (double[]){0, 0, 0});
        check_prod(ctx, dtype, (double[]){0}, 1, 0, (double[]){1});
        check_prod(ctx, dtype, (double[]){2, INFINITY, -1}, 3, -INFINITY,
                   (double[]){-INFINITY, -2, INFINITY});
        check_prod(ctx, dtype, (double[]){2, NAN}, 2, NAN, (double[]){NAN, 2});
    }
    /* The product is out of range, or a part of it is, but not the slopes. */
    check_prod(ctx, GD_FLOAT64, (double[]){1e-200, 1e-200}, 2, 0, (double[]){1e-200, 1e-200});
    check_prod(ctx, GD_FLOAT64, (double[]){1e200, -1e200}, 2, -INFINITY, (double[]){-1e200, 1e200});
    check_prod(ctx, GD_FLOAT64, (double[]){0x1p1000, 0x1p1000, 0x1p-1000, 0x1p-999}, 4, 2,
               (double[]){0x1p-999, 0x1p-999, 0x1p1001, 0x1p1000});
    check_prod(ctx, GD_FLOAT32, (double[]){0x1p-100, 0x1p-120}, 2, 0,
               (double[]){0x1p-120, 0x1p-100});
    gd_tensor *none = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 0));
    assert_close(gd_prod(none, (int[]){1}, 1, false), (double[]){1, 1}, 0, 0, "of nothing");
}

static inline void check_norms(gd_context *ctx)
{
    const double p[] = {0, 0.5, 1, 2, 3, -1, INFINITY, -INFINITY};
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(2, 2));
    gd_tensor_set_requires_grad(x, true);
    gd_tensor_write_f64(x, (double[]){3, -4, 0, 0}, 4);
    const double rows[][2] = {
        {2, 0}, {pow(sqrt(3) + 2, 2), 0}, {7, 0}, {5, 0}, {cbrt(91), 0}, {12. / 7, 0}, {4, 0},
        {3, 0}};
    for (int i = 0; i < 8; i++) {
        gd_tensor *y = gd_keep(gd_norm(x, p[i], (int[]){1}, 1, false));
        gd_backward_from(&y, 1, NULL);
        assert_close(y, rows[i], 8, 0, "norm");
        double dx[4] = {pow(3 / rows[i][0], p[i] - 1), -pow(4 / rows[i][0], p[i] - 1), 0, 0};
        if (p[i] == 0) dx[0] = dx[1] = 0;
        if (isinf(p[i])) dx[0] = p[i] < 0, dx[1] = p[i] < 0 ? 0 : -1;
        assert_close(gd_grad(x), dx, 16, 0, "dx");
        gd_grad_clear(x);
        gd_step_end(ctx);
    }
    /* Equal ones share; NaN. */
    gd_tensor *z = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4), (float[]){2, -2, 1, 2});
    gd_tensor_set_requires_grad(z, true);
    gd_backward(gd_norm(z, INFINITY, NULL, 0, false));
    assert_close(gd_grad(z), (double[]){1 / 3., -1 / 3., 0, 1 / 3.}, 2, 0, "shared");
    gd_tensor_fill(z, NAN);
    for (int i = 1; i < 8; i++) ck_assert_double_nan(gd_item(gd_norm(z, p[i], NULL, 0, false)));
    for (int i = 1; i < 8; i++) { /* for p = 1 and infinite p, the others have a slope */
        const bool alone = p[i] == 1 || isinf(p[i]);
        const double other = !alone ? NAN : p[i] == 1 ? -1 : 0;
        gd_tensor_write_f64(z, (double[]){NAN, -2, -1, 0}, 4);
        gd_grad_clear(z);
        gd_backward(gd_norm(z, p[i], NULL, 0, false));
        assert_close(gd_grad(z), (double[]){NAN, other, other, alone ? 0 : NAN}, 0, 0, "at NaN");
    }
}

/* Powers that would overflow or vanish, in 32 and 16 bits. */
static inline void check_norms_of_any_size(gd_context *ctx)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2));
    gd_tensor_set_requires_grad(x, true);
    for (int i = -30; i <= 30; i += 10) {
        const double size = pow(10, i), y2 = 5 * size;
        const double y7 = size * pow(pow(3, 7) + pow(4, 7), 1 / 7.);
        const double minus7 = size * pow(pow(3, -7) + pow(4, -7), -1 / 7.);
        gd_tensor_write_f64(x, (double[]){3 * size, -4 * size}, 2);
        ck_assert_double_eq_tol(gd_item(gd_norm(x, 7, NULL, 0, false)) / y7, 1, 1e-6);
        ck_assert_double_eq_tol(gd_item(gd_norm(x, -7, NULL, 0, false)) / minus7, 1, 1e-6);
        gd_tensor *y = gd_norm(x, 2, NULL, 0, false);
        ck_assert_double_eq_tol(gd_item(y) / y2, 1, 1e-6);
        gd_backward(y);
        assert_close(gd_grad(x), (double[]){0.6, -0.8}, 4, 0, "slopes");
        gd_grad_clear(x);
        gd_step_end(ctx);
    }
    gd_tensor *half = gd_tensor_create(ctx, GD_FLOAT16, GD_SHAPE(2));
    gd_tensor_write_f64(half, (double[]){3000, 4000}, 2);
    ck_assert_double_eq(gd_item(gd_norm(half, 2, NULL, 0, false)), 5000);
    gd_tensor *none = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 0));
    ck_assert_double_eq(gd_item(gd_norm(none, 2, (int[]){1}, 1, false)), 0);
    ck_assert_double_eq(gd_item(gd_norm(none, INFINITY, (int[]){1}, 1, false)), 0);
    ck_assert_double_eq(gd_item(gd_norm(none, -1, (int[]){1}, 1, false)), INFINITY);
    REFUSED(gd_norm(none, NAN, NULL, 0, false), "norm: p is nan, wanted a number or an infinity");
}

/* |y - wanted| of numbers that may be beyond the dtype's range, with `ulps` of its eps. */
static inline void assert_norm_near(double y, long double wanted, bool wide, double ulps,
                                    const char *of, double p)
{
    const long double most = wide ? DBL_MAX : FLT_MAX, least = wide ? 0x1p-1074 : 0x1p-149;
    const long double eps = wide ? DBL_EPSILON : FLT_EPSILON;
    if (isinf(y) ? wanted > most / (1 + ulps * eps)
                 : fabsl(y - wanted) <= ulps * eps * wanted + 2 * least)
        return;
    ck_abort_msg("%s of p = %g is %g, wanted %Lg", of, p, y, wanted);
}

/* y = |(x_0, x_1)|_p and its slopes by logarithms, which neither overflow nor vanish:
 * ln y = ln(sum e^(p ln x)) / p, and the slopes are e^((p - 1) (ln x - ln y)). */
static inline void check_norm_of_two(gd_context *ctx, gd_dtype dtype, const double *x, double p)
{
    const bool wide = dtype == GD_FLOAT64;
    const double ulps = 256 + 16 * (fabs(p) + 1 / fabs(p));
    double dx[2];
    gd_tensor *t = gd_tensor_create(ctx, dtype, GD_SHAPE(2));
    gd_tensor_write_f64(t, x, 2);
    gd_tensor_set_requires_grad(t, true);
    gd_tensor *y = gd_norm(t, p, NULL, 0, false);
    const double value = gd_item(y);
    gd_backward(y);
    gd_tensor_read_f64(gd_grad(t), dx, 2);
    const long double a = logl(wide ? x[0] : (float)x[0]), b = logl(wide ? x[1] : (float)x[1]);
    const long double most = p * (p > 0 ? fmaxl(a, b) : fminl(a, b));
    const long double log_y = (most + logl(expl(p * a - most) + expl(p * b - most))) / p;
    assert_norm_near(value, expl(log_y), wide, ulps, "the norm", p);
    assert_norm_near(dx[0], expl((p - 1) * (a - log_y)), wide, ulps, "the first slope", p);
    assert_norm_near(dx[1], expl((p - 1) * (b - log_y)), wide, ulps, "the second slope", p);
    gd_step_end(ctx);
    gd_tensor_free(t);
}

/* Powers, quotients and norms beyond the range of the dtype. */
static inline void check_norms_of_any_power(gd_context *ctx)
{
    const double powers[] = {1080, 150, 33.3, 3,     2,    1.001, 1,    0.9,
                             0.5,  0.1, 0.01, -0.01, -0.5, -1,    -130, -1030};
    const double pairs[][2] = {{1, 0.5},        {100, 1},         {1e-30, 3.7e19},   {1, 1},
                               {3e38, 3e38},    {3e38, 1e-44},    {1e-44, 1e-44},    {1e-44, 7e-45},
                               {1e300, 1e-300}, {1e-320, 3e-320}, {1.7e308, 1.7e308}};
    for (int i = 0; i < 11; i++) {
        for (int k = 0; k < 16; k++) {
            if (i < 8) check_norm_of_two(ctx, GD_FLOAT32, pairs[i], powers[k]);
            check_norm_of_two(ctx, GD_FLOAT64, pairs[i], powers[k]);
        }
    }
    /* Powers that are beyond the range of the dtype themselves: nearly infinite, and nearly 0. */
    check_norm_of_two(ctx, GD_FLOAT32, (double[]){3, 1}, 1e300);
    check_norm_of_two(ctx, GD_FLOAT32, (double[]){3, 1}, -1e300);
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 2), (float[]){0, 3, 2, 3});
    assert_close(gd_norm(x, 1e-60, (int[]){1}, 1, false), (double[]){3, INFINITY}, 0, 0, "near 0");
    gd_tensor *half = gd_tensor_create(ctx, GD_BFLOAT16, GD_SHAPE(2));
    gd_tensor_write_f64(half, (double[]){100, 1}, 2);
    ck_assert_double_eq(gd_item(gd_norm(half, 150, NULL, 0, false)), 100);
    ck_assert_double_eq(gd_item(gd_norm(half, -130, NULL, 0, false)), 1);
}

static inline void check_any_and_all(gd_context *ctx)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3, 3),
                                  (float[]){0, -0.f, 0, 0, NAN, 1e-30f, -1, 2, INFINITY});
    gd_tensor_set_requires_grad(x, true);
    assert_close(gd_any(x, (int[]){1}, 1, false), (double[]){0, 1, 1}, 0, 0, "any of rows");
    assert_close(gd_all(x, (int[]){1}, 1, false), (double[]){0, 0, 1}, 0, 0, "all of rows");
    assert_close(gd_any(x, (int[]){0}, 1, true), (double[]){1, 1, 1}, 0, 0, "any of columns");
    ck_assert(gd_tensor_dtype(gd_all(x, NULL, 0, false)) == GD_INT32);
    ck_assert_double_eq(gd_item(gd_all(x, NULL, 0, false)), 0);
    gd_tensor *ids =
        gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2, 2), (int32_t[]){1 << 24 | 1, INT32_MIN, 0, 0});
    assert_close(gd_any(ids, (int[]){1}, 1, false), (double[]){1, 0}, 0, 0, "of whole numbers");
    assert_close(gd_all(ids, (int[]){1}, 1, false), (double[]){1, 0}, 0, 0, "of whole numbers");
    gd_tensor *none = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(2, 0));
    assert_close(gd_any(none, (int[]){1}, 1, false), (double[]){0, 0}, 0, 0, "any of nothing");
    assert_close(gd_all(none, (int[]){1}, 1, false), (double[]){1, 1}, 0, 0, "all of nothing");
}

#endif
