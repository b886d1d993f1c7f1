/* test.c - swiglu against its formula in long double. */
#include "op_test.h"

static double sigmoid(double z)
{
    return (double)(1 / (1 + expl(-(long double)z)));
}

/* Sizes around the kernel's blocks; the gates are results of an op, so that their gradients may be
 * written over them. */
TEST(swiglu_is_its_formula)
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    const int64_t sizes[] = {0, 1, 15, 16, 17, 511, 512, 513, 5000, 40000};
    uint64_t seed = 1;
    for (int i = 0; i < 40; i++) {
        int64_t n = sizes[i / 4];
        gd_dtype dtype = dtypes[i % 4];
        gd_context *ctx = test_context(1 + i / 4 % 2);
        double wide = i % 3 ? 3 : 60;
        gd_tensor *gate = random_leaf(ctx, dtype, GD_SHAPE(n), -wide, wide, &seed);
        gd_tensor *up = random_leaf(ctx, dtype, GD_SHAPE(n), -1, 1, &seed);
        gd_tensor *dy = random_leaf(ctx, dtype, GD_SHAPE(n), -1, 1, &seed);
        gd_tensor *y = gd_keep(gd_swiglu(gd_scale(gate, 1), gd_scale(up, 1)));
        ck_assert_no_error(ctx);
        double *g = values_of(gate), *u = values_of(up), *d = values_of(dy);
        double *want = zeros(n);
        double *dgate = zeros(n);
        double *dup = zeros(n);
        for (int64_t k = 0; k < n; k++) {
            double s = sigmoid(g[k]), t = sigmoid(-g[k]); /* t = 1 - s without cancellation */
            want[k] = g[k] * s * u[k];
            dgate[k] = d[k] * u[k] * (s + g[k] * s * t);
            dup[k] = d[k] * g[k] * s;
        }
        assert_sums("y", y, want, tolerance_of(dtype));
        backward_with(y, dy);
        assert_sums("dgate", gd_grad(gate), dgate, tolerance_of(dtype));
        assert_sums("dup", gd_grad(up), dup, tolerance_of(dtype));
        free(g), free(u), free(d), free(want), free(dgate), free(dup);
        gd_context_free(ctx);
    }
}

/* One tensor [rows, 2 n] for both, from an op, so that its gradient may be written over it; and n
 * that the blocks of the kernels divide, or do not. */
TEST(swiglu_of_halves)
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    const int64_t sizes[] = {1, 7, 16, 511, 512, 1030};
    uint64_t seed = 3;
    for (int i = 0; i < 24; i++) {
        const int64_t n = sizes[i / 4], rows = 1 + i % 5;
        const gd_dtype dtype = dtypes[i % 4];
        gd_context *ctx = test_context(1 + i % 2);
        gd_tensor *both = random_leaf(ctx, dtype, GD_SHAPE(rows, 2 * n), -3, 3, &seed);
        gd_tensor *dy = random_leaf(ctx, dtype, GD_SHAPE(rows, n), -1, 1, &seed);
        gd_tensor *y = gd_keep(gd_swiglu(i % 3 ? both : gd_scale(both, 1), NULL));
        ck_assert_no_error(ctx);
        ck_assert(same_shape(shape_of(y), SHAPE(rows, n)));
        double *x = values_of(both), *d = values_of(dy);
        double *want = zeros(rows * n), *dx = zeros(2 * rows * n);
        for (int64_t k = 0; k < rows * n; k++) {
            const int64_t gate = k / n * 2 * n + k % n, up = gate + n;
            double s = sigmoid(x[gate]), t = sigmoid(-x[gate]);
            want[k] = x[gate] * s * x[up];
            dx[gate] = d[k] * x[up] * (s + x[gate] * s * t);
            dx[up] = d[k] * x[gate] * s;
        }
        assert_sums("y", y, want, tolerance_of(dtype));
        backward_with(y, dy);
        assert_sums("dx", gd_grad(both), dx, tolerance_of(dtype));
        free(x), free(d), free(want), free(dx);
        gd_context_free(ctx);
    }
}

TEST(swiglu_of_extremes)
{
    const float gates[] = {-INFINITY, -3e38f, -1000, -100,  -88,      0,
                           -0.0f,     88,     100,   3e38f, INFINITY, NAN};
    const double want[] = {0, 0, 0, 0, 0, 0, 0, 88, 100, 3e38f, INFINITY, NAN};
    gd_context *ctx = test_context(1);
    gd_tensor *gate = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(12), gates),
              *up = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(12));
    gd_tensor_fill(up, 1);
    gd_tensor_set_requires_grad(gate, true);
    gd_tensor *y = gd_keep(gd_swiglu(gate, up));
    double *got = values_of(y);
    for (int i = 0; i < 12; i++) {
        ck_assert_msg(isnan(want[i]) ? isnan(got[i])
                                     : got[i] == want[i] || fabs(got[i] - want[i]) < 1e-35,
                      "swiglu(%g) is %g, wanted %g", (double)gates[i], got[i], want[i]);
    }
    backward_with(y, up);
    double *dgate = values_of(gd_grad(gate));
    for (int i = 0; i < 10; i++)
        ck_assert_msg(isfinite(dgate[i]), "at %g the slope is %g", (double)gates[i], dgate[i]);
    free(got), free(dgate);
    gd_context_free(ctx);
}

/* NaN goes on to what depends on it, however low the gate; inf and -inf have silu's slopes. */
TEST(swiglu_carries_nan)
{
    for (int k = 0; k < 3; k++) {
        gd_context *ctx = test_context(1);
        const float low = k ? -3e38f : -INFINITY;
        gd_tensor *gate = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){low, INFINITY});
        gd_tensor *up = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){k ? NAN : 3, 3});
        gd_tensor *dy =
            gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){k == 2 ? NAN : 2, 2});
        gd_tensor_set_requires_grad(gate, true);
        gd_tensor_set_requires_grad(up, true);
        gd_tensor *y = gd_keep(gd_swiglu(gate, up));
        double *values = values_of(y);
        backward_with(y, dy);
        double *dgate = values_of(gd_grad(gate)), *dup = values_of(gd_grad(up));
        ck_assert(k ? isnan(values[0]) && isnan(dgate[0]) : values[0] == 0 && dgate[0] == 0);
        ck_assert(k == 2 ? isnan(dup[0]) : dup[0] == 0);
        ck_assert(isinf(values[1]) && dgate[1] == 6 && isinf(dup[1]));
        free(values), free(dgate), free(dup);
        gd_context_free(ctx);
    }
}

CHECK_MAIN("swiglu")
