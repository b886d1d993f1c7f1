/* test_elementwise.c - the elementwise ops against formulas in double and plain loops. */
#include "op_test.h"

static gd_context *ctx;
static uint64_t seed = 1;

static void setup(void)
{
    ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 2});
}

static void teardown(void)
{
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

/* ---- Functions of one variable ------------------------------------------------------------ */

static gd_tensor *scale_by(gd_tensor *x)
{
    return gd_scale(x, -1.5);
}

static gd_tensor *add_quarter(gd_tensor *x)
{
    return gd_add_scalar(x, 0.25);
}

static gd_tensor *power_0(gd_tensor *x)
{
    return gd_pow(x, 0);
}

static gd_tensor *power_1(gd_tensor *x)
{
    return gd_pow(x, 1);
}

static gd_tensor *power_2(gd_tensor *x)
{
    return gd_pow(x, 2);
}

static gd_tensor *power_3(gd_tensor *x)
{
    return gd_pow(x, 3);
}

static gd_tensor *power_half(gd_tensor *x)
{
    return gd_pow(x, 0.5);
}

static gd_tensor *power_minus_1(gd_tensor *x)
{
    return gd_pow(x, -1);
}

static gd_tensor *clamp(gd_tensor *x)
{
    return gd_clamp(x, -1, 1.5);
}

static gd_tensor *hardtanh(gd_tensor *x)
{
    return gd_hardtanh(x, -1, 1.5);
}

static gd_tensor *leaky(gd_tensor *x)
{
    return gd_leaky_relu(x, 0.125);
}

static gd_tensor *leaky_0(gd_tensor *x)
{
    return gd_leaky_relu(x, 0);
}

static gd_tensor *elu(gd_tensor *x)
{
    return gd_elu(x, 0.75);
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

static double density(double x)
{
    return exp(-x * x / 2) / sqrt(2 * acos(-1));
}

/* gelu_tanh: (1 + tanh(u)) / 2 is logistic(2 u). */
static double cubic(double x)
{
    return sqrt(2 / acos(-1)) * (x + 0.044715 * pow(x, 3));
}

static double cubic_slope(double x)
{
    return sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
}

/* Value and slope, by other formulas than the kernels' where there are any. */
#define FUNCTIONS(F)                                                                               \
    F("neg", gd_neg, -x, -1, -3, 3)                                                                \
    F("scale", scale_by, -1.5 * x, -1.5, -3, 3)                                                    \
    F("add_scalar", add_quarter, x + 0.25, 1, -3, 3)                                               \
    F("pow 0", power_0, 1, 0, -3, 3)                                                               \
    F("pow 1", power_1, x, 1, -3, 3)                                                               \
    F("pow 2", power_2, x *x, 2 * x, -3, 3)                                                        \
    F("pow 3", power_3, x *x *x, 3 * x * x, -3, 3)                                                 \
    F("pow 0.5", power_half, sqrt(x), 0.5 / sqrt(x), 0.1, 4)                                       \
    F("pow -1", power_minus_1, 1 / x, -1 / (x * x), -3, -0.2)                                      \
    F("exp", gd_exp, exp(x), exp(x), -4, 4)                                                        \
    F("log", gd_log, log(x), 1 / x, 0.1, 9)                                                        \
    F("sqrt", gd_sqrt, sqrt(x), 0.5 / sqrt(x), 0.1, 9)                                             \
    F("rsqrt", gd_rsqrt, 1 / sqrt(x), -0.5 / (x * sqrt(x)), 0.1, 9)                                \
    F("sin", gd_sin, sin(x), cos(x), -9, 9)                                                        \
    F("cos", gd_cos, cos(x), -sin(x), -9, 9)                                                       \
    F("tanh", gd_tanh, tanh(x), 1 / (cosh(x) * cosh(x)), -3, 3)                                    \
    F("sigmoid", gd_sigmoid, logistic(x), logistic(x) * logistic(-x), -6, 6)                       \
    F("relu", gd_relu, x > 0 ? x : 0, x > 0 ? 1 : 0, -2, 2)                                        \
    F("gelu", gd_gelu, x *(1 + erf(x / sqrt(2))) / 2, (1 + erf(x / sqrt(2))) / 2 + x * density(x), \
      -4, 4)                                                                                       \
    F("gelu_tanh", gd_gelu_tanh, x *logistic(2 * cubic(x)),                                        \
      logistic(2 * cubic(x)) +                                                                     \
          x * logistic(2 * cubic(x)) * logistic(-2 * cubic(x)) * 2 * cubic_slope(x),               \
      -4, 4)                                                                                       \
    F("silu", gd_silu, x *logistic(x), logistic(x) + x * logistic(x) * logistic(-x), -6, 6)        \
    F("log1p", gd_log1p, log(1 + x), 1 / (1 + x), -0.5, 9)                                         \
    F("expm1", gd_expm1, 2 * exp(x / 2) * sinh(x / 2), exp(x), -2, 3)                              \
    F("erf", gd_erf, 1 - erfc(x), 2 / sqrt(acos(-1)) * exp(-x * x), -2, 2)                         \
    F("softplus", gd_softplus, log(1 + exp(x)), logistic(x), -6, 6)                                \
    F("clamp", clamp, x<-1 ? -1 : x> 1.5 ? 1.5 : x, x<-1 || x> 1.5 ? 0 : 1, -3, 3)                 \
    F("abs", gd_abs, fabs(x), x > 0 ? 1 : -1, -2, 2)                                               \
    F("hardtanh", hardtanh, fmin(fmax(x, -1), 1.5), x <= -1 || x >= 1.5 ? 0 : 1, -3, 3)            \
    F("leaky_relu", leaky, fmax(x, 0) + fmin(x, 0) / 8, x > 0 ? 1 : 0.125, -3, 3)                  \
    F("elu", elu, x > 0 ? x : 1.5 * exp(x / 2) * sinh(x / 2), x > 0 ? 1 : 0.75 * exp(x), -6, 3)    \
    F("mish", gd_mish, x *tanh(log1p(exp(x))),                                                     \
      tanh(log1p(exp(x))) + x * logistic(x) / pow(cosh(log1p(exp(x))), 2), -6, 6)                  \
    F("reciprocal", gd_reciprocal, pow(x, -1), -pow(x, -2), 0.2, 9)                                \
    F("atan", gd_atan, atan2(x, 1), 1 / (1 + x * x), -9, 9)                                        \
    F("sign", gd_sign, x > 0 ? 1 : -1, 0, -2, 2)                                                   \
    F("floor", gd_floor, x - (fmod(fmod(x, 1) + 1, 1)), 0, -9, 9)                                  \
    F("ceil", gd_ceil, x + (fmod(1 - fmod(x, 1), 1)), 0, -9, 9)                                    \
    F("round", gd_round, nearbyint(x), 0, -9, 9)

typedef struct function {
    const char *name;
    gd_tensor *(*run)(gd_tensor *x);
    double low, high;
} function;

#define ENTRY(name, run, value, slope, low, high) {name, run, low, high},
static const function functions[] = {FUNCTIONS(ENTRY)};
enum { FUNCTION_COUNT = sizeof functions / sizeof *functions };

/* Value and slope of function `which` at x. */
static void evaluate(int which, double x, double *value, double *slope)
{
    const double values[] = {
#define VALUE(name, run, value, slope, low, high) value,
        FUNCTIONS(VALUE)};
    const double slopes[] = {
#define SLOPE(name, run, value, slope, low, high) slope,
        FUNCTIONS(SLOPE)};
    *value = values[which];
    *slope = slopes[which];
}

static void check_function(int which, gd_dtype dtype, shape s, int layout)
{
    const function *f = &functions[which];
    int64_t count = count_of(s);
    gd_tensor *x = random_tensor(ctx, dtype, s, (enum layout)layout, f->low, f->high, &seed);
    double *at = values_of(x), *y = zeros(count);
    double *dx = zeros(count);
    gd_tensor *result = f->run(x);
    gd_keep(result);
    double *dy = backward_random(ctx, result, &seed);
    for (int64_t i = 0; i < count; i++) {
        evaluate(which, at[i], &y[i], &dx[i]);
        dx[i] *= dy[i];
    }
    /* What a 16-bit y has lost is missing in a slope that is made from it. */
    bool coarse = dtype == GD_BFLOAT16 || dtype == GD_FLOAT16;
    ck_assert(same_shape(shape_of(result), s));
    assert_close(result, y, 16, 1, f->name);
    double lost = coarse ? 8 * rounding_of(dtype) / 0x1p-24 : 0;
    if (count) assert_close(gd_grad(x), dx, 32 + lost, 1, f->name);
    free(at), free(y), free(dx), free(dy);
    gd_step_end(ctx);
}

START_TEST(functions_of_one_variable)
{
    const shape shapes[] = {SHAPE(3, 5, 7), SHAPE(1), SCALAR_SHAPE, SHAPE(2, 2103), SHAPE(4, 0)};
    for (int which = 0; which < FUNCTION_COUNT; which++)
        for (int s = 0; s < 5; s++)
            for (int layout = 0; layout < LAYOUTS; layout++)
                for (int dtype = 0; dtype < 4; dtype++)
                    check_function(which, (gd_dtype)dtype, shapes[s], layout);
}
END_TEST

/* ---- Special values ----------------------------------------------------------------------- */

typedef struct special {
    const char *name;
    gd_tensor *(*run)(gd_tensor *x);
    double x, y, slope;
} special;

static const double inf = INFINITY, nan_value = NAN;

START_TEST(special_values)
{
    const special table[] = {
        {"exp", gd_exp, -inf, 0, 0},
        {"exp", gd_exp, inf, inf, inf},
        {"exp", gd_exp, nan_value, nan_value, nan_value},
        {"log", gd_log, 0, -inf, inf},
        {"log", gd_log, inf, inf, 0},
        {"log", gd_log, -inf, nan_value, 0},
        {"sqrt", gd_sqrt, 0, 0, inf},
        {"sqrt", gd_sqrt, inf, inf, 0},
        {"sqrt", gd_sqrt, -1, nan_value, nan_value},
        {"rsqrt", gd_rsqrt, 0, inf, -inf},
        {"rsqrt", gd_rsqrt, inf, 0, 0},
        {"sin", gd_sin, inf, nan_value, nan_value},
        {"tanh", gd_tanh, inf, 1, 0},
        {"tanh", gd_tanh, -inf, -1, 0},
        {"sigmoid", gd_sigmoid, inf, 1, 0},
        {"sigmoid", gd_sigmoid, -inf, 0, 0},
        {"sigmoid", gd_sigmoid, -1e30, 0, 0},
        {"sigmoid", gd_sigmoid, 1e30, 1, 0},
        {"sigmoid", gd_sigmoid, nan_value, nan_value, nan_value},
        {"silu", gd_silu, 1e30, 1e30, 1},
        {"silu", gd_silu, -1e30, 0, 0},
        {"silu", gd_silu, nan_value, nan_value, nan_value},
        {"gelu", gd_gelu, 1e30, 1e30, 1},
        {"gelu", gd_gelu, -1e30, 0, 0},
        {"gelu", gd_gelu, nan_value, nan_value, nan_value},
        {"gelu_tanh", gd_gelu_tanh, 1e30, 1e30, 1},
        {"gelu_tanh", gd_gelu_tanh, -1e30, 0, 0},
        {"gelu_tanh", gd_gelu_tanh, nan_value, nan_value, nan_value},
        {"silu", gd_silu, -inf, 0, 0},
        {"silu", gd_silu, inf, inf, 1},
        {"gelu", gd_gelu, -inf, 0, 0},
        {"gelu", gd_gelu, inf, inf, 1},
        {"gelu_tanh", gd_gelu_tanh, -inf, 0, 0},
        {"gelu_tanh", gd_gelu_tanh, inf, inf, 1},
        {"gelu_tanh", gd_gelu_tanh, 3.4e38, 3.4e38, 1},
        {"gelu_tanh", gd_gelu_tanh, -3.4e38, 0, 0},
        {"softplus", gd_softplus, inf, inf, 1},
        {"softplus", gd_softplus, -inf, 0, 0},
        {"softplus", gd_softplus, 1e30, 1e30, 1},
        {"softplus", gd_softplus, nan_value, nan_value, nan_value},
        {"erf", gd_erf, inf, 1, 0},
        {"erf", gd_erf, nan_value, nan_value, nan_value},
        {"log1p", gd_log1p, -1, -inf, inf},
        {"log1p", gd_log1p, 1e-20, 1e-20, 1},
        {"expm1", gd_expm1, -inf, -1, 0},
        {"expm1", gd_expm1, 1e-20, 1e-20, 1},
        {"clamp", clamp, 1.5, 1.5, 1},
        {"clamp", clamp, inf, 1.5, 0},
        {"clamp", clamp, nan_value, nan_value, 0},
        {"abs", gd_abs, nan_value, nan_value, 0},
        {"relu", gd_relu, 0, 0, 0},
        {"relu", gd_relu, inf, inf, 1},
        {"relu", gd_relu, -inf, 0, 0},
        {"relu", gd_relu, nan_value, nan_value, 1},
        {"abs", gd_abs, 0, 0, 0},
        {"abs", gd_abs, -inf, inf, -1},
        {"hardtanh", hardtanh, 1.5, 1.5, 0},
        {"hardtanh", hardtanh, -1, -1, 0},
        {"hardtanh", hardtanh, -inf, -1, 0},
        {"hardtanh", hardtanh, nan_value, nan_value, 0},
        {"leaky_relu", leaky, 0, 0, 0.125},
        {"leaky_relu", leaky, -inf, -inf, 0.125},
        {"leaky_relu", leaky, inf, inf, 1},
        {"leaky_relu", leaky, nan_value, nan_value, 0.125},
        {"leaky_relu 0", leaky_0, inf, inf, 1},
        {"leaky_relu 0", leaky_0, -inf, nan_value, 0},
        {"elu", elu, 0, 0, 0.75},
        {"elu", elu, -1e-20, -0.75e-20, 0.75},
        {"elu", elu, -inf, -0.75, 0},
        {"elu", elu, inf, inf, 1},
        {"elu", elu, 1e30, 1e30, 1},
        {"elu", elu, nan_value, nan_value, 1},
        {"mish", gd_mish, -inf, 0, 0},
        {"mish", gd_mish, inf, inf, 1},
        {"mish", gd_mish, -1e30, 0, 0},
        {"mish", gd_mish, 1e30, 1e30, 1},
        {"mish", gd_mish, nan_value, nan_value, nan_value},
        {"reciprocal", gd_reciprocal, 0, inf, -inf},
        {"reciprocal", gd_reciprocal, -inf, 0, 0},
        {"reciprocal", gd_reciprocal, nan_value, nan_value, nan_value},
        {"atan", gd_atan, inf, acos(0), 0},
        {"atan", gd_atan, -inf, -acos(0), 0},
        {"atan", gd_atan, 0, 0, 1},
        {"atan", gd_atan, nan_value, nan_value, nan_value},
        {"sign", gd_sign, 0, 0, 0},
        {"sign", gd_sign, -inf, -1, 0},
        {"sign", gd_sign, nan_value, 0, 0},
        {"floor", gd_floor, -0.25, -1, 0},
        {"floor", gd_floor, 3, 3, 0},
        {"floor", gd_floor, -inf, -inf, 0},
        {"floor", gd_floor, nan_value, nan_value, 0},
        {"ceil", gd_ceil, 0.25, 1, 0},
        {"ceil", gd_ceil, nan_value, nan_value, 0},
        {"round", gd_round, 0.5, 0, 0},
        {"round", gd_round, 1.5, 2, 0},
        {"round", gd_round, 2.5, 2, 0},
        {"round", gd_round, -2.5, -2, 0},
        {"round", gd_round, 8388609, 8388609, 0},
        {"round", gd_round, inf, inf, 0},
        {"round", gd_round, nan_value, nan_value, 0},
        {"pow 0", power_0, 0, 1, 0},
        {"pow 0", power_0, nan_value, 1, 0},
        {"pow 1", power_1, 0, 0, 1},
        {"pow 2", power_2, 0, 0, 0},
        {"pow 3", power_3, 0, 0, 0},
        {"pow 3", power_3, -2, -8, 12},
        {"pow 0.5", power_half, 0, 0, inf},
        {"pow 0.5", power_half, -1, nan_value, nan_value},
        {"pow 0.5", power_half, -inf, inf, 0},
        {"pow -1", power_minus_1, 0, inf, -inf},
        {"pow -1", power_minus_1, -inf, 0, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const special *s = &table[i];
        /* 21 copies: the vector loop and its tail. */
        for (int dtype = 0; dtype < 2; dtype++) {
            gd_tensor *x = gd_tensor_create(ctx, (gd_dtype)dtype, GD_SHAPE(21));
            gd_tensor_set_requires_grad(x, true);
            gd_tensor_fill(x, s->x);
            gd_tensor *y = s->run(x);
            gd_keep(y);
            gd_backward_from(&y, 1, NULL);
            double wanted_y[21], wanted_dx[21];
            for (int k = 0; k < 21; k++) wanted_y[k] = s->y, wanted_dx[k] = s->slope;
            assert_close(y, wanted_y, 4, 0, s->name);
            assert_close(gd_grad(x), wanted_dx, 4, 0, s->name);
            gd_step_end(ctx);
        }
    }
}
END_TEST

/* relu and abs let dy be anything where they are flat: 0 times infinity must not come out. */
START_TEST(flat_places_stop_infinite_gradients)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){-1, 0});
    gd_tensor *u = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){INFINITY, INFINITY});
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *y = gd_relu(x);
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &u});
    assert_close(gd_grad(x), (double[]){0, 0}, 0, 0, "relu");
}
END_TEST

