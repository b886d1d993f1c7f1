/* test_gradients_kinks.c - derivatives by ops where ops.h makes a promise: at kinks, zeros,
 * infinities and NaN. The first is that of the kernels, also where that is NaN; the second and the
 * third are finite wherever ops.h promises a finite gradient, and 0 at kinks. */
#include "each_context.h"

/* A function of x, with a constant number or tensor of its own. */
typedef gd_tensor *(*function)(gd_tensor *x);

#define FUNCTION(name, ...)              \
    static gd_tensor *name(gd_tensor *x) \
    {                                    \
        return __VA_ARGS__;              \
    }

static gd_tensor *gradient(gd_tensor *y, gd_tensor *x, bool differentiable)
{
    const gd_gradients_options options = {
        .keep_tape = true, .differentiable = differentiable, .zeros = true};
    gd_tensor *g = NULL;
    gd_gradients(&y, 1, &options, &x, 1, &g);
    ck_assert_no_error(ctx);
    return g;
}

/* Of the functions of one element at the values: orders 1 to 3. Checks the first against the
 * kernels'. */
static void derive(const char *name, function f, const double *at, int64_t n, double (*order)[16])
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(n), at);
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *g = f(x);
    double *right = values_of(gradient(g, x, false));
    for (int k = 0; k < 3; k++) {
        g = gradient(g, x, true);
        gd_tensor_read_f64(g, order[k], n);
    }
    for (int64_t i = 0; i < n; i++) {
        const bool same = fabs(order[0][i] - right[i]) <= 1e-14 * (1 + fabs(right[i])) ||
                          order[0][i] == right[i] || (isnan(order[0][i]) && isnan(right[i]));
        ck_assert_msg(same, "%s at %g: %g by ops, %g by the kernel", name, at[i], order[0][i],
                      right[i]);
    }
    free(right);
    gd_step_end(ctx);
    gd_tensor_free(x);
}

/* ---- Functions of one element ------------------------------------------------------------- */

FUNCTION(leaky, gd_leaky_relu(x, 0.1))
FUNCTION(elu, gd_elu(x, 0.5))
FUNCTION(clamp, gd_clamp(x, -1, 2))
FUNCTION(hardtanh, gd_hardtanh(x, -1, 2))
FUNCTION(to_the, gd_pow(x, 3))
FUNCTION(to_the_1, gd_pow(x, 1))
FUNCTION(to_the_0, gd_pow(x, 0))

#define F(f)  \
    {         \
#f, f \
    }
static const struct {
    const char *name;
    function f;
} bounded[] = {F(gd_relu),      F(leaky),       F(elu),     F(gd_silu),    F(gd_mish),  F(gd_gelu),
               F(gd_gelu_tanh), F(gd_softplus), F(gd_tanh), F(gd_sigmoid), F(gd_erf),   F(gd_atan),
               F(clamp),        F(hardtanh),    F(gd_abs),  F(gd_sign),    F(gd_floor), F(gd_ceil),
               F(gd_round),     F(to_the_1),    F(to_the_0)};

TEST(saturated_and_kinked)
{
    const double at[] = {0,   -0.0, 1,    -1,    2,      0.5,      30,
                         -30, 800,  -800, 1e300, -1e300, INFINITY, -INFINITY};
    enum { N = sizeof at / sizeof *at };
    double order[3][16];
    for (size_t k = 0; k < sizeof bounded / sizeof *bounded; k++) {
        derive(bounded[k].name, bounded[k].f, at, N, order);
        for (int i = 0; i < N; i++) {
            for (int o = 0; o < 3; o++) {
                ck_assert_msg(isfinite(order[o][i]), "%s at %g: derivative %d is %g",
                              bounded[k].name, at[i], o + 1, order[o][i]);
            }
        }
    }
    derive("pow", to_the, (double[]){0}, 1, order);
    ck_assert_double_eq(order[1][0], 0);
    ck_assert_double_eq(order[2][0], 6);
    const function kinked[] = {gd_relu, leaky, gd_abs, clamp, hardtanh};
    for (int k = 0; k < 5; k++) {
        derive("a kink", kinked[k], (double[]){0, -1, 2}, 3, order);
        for (int i = 0; i < 3; i++) ck_assert_double_eq(order[1][i], 0);
    }
}

