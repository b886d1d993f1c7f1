/* test.c - swiglu against its formula in long double. */
#include "one_context.h"

static double sigmoid(double z)
{
    return (double)(1 / (1 + expl(-(long double)z)));
}

/* Sizes around the kernel's blocks; gate and up, or one tensor [rows, 2 n] of both. They are results
 * of an op, so that their gradients may be written over them, and once in five leaves. */
TEST(swiglu_is_its_formula)
{
    const int64_t sizes[] = {0, 1, 7, 15, 16, 17, 511, 512, 513, 1030, 5000, 40000};
    for (int i = 0; i < 96; i++) {
        const bool halves = i % 2;
        const int64_t n = sizes[i / 8], rows = n < 5000 ? 1 + i % 5 : 1;
        const gd_dtype dtype = dtypes[i / 2 % 4];
        const double wide = i % 3 ? 3 : 60;
        gd_tensor *gate =
            random_leaf(ctx, dtype, GD_SHAPE(rows, (halves + 1) * n), -wide, wide, &seed);
        gd_tensor *up = halves ? NULL : random_leaf(ctx, dtype, GD_SHAPE(rows, n), -1, 1, &seed);
        gd_tensor *dy = random_leaf(ctx, dtype, GD_SHAPE(rows, n), -1, 1, &seed);
        gd_tensor *y =
            i % 5 ? gd_swiglu(gd_scale(gate, 1), up ? gd_scale(up, 1) : NULL) : gd_swiglu(gate, up);
        gd_keep(y);
        ck_assert(y && same_shape(shape_of(y), SHAPE(rows, n)));
        double *g = values_of(gate), *u = up ? values_of(up) : g, *d = values_of(dy);
        double *want = zeros(rows * n), *dgate = zeros(gd_tensor_count(gate));
        double *dup = up ? zeros(rows * n) : dgate;
        for (int64_t k = 0; k < rows * n; k++) {
            const int64_t a = halves ? k / n * 2 * n + k % n : k, b = halves ? a + n : k;
            const double s = sigmoid(g[a]), t = sigmoid(-g[a]); /* t = 1 - s without cancellation */
            want[k] = g[a] * s * u[b];
            dgate[a] = d[k] * u[b] * (s + g[a] * s * t);
            dup[b] = d[k] * g[a] * s;
        }
        assert_sums("y", y, want, tolerance_of(dtype));
        backward_with(y, dy);
        assert_sums("dgate", gd_grad(gate), dgate, tolerance_of(dtype));
        if (up) assert_sums("dup", gd_grad(up), dup, tolerance_of(dtype));
        if (up) free(u), free(dup);
        free(g), free(d), free(want), free(dgate);
        gd_step_end(ctx);
    }
}

TEST(swiglu_of_extremes)
{
    const float gates[] = {-INFINITY, -3e38f, -1000, -100,  -88,      0,
                           -0.0f,     88,     100,   3e38f, INFINITY, NAN};
    const double want[] = {0, 0, 0, 0, 0, 0, 0, 88, 100, 3e38f, INFINITY, NAN};
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
}

/* NaN goes on to what depends on it, however low the gate; inf and -inf have silu's slopes. */
TEST(swiglu_carries_nan)
{
    for (int k = 0; k < 3; k++) {
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
    }
}

CHECK_MAIN_WITHIN("swiglu", setup, teardown)