/* ---- Functions of two variables, with broadcast ------------------------------------------- */

typedef gd_tensor *binary(gd_tensor *a, gd_tensor *b);

enum { ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, BINARIES };
static binary *const binaries[] = {gd_add, gd_sub, gd_mul, gd_div, gd_maximum, gd_minimum};
static const char *const binary_names[] = {"add", "sub", "mul", "div", "maximum", "minimum"};

static void evaluate_binary(int which, double a, double b, double *y, double *da, double *db)
{
    double share = a > b ? 1 : a < b ? 0 : 0.5;
    const double value[] = {a + b, a - b, a * b, a / b, a > b ? a : b, a < b ? a : b};
    const double by_a[] = {1, 1, b, 1 / b, share, 1 - share};
    const double by_b[] = {1, -1, a, -a / (b * b), 1 - share, share};
    *y = value[which], *da = by_a[which], *db = by_b[which];
}

typedef struct pair {
    shape a, b, y;
} pair;

static const pair pairs[] = {
    {{2, {5, 7}}, {2, {5, 7}}, {2, {5, 7}}},
    {{2, {5, 7}}, {1, {7}}, {2, {5, 7}}},
    {{1, {7}}, {2, {5, 7}}, {2, {5, 7}}},
    {{2, {5, 7}}, {2, {5, 1}}, {2, {5, 7}}},
    {{2, {5, 1}}, {2, {1, 7}}, {2, {5, 7}}},
    {{2, {5, 7}}, {0, {0}}, {2, {5, 7}}},
    {{0, {0}}, {3, {2, 3, 4}}, {3, {2, 3, 4}}},
    {{3, {2, 1, 4}}, {3, {2, 3, 4}}, {3, {2, 3, 4}}},
    {{4, {2, 1, 3, 1}}, {3, {5, 1, 2}}, {4, {2, 5, 3, 2}}},
    {{4, {1, 1, 1, 1}}, {1, {1}}, {4, {1, 1, 1, 1}}},
    {{0, {0}}, {0, {0}}, {0, {0}}},
    {{2, {0, 7}}, {1, {7}}, {2, {0, 7}}},
    {{2, {3, 0}}, {2, {3, 1}}, {2, {3, 0}}},
    {{2, {2, 5003}}, {1, {5003}}, {2, {2, 5003}}},
    {{2, {2000, 9}}, {1, {9}}, {2, {2000, 9}}},
    {{2, {9000, 3}}, {2, {9000, 1}}, {2, {9000, 3}}},
    {{1, {40000}}, {0, {0}}, {1, {40000}}},
    {{3, {30, 5, 130}}, {3, {30, 1, 130}}, {3, {30, 5, 130}}},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static void check_binary(int which, const pair *p, gd_dtype dtype, int layout_a, int layout_b)
{
    const char *name = binary_names[which];
    gd_tensor *a = random_tensor(ctx, dtype, p->a, (enum layout)layout_a, -2, 2, &seed);
    gd_tensor *b = random_tensor(ctx, dtype, p->b, (enum layout)layout_b, 0.5, 2, &seed);
    double *av = values_of(a), *bv = values_of(b);
    int64_t count = count_of(p->y);
    double *y = zeros(count);
    double *da = zeros(count_of(p->a));
    double *db = zeros(count_of(p->b));
    gd_tensor *result = binaries[which](a, b);
    gd_keep(result);
    double *dy = backward_random(ctx, result, &seed);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = broadcast_place(p->a, p->y, i), bt = broadcast_place(p->b, p->y, i);
        double by_a, by_b;
        evaluate_binary(which, av[at], bv[bt], &y[i], &by_a, &by_b);
        da[at] += dy[i] * by_a;
        db[bt] += dy[i] * by_b;
    }
    ck_assert(same_shape(shape_of(result), p->y));
    assert_close(result, y, 2, 0, name);
    /* A sum of n terms has at most n times the rounding of one. */
    double terms_a = (double)count / (double)count_of(p->a);
    double terms_b = (double)count / (double)count_of(p->b);
    if (count_of(p->a)) assert_close(gd_grad(a), da, 4, terms_a, name);
    if (count_of(p->b)) assert_close(gd_grad(b), db, 16, terms_b, name);
    free(av), free(bv), free(y), free(da), free(db), free(dy);
    gd_step_end(ctx);
}