/* With s = e^-|x|, silu'' is s (2 - |x|) but for s^2, and atan'' is -2 x / (1 + x^2)^2. */
TEST(digits_far_out)
{
    const double at[] = {30, -30, 36, 100, -100, 600, 1e3, -1e8, 1e100, INFINITY};
    double order[3][16];
    derive("silu", gd_silu, at, 6, order);
    for (int i = 0; i < 6; i++) {
        const double s = exp(-fabs(at[i])), sign = at[i] < 0 ? -1 : 1;
        ck_assert_double_eq_tol(order[1][i] / s, 2 - fabs(at[i]), 1e-9);
        ck_assert_double_eq_tol(order[2][i] / s, sign * (fabs(at[i]) - 3), 1e-9);
    }
    derive("mish", gd_mish, at, 4, order); /* x e^x on the left, x (1 - 2 e^-2x) on the right */
    for (int i = 0; i < 4; i++) {
        const double x = at[i], e = x < 0 ? exp(x) : exp(-2 * x);
        ck_assert_double_eq_tol(order[1][i] / e, x < 0 ? x + 2 : 8 - 8 * x, 1e-9);
        ck_assert_double_eq_tol(order[2][i] / e, x < 0 ? x + 3 : 16 * x - 24, 1e-9);
    }
    derive("gelu_tanh", gd_gelu_tanh, (double[]){-6, 6, -10, 10, -14, 14}, 6, order);
    for (int i = 0; i < 6; i++) { /* x e^v on the left, and x more on the right */
        const double x = -(6 + 4 * (i / 2)), k = 2 * sqrt(2 / acos(-1)), cubic = 0.044715;
        const double e = exp(k * (x + cubic * x * x * x)), dv = k * (1 + 3 * cubic * x * x);
        const double ddv = 6 * k * cubic * x, wanted = (2 * dv + x * (ddv + dv * dv)) * e;
        ck_assert_double_eq_tol(order[1][i] / wanted, 1, 1e-9);
    }
    derive("atan", gd_atan, at, 10, order);
    for (int i = 0; i < 10; i++) {
        const double x = at[i], second = -2 / (x * x) / x, third = 6 / (x * x) / (x * x);
        ck_assert_double_eq_tol(order[1][i], second, 4e-3 * fabs(second) + 1e-300);
        ck_assert_double_eq_tol(order[2][i], third, 4e-3 * third + 1e-300);
    }
    derive("at 0 and 1", gd_atan, (double[]){0, 1, -1, 0.5}, 4, order);
    const double right[][4] = {{1, 0.5, 0.5, 0.8}, {0, -0.5, 0.5, -0.64}, {-2, 0.5, 0.5, -0.256}};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 4; i++) ck_assert_double_eq_tol(order[k][i], right[k][i], 1e-15);
    derive("silu at 0", gd_silu, (double[]){0, -0.0}, 2, order);
    for (int i = 0; i < 2; i++) {
        ck_assert_double_eq(order[1][i], 0.5);
        ck_assert_double_eq_tol(order[2][i], 0, 1e-15);
    }
}

TEST(not_a_number)
{
    double order[3][16];
    for (size_t k = 0; k < sizeof bounded / sizeof *bounded; k++)
        derive(bounded[k].name, bounded[k].f, (double[]){NAN}, 1, order);
}

/* ---- Two variables ------------------------------------------------------------------------ */

static gd_tensor *other; /* the second variable, a constant */

FUNCTION(larger, gd_maximum(x, other))
FUNCTION(smaller, gd_minimum(other, x))
FUNCTION(powered, gd_pow_tensor(x, other))
FUNCTION(exponent, gd_pow_tensor(other, x))

