/* test.c - functions of one variable against formulas in double: values, slopes, NaN,
 * infinity and the edges of their domains. Functions of two variables are in test_broadcast.c. */
#include "one_context.h"

/* ---- Functions of one variable ------------------------------------------------------------ */

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

/* The op, its value and its slope, by other formulas than the kernels' where there are any. */
#define FUNCTIONS(F)                                                                               \
    F(neg, gd_neg(x), -x, -1, -3, 3)                                                               \
    F(scale, gd_scale(x, -1.5), -1.5 * x, -1.5, -3, 3)                                             \
    F(add_scalar, gd_add_scalar(x, 0.25), x + 0.25, 1, -3, 3)                                      \
    F(pow_0, gd_pow(x, 0), 1, 0, -3, 3)                                                            \
    F(pow_1, gd_pow(x, 1), x, 1, -3, 3)                                                            \
    F(pow_2, gd_pow(x, 2), x *x, 2 * x, -3, 3)                                                     \
    F(pow_3, gd_pow(x, 3), x *x *x, 3 * x * x, -3, 3)                                              \
    F(pow_half, gd_pow(x, 0.5), sqrt(x), 0.5 / sqrt(x), 0.1, 4)                                    \
    F(pow_minus_1, gd_pow(x, -1), 1 / x, -1 / (x * x), -3, -0.2)                                   \
    F(exp, gd_exp(x), exp(x), exp(x), -4, 4)                                                       \
    F(log, gd_log(x), log(x), 1 / x, 0.1, 9)                                                       \
    F(sqrt, gd_sqrt(x), sqrt(x), 0.5 / sqrt(x), 0.1, 9)                                            \
    F(rsqrt, gd_rsqrt(x), 1 / sqrt(x), -0.5 / (x * sqrt(x)), 0.1, 9)                               \
    F(sin, gd_sin(x), sin(x), cos(x), -9, 9)                                                       \
    F(cos, gd_cos(x), cos(x), -sin(x), -9, 9)                                                      \
    F(tanh, gd_tanh(x), tanh(x), 1 / (cosh(x) * cosh(x)), -3, 3)                                   \
    F(sigmoid, gd_sigmoid(x), logistic(x), logistic(x) * logistic(-x), -6, 6)                      \
    F(relu, gd_relu(x), x > 0 ? x : 0, x > 0 ? 1 : 0, -2, 2)                                       \
    F(gelu, gd_gelu(x), x *(1 + erf(x / sqrt(2))) / 2,                                             \
      (1 + erf(x / sqrt(2))) / 2 + x * density(x), -4, 4)                                          \
    F(gelu_tanh, gd_gelu_tanh(x), x *logistic(2 * cubic(x)),                                       \
      logistic(2 * cubic(x)) +                                                                     \
          x * logistic(2 * cubic(x)) * logistic(-2 * cubic(x)) * 2 * cubic_slope(x),               \
      -4, 4)                                                                                       \
    F(silu, gd_silu(x), x *logistic(x), logistic(x) + x * logistic(x) * logistic(-x), -6, 6)       \
    F(log1p, gd_log1p(x), log(1 + x), 1 / (1 + x), -0.5, 9)                                        \
    F(expm1, gd_expm1(x), 2 * exp(x / 2) * sinh(x / 2), exp(x), -2, 3)                             \
    F(erf, gd_erf(x), 1 - erfc(x), 2 / sqrt(acos(-1)) * exp(-x * x), -2, 2)                        \
    F(softplus, gd_softplus(x), log(1 + exp(x)), logistic(x), -6, 6)                               \
    F(clamp, gd_clamp(x, -1, 1.5), x<-1 ? -1 : x> 1.5 ? 1.5 : x, x<-1 || x> 1.5 ? 0 : 1, -3, 3)    \
    F(abs, gd_abs(x), fabs(x), x > 0 ? 1 : -1, -2, 2)                                              \
    F(hardtanh, gd_hardtanh(x, -1, 1.5), fmin(fmax(x, -1), 1.5), x <= -1 || x >= 1.5 ? 0 : 1, -3,  \
      3)                                                                                           \
    F(leaky_relu, gd_leaky_relu(x, 0.125), fmax(x, 0) + fmin(x, 0) / 8, x > 0 ? 1 : 0.125, -3, 3)  \
    F(leaky_relu_0, gd_leaky_relu(x, 0), fmax(x, 0), x > 0 ? 1 : 0, -3, 3)                         \
    F(elu, gd_elu(x, 0.75), x > 0 ? x : 1.5 * exp(x / 2) * sinh(x / 2), x > 0 ? 1 : 0.75 * exp(x), \
      -6, 3)                                                                                       \
    F(mish, gd_mish(x), x *tanh(log1p(exp(x))),                                                    \
      tanh(log1p(exp(x))) + x * logistic(x) / pow(cosh(log1p(exp(x))), 2), -6, 6)                  \
    F(reciprocal, gd_reciprocal(x), pow(x, -1), -pow(x, -2), 0.2, 9)                               \
    F(atan, gd_atan(x), atan2(x, 1), 1 / (1 + x * x), -9, 9)                                       \
    F(sign, gd_sign(x), x > 0 ? 1 : -1, 0, -2, 2)                                                  \
    F(floor, gd_floor(x), x - (fmod(fmod(x, 1) + 1, 1)), 0, -9, 9)                                 \
    F(ceil, gd_ceil(x), x + (fmod(1 - fmod(x, 1), 1)), 0, -9, 9)                                   \
    F(round, gd_round(x), nearbyint(x), 0, -9, 9)