START_TEST(functions_of_two_variables)
{
    for (int which = 0; which < BINARIES; which++)
        for (int p = 0; p < PAIRS; p++)
            for (int layout = 0; layout < 5; layout++)
                check_binary(which, &pairs[p], (gd_dtype)((which + p + layout) % 4), layout % 3,
                             layout ? (layout + 1) % 3 : PACKED);
}
END_TEST

/* A broadcast by gd_expand has strides of 0 in the middle of a full shape. */
START_TEST(expanded_operands)
{
    gd_tensor *row = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 5, 1), -1, 1, &seed);
    gd_tensor *b = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(3, 5, 7), -1, 1, &seed);
    gd_tensor *wide = gd_expand(row, GD_SHAPE(3, 5, 7)), *y = gd_mul(wide, b);
    gd_keep(y);
    double *rv = values_of(row), *bv = values_of(b), *dy = backward_random(ctx, y, &seed);
    double wanted[105], d_row[5] = {0};
    for (int i = 0; i < 105; i++) {
        wanted[i] = rv[i / 7 % 5] * bv[i];
        d_row[i / 7 % 5] += dy[i] * bv[i];
    }
    assert_close(y, wanted, 1, 0, "mul");
    assert_close(gd_grad(row), d_row, 4, 21, "mul");
    free(rv), free(bv), free(dy);
}
END_TEST