static gd_tensor *chosen(gd_tensor *x)
{
    gd_tensor *positive = gd_gt(x, gd_constant(ctx, GD_FLOAT64, 0, NULL, 0));
    return gd_where(positive, gd_log(x), gd_mul(x, x));
}

static gd_tensor *chosen_safely(gd_tensor *x)
{
    gd_tensor *none = gd_le(x, gd_constant(ctx, GD_FLOAT64, 0, NULL, 0));
    return gd_masked_fill(gd_sqrt(gd_masked_fill(x, none, 1)), none, 0);
}

TEST(two_variables)
{
    double order[3][16];
    other = gd_constant(ctx, GD_FLOAT64, 0, NULL, 1);
    const double ties[] = {0, 1, 2, INFINITY, -INFINITY, NAN};
    gd_keep(other);
    for (int k = 0; k < 2; k++) {
        other = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(1), (double[]){1});
        derive("maximum", k ? larger : smaller, ties, 6, order);
        for (int i = 0; i < 6; i++) ck_assert_double_eq(order[1][i], 0);
    }
    other = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(4), (double[]){0, 1, 2, 3});
    derive("pow_tensor", powered, (double[]){0, 0, 0, 0}, 4, order);
    ck_assert_double_eq(order[0][1], 1);
    ck_assert_double_eq(order[1][2], 2);
    ck_assert_double_eq(order[2][3], 6);
    ck_assert_double_eq(order[2][0], 0);
    other = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(2), (double[]){0, 2});
    derive("pow_tensor", exponent, (double[]){0.5, 0.5}, 2, order);
    ck_assert_double_eq(order[2][0], 0);
    ck_assert_double_eq_tol(order[2][1], sqrt(2) * pow(log(2), 3), 1e-15);
    /* what is not chosen is infinite, or its slope is: 0 in each order but that of log(0) itself */
    derive("where", chosen, (double[]){2}, 1, order);
    derive("masked_fill", chosen_safely, (double[]){0, -1, 4}, 3, order);
    for (int o = 0; o < 3; o++) ck_assert_double_eq(order[o][0], 0);
    ck_assert_double_eq_tol(order[1][2], -1. / 32, 1e-16);
}

/* ---- Reductions --------------------------------------------------------------------------- */

FUNCTION(last_logsumexp, gd_logsumexp(x, NULL, 0, false))
FUNCTION(last_prod, gd_prod(x, NULL, 0, false))
FUNCTION(last_std, gd_std(x, NULL, 0, 1, false))
FUNCTION(last_max, gd_max(x, NULL, 0, false))

static double the_p;

FUNCTION(last_norm, gd_norm(x, the_p, NULL, 0, false))

static void all_finite(const char *name, double (*order)[16], int n)
{
    for (int o = 0; o < 3; o++)
        for (int i = 0; i < n; i++)
            ck_assert_msg(isfinite(order[o][i]), "%s: derivative %d of element %d is %g", name,
                          o + 1, i, order[o][i]);
}