typedef struct function {
    const char *name;
    gd_tensor *(*run)(gd_tensor *x);
    double low, high;
} function;

#define RUN(name, call, value, slope, low, high) \
    static gd_tensor *run_##name(gd_tensor *x)   \
    {                                            \
        return call;                             \
    }
FUNCTIONS(RUN)

#define ENTRY(name, call, value, slope, low, high) {#name, run_##name, low, high},
static const function functions[] = {FUNCTIONS(ENTRY)};
enum { FUNCTION_COUNT = sizeof functions / sizeof *functions };

/* Value and slope of function `which` at x. */
static void evaluate(int which, double x, double *value, double *slope)
{
    const double values[] = {
#define VALUE(name, call, value, slope, low, high) value,
        FUNCTIONS(VALUE)};
    const double slopes[] = {
#define SLOPE(name, call, value, slope, low, high) slope,
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

TEST(functions_of_one_variable)
{
    const shape shapes[] = {SHAPE(3, 5, 7), SHAPE(1), SCALAR_SHAPE, SHAPE(2, 2103), SHAPE(4, 0)};
    for (int which = 0; which < FUNCTION_COUNT; which++)
        for (int s = 0; s < 5; s++)
            for (int layout = 0; layout < LAYOUTS; layout++)
                for (int dtype = 0; dtype < 4; dtype++)
                    check_function(which, (gd_dtype)dtype, shapes[s], layout);
}

/* ---- Special values ----------------------------------------------------------------------- */

typedef struct special {
    const char *name;
    gd_tensor *(*run)(gd_tensor *x);
    double x, y, slope;
} special;

static const double inf = INFINITY, nan_value = NAN;

TEST(special_values)
{
    const special table[] = {
        {"exp", run_exp, -inf, 0, 0},
        {"exp", run_exp, inf, inf, inf},
        {"exp", run_exp, nan_value, nan_value, nan_value},
        {"log", run_log, 0, -inf, inf},
        {"log", run_log, inf, inf, 0},
        {"log", run_log, -inf, nan_value, 0},
        {"sqrt", run_sqrt, 0, 0, inf},
        {"sqrt", run_sqrt, inf, inf, 0},
        {"sqrt", run_sqrt, -1, nan_value, nan_value},
        {"rsqrt", run_rsqrt, 0, inf, -inf},
        {"rsqrt", run_rsqrt, inf, 0, 0},
        {"sin", run_sin, inf, nan_value, nan_value},
        {"tanh", run_tanh, inf, 1, 0},
        {"tanh", run_tanh, -inf, -1, 0},
        {"sigmoid", run_sigmoid, inf, 1, 0},
        {"sigmoid", run_sigmoid, -inf, 0, 0},
        {"sigmoid", run_sigmoid, -1e30, 0, 0},
        {"sigmoid", run_sigmoid, 1e30, 1, 0},
        {"sigmoid", run_sigmoid, nan_value, nan_value, nan_value},
        {"silu", run_silu, 1e30, 1e30, 1},
        {"silu", run_silu, -1e30, 0, 0},
        {"silu", run_silu, nan_value, nan_value, nan_value},
        {"gelu", run_gelu, 1e30, 1e30, 1},
        {"gelu", run_gelu, -1e30, 0, 0},
        {"gelu", run_gelu, nan_value, nan_value, nan_value},
        {"gelu_tanh", run_gelu_tanh, 1e30, 1e30, 1},
        {"gelu_tanh", run_gelu_tanh, -1e30, 0, 0},
        {"gelu_tanh", run_gelu_tanh, nan_value, nan_value, nan_value},
        {"silu", run_silu, -inf, 0, 0},
        {"silu", run_silu, inf, inf, 1},
        {"gelu", run_gelu, -inf, 0, 0},
        {"gelu", run_gelu, inf, inf, 1},
        {"gelu_tanh", run_gelu_tanh, -inf, 0, 0},
        {"gelu_tanh", run_gelu_tanh, inf, inf, 1},
        {"gelu_tanh", run_gelu_tanh, 3.4e38, 3.4e38, 1},
        {"gelu_tanh", run_gelu_tanh, -3.4e38, 0, 0},
        {"softplus", run_softplus, inf, inf, 1},
        {"softplus", run_softplus, -inf, 0, 0},
        {"softplus", run_softplus, 1e30, 1e30, 1},
        {"softplus", run_softplus, nan_value, nan_value, nan_value},
        {"erf", run_erf, inf, 1, 0},
        {"erf", run_erf, nan_value, nan_value, nan_value},
        {"log1p", run_log1p, -1, -inf, inf},
        {"log1p", run_log1p, 1e-20, 1e-20, 1},
        {"expm1", run_expm1, -inf, -1, 0},
        {"expm1", run_expm1, 1e-20, 1e-20, 1},
        {"clamp", run_clamp, 1.5, 1.5, 1},
        {"clamp", run_clamp, inf, 1.5, 0},
        {"clamp", run_clamp, nan_value, nan_value, 0},
        {"abs", run_abs, nan_value, nan_value, 0},
        {"relu", run_relu, 0, 0, 0},
        {"relu", run_relu, inf, inf, 1},
        {"relu", run_relu, -inf, 0, 0},
        {"relu", run_relu, nan_value, nan_value, 1},
        {"abs", run_abs, 0, 0, 0},
        {"abs", run_abs, -inf, inf, -1},
        {"hardtanh", run_hardtanh, 1.5, 1.5, 0},
        {"hardtanh", run_hardtanh, -1, -1, 0},
        {"hardtanh", run_hardtanh, -inf, -1, 0},
        {"hardtanh", run_hardtanh, nan_value, nan_value, 0},
        {"leaky_relu", run_leaky_relu, 0, 0, 0.125},
        {"leaky_relu", run_leaky_relu, -inf, -inf, 0.125},
        {"leaky_relu", run_leaky_relu, inf, inf, 1},
        {"leaky_relu", run_leaky_relu, nan_value, nan_value, 0.125},
        {"leaky_relu_0", run_leaky_relu_0, inf, inf, 1},
        {"leaky_relu_0", run_leaky_relu_0, -inf, nan_value, 0},
        {"elu", run_elu, 0, 0, 0.75},
        {"elu", run_elu, -1e-20, -0.75e-20, 0.75},
        {"elu", run_elu, -inf, -0.75, 0},
        {"elu", run_elu, inf, inf, 1},
        {"elu", run_elu, 1e30, 1e30, 1},
        {"elu", run_elu, nan_value, nan_value, 1},
        {"mish", run_mish, -inf, 0, 0},
        {"mish", run_mish, inf, inf, 1},
        {"mish", run_mish, -1e30, 0, 0},
        {"mish", run_mish, 1e30, 1e30, 1},
        {"mish", run_mish, nan_value, nan_value, nan_value},
        {"reciprocal", run_reciprocal, 0, inf, -inf},
        {"reciprocal", run_reciprocal, -inf, 0, 0},
        {"reciprocal", run_reciprocal, nan_value, nan_value, nan_value},
        {"atan", run_atan, inf, acos(0), 0},
        {"atan", run_atan, -inf, -acos(0), 0},
        {"atan", run_atan, 0, 0, 1},
        {"atan", run_atan, nan_value, nan_value, nan_value},
        {"sign", run_sign, 0, 0, 0},
        {"sign", run_sign, -inf, -1, 0},
        {"sign", run_sign, nan_value, 0, 0},
        {"floor", run_floor, -0.25, -1, 0},
        {"floor", run_floor, 3, 3, 0},
        {"floor", run_floor, -inf, -inf, 0},
        {"floor", run_floor, nan_value, nan_value, 0},
        {"ceil", run_ceil, 0.25, 1, 0},
        {"ceil", run_ceil, nan_value, nan_value, 0},
        {"round", run_round, 0.5, 0, 0},
        {"round", run_round, 1.5, 2, 0},
        {"round", run_round, 2.5, 2, 0},
        {"round", run_round, -2.5, -2, 0},
        {"round", run_round, 8388609, 8388609, 0},
        {"round", run_round, inf, inf, 0},
        {"round", run_round, nan_value, nan_value, 0},
        {"pow_0", run_pow_0, 0, 1, 0},
        {"pow_0", run_pow_0, nan_value, 1, 0},
        {"pow_1", run_pow_1, 0, 0, 1},
        {"pow_2", run_pow_2, 0, 0, 0},
        {"pow_3", run_pow_3, 0, 0, 0},
        {"pow_3", run_pow_3, -2, -8, 12},
        {"pow_half", run_pow_half, 0, 0, inf},
        {"pow_half", run_pow_half, -1, nan_value, nan_value},
        {"pow_half", run_pow_half, -inf, inf, 0},
        {"pow_minus_1", run_pow_minus_1, 0, inf, -inf},
        {"pow_minus_1", run_pow_minus_1, -inf, 0, 0},
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

/* relu and abs let dy be anything where they are flat: 0 times infinity must not come out. */
TEST(flat_places_stop_infinite_gradients)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){-1, 0});
    gd_tensor *u = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){INFINITY, INFINITY});
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *y = gd_relu(x);
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &u});
    assert_close(gd_grad(x), (double[]){0, 0}, 0, 0, "relu");
}

/* A number that float32 cannot hold is the nearest, and neither 0 nor infinite: 0 times it is 0. */
TEST(parameters_beyond_float32)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){0, 2});
    assert_close(gd_scale(x, 1e300), (double[]){0, INFINITY}, 0, 0, "scale");
    assert_close(gd_leaky_relu(x, 1e300), (double[]){0, 2}, 0, 0, "leaky_relu");
    assert_close(gd_elu(x, -1e300), (double[]){0, 2}, 0, 0, "elu");
    assert_close(gd_pow(x, 1e-300), (double[]){0, 1}, 0, 0, "pow");
    assert_close(gd_div(gd_sub(x, x), gd_clamp(gd_sub(x, x), 1e-300, INFINITY)), (double[]){0, 0},
                 0, 0, "a quotient by clamp");
    gd_tensor *zeros = gd_sub(x, x);
    assert_close(gd_cosine_similarity(zeros, zeros, 0, 1e-300), (double[]){0}, 0, 0, "cosine");
}

CHECK_MAIN_WITHIN("elementwise", setup, teardown)