/* With inputs made by ops, one gradient may be written over dy: the other must not notice. */
START_TEST(gradients_over_dy)
{
    for (int which = 0; which < BINARIES; which++) {
        gd_tensor *a = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(3, 11), -2, 2, &seed);
        gd_tensor *b = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(3, 11), 0.5, 2, &seed);
        gd_tensor *y = gd_neg(binaries[which](gd_exp(a), gd_sqrt(b)));
        double *av = values_of(a), *bv = values_of(b), *dy = backward_random(ctx, y, &seed);
        double da[33], db[33];
        for (int i = 0; i < 33; i++) {
            double value, by_a, by_b;
            evaluate_binary(which, exp(av[i]), sqrt(bv[i]), &value, &by_a, &by_b);
            da[i] = -dy[i] * by_a * exp(av[i]);
            db[i] = -dy[i] * by_b / (2 * sqrt(bv[i]));
        }
        assert_close(gd_grad(a), da, 64, 1, binary_names[which]);
        assert_close(gd_grad(b), db, 64, 1, binary_names[which]);
        free(av), free(bv), free(dy);
        gd_step_end(ctx);
    }
}
END_TEST

/* The same tensor twice: d(x x) = 2 x dy. Two backwards add up. */
START_TEST(the_same_input_twice)
{
    gd_tensor *x = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(4, 6), -2, 2, &seed);
    double *xv = values_of(x), wanted[24] = {0};
    for (int round = 0; round < 2; round++) {
        double *dy = backward_random(ctx, gd_mul(x, x), &seed);
        for (int i = 0; i < 24; i++) wanted[i] += 2 * xv[i] * dy[i];
        free(dy);
        gd_step_end(ctx);
    }
    assert_close(gd_grad(x), wanted, 8, 1, "mul");
    free(xv);
}
END_TEST