TEST(reductions)
{
    double order[3][16];
    const double hidden[] = {1, -INFINITY, 2, -INFINITY}, none[] = {-INFINITY, -INFINITY};
    derive("logsumexp", last_logsumexp, hidden, 4, order);
    all_finite("logsumexp", order, 4);
    derive("logsumexp", last_logsumexp, none, 2, order);
    all_finite("logsumexp", order, 2);
    ck_assert_double_eq(order[1][0], 0);
    derive("std", last_std, (double[]){3, 3, 3}, 3, order);
    all_finite("std", order, 3);
    derive("max", last_max, (double[]){1, 4, 4, 2}, 4, order);
    ck_assert_double_eq(order[0][1], 0.5);
    derive("max", last_max, (double[]){1, NAN, 4, NAN}, 4, order);
    const double powers[] = {2, 1, 3, 1.5, 0.5, 0, INFINITY, -INFINITY, -1.5};
    for (int k = 0; k < 9; k++) {
        the_p = powers[k];
        derive("norm", last_norm, (double[]){0, 0, 0}, 3, order);
        all_finite("norm", order, 3);
        derive("norm", last_norm, (double[]){0, 3, -4}, 3, order);
        all_finite("norm", order, 3);
    }
    /* d/dx_i of sum_j dy/dx_j of a product: the sums of products of what is left */
    derive("prod", last_prod, (double[]){0, 2, 3, 5}, 4, order);
    ck_assert_double_eq(order[1][0], 15 + 10 + 6);
    ck_assert_double_eq(order[1][1], 15);
    derive("prod", last_prod, (double[]){0, 0, 3, 5}, 4, order);
    ck_assert_double_eq(order[1][0], 15);
    ck_assert_double_eq(order[1][2], 0);
    ck_assert_double_eq(order[2][2], 2 * 5);
    derive("prod", last_prod, (double[]){0, 0, 0, 5}, 4, order);
    ck_assert_double_eq(order[1][0], 0);
    ck_assert_double_eq(order[2][0], 2 * 5);
    ck_assert_double_eq(order[2][3], 0);
}

/* ---- Losses ------------------------------------------------------------------------------- */

static gd_cross_entropy_options classes; /* of a loss of the rows x [2, 3] with the targets 1, 1 */
static gd_tensor *ones;

FUNCTION(negative_likelihood, gd_nll_loss(gd_reshape(x, GD_SHAPE(2, 3)), ones, &classes))
FUNCTION(entropy, gd_cross_entropy_with(gd_reshape(x, GD_SHAPE(2, 3)), ones, &classes))
FUNCTION(divergence_of_target, gd_kl_div(other, x, false, GD_SUM))

/* The mean over nothing is NaN, and does not change with x: its gradient is 0, and so is what that
 * gradient gives of a cotangent. Where targets count but weigh nothing, the gradient is that of the
 * kernels: NaN by the targets alone for nll_loss. */
TEST(losses)
{
    const double at[] = {-1, -2, -0.5, -0.3, -2, -1};
    double order[3][16];
    const function f[] = {negative_likelihood, entropy};
    ones = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), (int32_t[]){1, 1});
    for (int k = 0; k < 2; k++) {
        classes = (gd_cross_entropy_options){.ignore_index = 1};
        derive("all targets are ignored", f[k], at, 6, order);
        for (int o = 0; o < 3; o++)
            for (int i = 0; i < 6; i++) ck_assert_double_eq(order[o][i], 0);
        gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(6), at), *Jv;
        gd_tensor_set_requires_grad(x, true);
        gd_tensor *y = f[k](x);
        gd_jvp(&y, 1, &x, &x, 1, NULL, &Jv);
        ck_assert_double_eq(gd_item(Jv), 0);
        gd_step_end(ctx);
        gd_tensor_free(x);

        const double infinite[] = {INFINITY, 0.5, 2}, none[] = {1, 0, 2};
        classes.ignore_index = 0;
        classes.weight = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), infinite);
        derive("another class weighs infinitely much", f[k], at, 6, order);
        all_finite("another class weighs infinitely much", order, 6);
        gd_tensor_write_f64(classes.weight, none, 3);
        derive("targets weigh nothing", f[k], at, 6, order);
        for (int i = 0; i < 6 && k == 0; i++) ck_assert_int_eq(isnan(order[0][i]), i % 3 == 1);
        gd_tensor_free(classes.weight);
    }
    other = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), at);
    derive("kl_div's target", divergence_of_target, (double[]){0, 0.5, 0.25}, 3, order);
    ck_assert_double_eq(order[0][0], -INFINITY);
    ck_assert_double_eq(order[1][1], 2);
    gd_tensor_free(ones);
}

CHECK_MAIN_WITHIN("gradients_kinks", setup, teardown)