START_TEST(maximum_of_ties_and_nan)
{
    gd_tensor *a = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4), (float[]){1, 2, NAN, 4});
    gd_tensor *b = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4), (float[]){1, 3, 3, NAN});
    gd_tensor_set_requires_grad(a, true);
    gd_tensor_set_requires_grad(b, true);
    gd_tensor *y = gd_maximum(a, b);
    gd_keep(y);
    gd_backward_from(&y, 1, NULL);
    assert_close(y, (double[]){1, 3, NAN, NAN}, 0, 0, "maximum");
    double ga[4], gb[4];
    gd_tensor_read_f64(gd_grad(a), ga, 4);
    gd_tensor_read_f64(gd_grad(b), gb, 4);
    ck_assert(ga[0] == 0.5 && gb[0] == 0.5 && ga[1] == 0 && gb[1] == 1);
}
END_TEST

/* Where 1 / b overflows, a zero over b is still 0. */
START_TEST(division_by_tiny_numbers)
{
    gd_tensor *a = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){0, 1e-30f});
    gd_tensor *b = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){1e-39f, 1e-10f});
    gd_tensor_set_requires_grad(b, true);
    gd_tensor *y = gd_keep(gd_div(a, b));
    gd_backward_from(&y, 1, NULL);
    assert_close(y, (double[]){0, 1e-20}, 4, 0, "div");
    assert_close(gd_grad(b), (double[]){0, -1e-10}, 4, 0, "db");
}
END_TEST

START_TEST(powers_of_tensors)
{
    const double a[] = {2, 4, 0, 0, 3, -2}, b[] = {3, 0.5, 2, 0, 0, 2};
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(6));
    gd_tensor *p = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(6));
    gd_tensor_write_f64(x, a, 6);
    gd_tensor_write_f64(p, b, 6);
    gd_tensor_set_requires_grad(x, true);
    gd_tensor_set_requires_grad(p, true);
    gd_tensor *y = gd_keep(gd_pow_tensor(x, p));
    gd_backward_from(&y, 1, NULL);
    assert_close(y, (double[]){8, 2, 0, 1, 1, 4}, 4, 0, "y");
    assert_close(gd_grad(x), (double[]){12, 0.25, 0, 0, 0, -4}, 4, 0, "da");
    assert_close(gd_grad(p), (double[]){8 * log(2), 2 * log(4), 0, 0, log(3), NAN}, 4, 0, "db");
}
END_TEST

START_TEST(comparisons_give_masks)
{
    static gd_tensor *(*const run[])(gd_tensor *, gd_tensor *) = {gd_eq, gd_ne, gd_lt,
                                                                  gd_le, gd_gt, gd_ge};
    static const int32_t wanted[6][4] = {{0, 1, 0, 0}, {1, 0, 1, 1}, {1, 0, 0, 0},
                                         {1, 1, 0, 0}, {0, 0, 1, 0}, {0, 1, 1, 0}};
    for (int k = 0; k < 6; k++) {
        gd_tensor *a = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4), (float[]){1, 2, 3, NAN});
        gd_tensor *two = gd_tensor_from(ctx, GD_FLOAT32, 0, NULL, (float[]){2});
        gd_tensor_set_requires_grad(a, true);
        gd_tensor *mask = run[k](a, two);
        int32_t got[4];
        ck_assert_int_eq(gd_tensor_dtype(mask), GD_INT32);
        ck_assert(!gd_tensor_requires_grad(mask));
        gd_tensor_read(mask, got, sizeof got);
        ck_assert_mem_eq(got, wanted[k], sizeof got);
    }
    ck_assert_int_eq(gd_tape_length(ctx), 0);
}
END_TEST

/* What is masked has no gradient, not even an infinite one, and may hold anything. */
START_TEST(masked_fill_hides_what_it_fills)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 2), (float[]){1, NAN, 3, 4});
    gd_tensor *mask = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), (int32_t[]){0, 1});
    gd_tensor *u = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 2), (float[]){5, INFINITY, 6, 7});
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *y = gd_keep(gd_masked_fill(x, mask, -INFINITY));
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &u});
    assert_close(y, (double[]){1, -INFINITY, 3, -INFINITY}, 0, 0, "y");
    assert_close(gd_grad(x), (double[]){5, 0, 6, 0}, 0, 0, "dx");
    ck_assert_ptr_null(gd_masked_fill(x, gd_tensor_create(ctx, GD_INT32, GD_SHAPE(3)), 0));
    ck_assert_error(ctx, "masked_fill: x [2, 2] and mask [3] cannot be broadcast together");
    ck_assert_ptr_null(gd_masked_fill(x, gd_tensor_create(ctx, GD_INT32, GD_SHAPE(1, 2, 2)), 0));
    ck_assert_error(ctx, "masked_fill: mask [1, 2, 2] does not broadcast to x [2, 2]");
    ck_assert_ptr_null(gd_masked_fill(x, u, 0));
    ck_assert_error(ctx, "masked_fill: mask is float32, wanted int32");
    ck_assert_ptr_null(gd_clamp(x, 1, 0));
    ck_assert_error(ctx, "clamp: low is 1 and high is 0, wanted low <= high");
    ck_assert_ptr_null(gd_hardtanh(x, 1, 0));
    ck_assert_error(ctx, "hardtanh: low is 1 and high is 0, wanted low <= high");
}
END_TEST

START_TEST(division_by_zero)
{
    gd_tensor *a = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){1, 0, -1});
    gd_tensor *y = gd_div(a, gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3)));
    assert_close(y, (double[]){INFINITY, NAN, -INFINITY}, 0, 0, "div");
}
END_TEST

/* ---- where -------------------------------------------------------------------------------- */

typedef struct triple {
    shape condition, a, b, y;
} triple;

static const triple triples[] = {
    {{2, {5, 7}}, {2, {5, 7}}, {2, {5, 7}}, {2, {5, 7}}},
    {{1, {7}}, {2, {5, 1}}, {0, {0}}, {2, {5, 7}}},
    {{3, {2, 1, 4}}, {2, {3, 1}}, {1, {4}}, {3, {2, 3, 4}}},
    {{0, {0}}, {1, {1}}, {2, {1, 1}}, {2, {1, 1}}},
    {{2, {0, 3}}, {1, {3}}, {1, {3}}, {2, {0, 3}}},
    {{2, {300, 1}}, {2, {300, 130}}, {1, {130}}, {2, {300, 130}}},
};

static void check_where(const triple *t, gd_dtype dtype, int layout)
{
    gd_tensor *c = random_tensor(ctx, GD_INT32, t->condition, (enum layout)layout, -1, 2, &seed);
    gd_tensor *a = random_tensor(ctx, dtype, t->a, (enum layout)layout, -2, 2, &seed);
    gd_tensor *b = random_tensor(ctx, dtype, t->b, (enum layout)((layout + 1) % 3), -2, 2, &seed);
    double *cv = values_of(c), *av = values_of(a), *bv = values_of(b);
    int64_t count = count_of(t->y);
    double *y = zeros(count);
    double *da = zeros(count_of(t->a));
    double *db = zeros(count_of(t->b));
    gd_tensor *result = gd_where(c, a, b);
    gd_keep(result);
    double *dy = backward_random(ctx, result, &seed);
    for (int64_t i = 0; i < count; i++) {
        bool chosen = cv[broadcast_place(t->condition, t->y, i)] != 0;
        int64_t at = broadcast_place(t->a, t->y, i), bt = broadcast_place(t->b, t->y, i);
        y[i] = chosen ? av[at] : bv[bt];
        *(chosen ? &da[at] : &db[bt]) += dy[i];
    }
    ck_assert(same_shape(shape_of(result), t->y));
    assert_close(result, y, 0, 0, "where");
    if (count_of(t->a)) assert_close(gd_grad(a), da, 2, (double)count, "where");
    if (count_of(t->b)) assert_close(gd_grad(b), db, 2, (double)count, "where");
    free(cv), free(av), free(bv), free(y), free(da), free(db), free(dy);
    gd_step_end(ctx);
}

START_TEST(where_chooses)
{
    for (size_t t = 0; t < sizeof triples / sizeof *triples; t++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            for (int dtype = 0; dtype < 4; dtype++)
                check_where(&triples[t], (gd_dtype)dtype, layout);
}
END_TEST

/* What is not chosen has no influence, not even by way of 0 times infinity. */
START_TEST(where_hides_what_is_not_chosen)
{
    gd_tensor *c = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), (int32_t[]){1, 0});
    gd_tensor *a = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){1, NAN});
    gd_tensor_set_requires_grad(a, true);
    gd_tensor *y = gd_where(c, a, gd_tensor_create(ctx, GD_FLOAT32, 0, NULL));
    gd_keep(y);
    gd_backward_from(&y, 1, NULL);
    assert_close(y, (double[]){1, 0}, 0, 0, "where");
    assert_close(gd_grad(a), (double[]){1, 0}, 0, 0, "where");
}
END_TEST

/* ---- Threads, and refusals ---------------------------------------------------------------- */

/* Everything of one context with `threads` threads, as bytes. */
static void run_with_threads(int threads, shape b_shape, float *y, float *da, float *db)
{
    uint64_t seed = 12345;
    gd_context *own = gd_context_create(&(gd_context_options){.threads = threads});
    gd_tensor *a = random_leaf(own, GD_FLOAT32, GD_SHAPE(301, 407), 0.1, 2, &seed);
    gd_tensor *b = random_leaf(own, GD_FLOAT32, b_shape.ndim, b_shape.dim, 0.1, 2, &seed);
    gd_tensor *result = gd_div(gd_gelu(gd_mul(gd_exp(a), b)), gd_log(gd_add_scalar(b, 2)));
    gd_keep(result);
    free(backward_random(own, result, &seed));
    gd_tensor_read(result, y, 301 * 407 * sizeof(float));
    gd_tensor_read(gd_grad(a), da, 301 * 407 * sizeof(float));
    gd_tensor_read(gd_grad(b), db, (size_t)count_of(b_shape) * sizeof(float));
    ck_assert_no_error(own);
    gd_context_free(own);
}

START_TEST(threads_do_not_change_a_bit)
{
    enum { N = 301 * 407 };
    const shape shapes[] = {SHAPE(301, 407), SHAPE(407), SHAPE(301, 1), SCALAR_SHAPE};
    float *one = malloc(3 * N * sizeof(float)), *many = malloc(3 * N * sizeof(float));
    for (int s = 0; s < 4; s++) {
        memset(one, 0, 3 * N * sizeof(float));
        memset(many, 0, 3 * N * sizeof(float));
        run_with_threads(1, shapes[s], one, one + N, one + 2 * N);
        for (int threads = 2; threads < 5; threads++) {
            run_with_threads(threads, shapes[s], many, many + N, many + 2 * N);
            ck_assert_mem_eq(one, many, 3 * N * sizeof(float));
        }
    }
    free(one), free(many);
}
END_TEST

START_TEST(refusals)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 4));
    gd_tensor *ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(3, 4));
    ck_assert_ptr_null(gd_exp(ids));
    ck_assert_error(ctx, "exp: x is int32, wanted a real dtype");
    ck_assert_ptr_null(gd_mul(x, ids));
    ck_assert_error(ctx, "mul: b is int32, wanted a real dtype");
    ck_assert_ptr_null(gd_add(x, gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3))));
    ck_assert_error(ctx, "add: a [3, 4] and b [3] cannot be broadcast together");
    ck_assert_ptr_null(gd_sub(gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 0)),
                              gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 3))));
    ck_assert_error(ctx, "sub: a [2, 0] and b [2, 3] cannot be broadcast together");
    ck_assert_ptr_null(gd_div(x, gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(4))));
    ck_assert_error(ctx, "div: b is float64, but a is float32; use gd_cast");
    ck_assert_ptr_null(gd_where(x, x, x));
    ck_assert_error(ctx, "where: condition is float32, wanted int32");
    ck_assert_ptr_null(gd_where(ids, x, ids));
    ck_assert_error(ctx, "where: b is int32, wanted a real dtype");
    ck_assert_ptr_null(gd_where(ids, x, gd_tensor_create(ctx, GD_BFLOAT16, GD_SHAPE(4))));
    ck_assert_error(ctx, "where: b is bfloat16, but a is float32; use gd_cast");
    ck_assert_ptr_null(gd_where(ids, x, gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(5))));
    ck_assert_error(ctx, "where: condition [3, 4] and b [5] cannot be broadcast together");
    ck_assert_ptr_null(gd_add(x, NULL));
    ck_assert_error(ctx, "add: b is NULL, wanted a tensor");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("elementwise");
    TCase *one = tcase_create("one variable");
    tcase_add_checked_fixture(one, setup, teardown);
    tcase_add_test(one, functions_of_one_variable);
    tcase_add_test(one, special_values);
    tcase_add_test(one, flat_places_stop_infinite_gradients);
    tcase_set_timeout(one, 60);
    suite_add_tcase(suite, one);

    TCase *two = tcase_create("two variables");
    tcase_add_checked_fixture(two, setup, teardown);
    tcase_add_test(two, functions_of_two_variables);
    tcase_add_test(two, expanded_operands);
    tcase_add_test(two, gradients_over_dy);
    tcase_add_test(two, the_same_input_twice);
    tcase_add_test(two, maximum_of_ties_and_nan);
    tcase_add_test(two, division_by_zero);
    tcase_add_test(two, division_by_tiny_numbers);
    tcase_add_test(two, powers_of_tensors);
    tcase_add_test(two, comparisons_give_masks);
    tcase_add_test(two, masked_fill_hides_what_it_fills);
    tcase_add_test(two, where_chooses);
    tcase_add_test(two, where_hides_what_is_not_chosen);
    tcase_set_timeout(two, 60);
    suite_add_tcase(suite, two);

    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, threads_do_not_change_a_bit);
    tcase_add_test(all, refusals);
    tcase_set_timeout(all, 60);
    suite_add_tcase(suite, all);
    return check_main(suite);
}
