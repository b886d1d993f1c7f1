/* unary.c - the functions of one variable: records, cases and public functions, made from the
 * table in unary.def. README.md has the derivatives. */
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"

/* low and high of clamp. */
static gd_status check_range(const gd_call *call, gd_shapes *out)
{
    (void)out;
    const double *range = call->args;
    if (range[0] <= range[1]) return GD_OK;
    return gd_refuse(call, "low is %g and high is %g, wanted low <= high", range[0], range[1]);
}

/* ---- Cases, the same for all -------------------------------------------------------------- */

#define CASES(args, low, high, low2, high2, has_kinks)                                             \
    {"odd", args, GD_INPUTS({GD_UNIFORM(low, high), GD_DIMS(3, 5, 7)}), .kinks = has_kinks},       \
        {"range2", args, GD_INPUTS({GD_UNIFORM(low2, high2), GD_DIMS(2, 9)}), .kinks = has_kinks}, \
        {"scalar", args, GD_INPUTS({GD_UNIFORM(low, high), GD_SCALAR}), .kinks = has_kinks},       \
        {"length1", args, GD_INPUTS({GD_UNIFORM(low, high), GD_DIMS(1)}), .kinks = has_kinks},     \
        {"two_blocks", args, GD_INPUTS({GD_UNIFORM(low, high), GD_DIMS(3, 1367)}),                 \
         .kinks = has_kinks},                                                                      \
    {                                                                                              \
        "zero_rows", args, GD_INPUTS({GD_DIMS(0, 5)}), .may_be_empty = true                        \
    }

/* ---- Derivatives -------------------------------------------------------------------------- */

/* The slopes of functions.h by ops, with limits like theirs. For x gate(x) with gate(x) + gate(-x)
 * = 1 the slope at |x| is 1 - r, where r is that at -|x|. It is made of a small sigmoid, which
 * keeps its digits, as do all derivatives of it; 1 - gate(|x|) would have few. */

static gd_tensor *mirrored(gd_tensor *negative, gd_tensor *r)
{
    return gd_where(negative, r, minus(1, r));
}

/* -|x|, within the limits */
static gd_tensor *left_of(gd_tensor *negative, gd_tensor *x, double limit)
{
    gd_tensor *c = gd_clamp(x, -limit, limit);
    return gd_where(negative, c, gd_neg(c));
}

static gd_tensor *silu_slope(gd_tensor *x)
{
    gd_tensor *negative = below(x, 0), *a = left_of(negative, x, 1000), *s = gd_sigmoid(a);
    return mirrored(negative, mul(s, plus(mul(a, minus(1, s)), 1)));
}

/* 1 / (1 + x^2), and q^2 / (1 + q^2) for q = 1 / x where |x| > 1: finite at infinity, as its
 * slope is. */
static gd_tensor *atan_slope(gd_tensor *x)
{
    gd_tensor *large = above(gd_abs(x), 1);
    gd_tensor *q = gd_where(large, gd_reciprocal(gd_where(large, x, number(x, 1))), x);
    gd_tensor *qq = square(q);
    return over(gd_where(large, qq, number(x, 1)), plus(qq, 1));
}

/* With e = e^-|x| and s the sigmoid of x, the slope is t + x (1 - t^2) s, where t = q / (q + 2),
 * q = e (e + 2), for negative x, and else t = 1 - d, d = 2 e^2 / (1 + 2 e + 2 e^2): 1 - d (1 - x
 * (2 - d) s). */
static gd_tensor *mish_slope(gd_tensor *x)
{
    gd_tensor *negative = below(x, 0), *a = left_of(negative, x, 1000);
    gd_tensor *e = gd_exp(a), *q = mul(e, plus(e, 2)), *t = over(q, plus(q, 2));
    gd_tensor *ee = times(square(e), 2), *d = over(ee, plus(add(ee, times(e, 2)), 1));
    gd_tensor *s = gd_sigmoid(a), *left = add(t, mul(mul(a, minus(1, square(t))), s));
    gd_tensor *right = mul(d, plus(mul(mul(a, minus(2, d)), minus(1, s)), 1));
    return gd_where(negative, left, minus(1, right));
}

static gd_tensor *gelu_slope(gd_tensor *x)
{
    gd_tensor *c = gd_clamp(x, -100, 100);
    gd_tensor *density = times(gd_exp(times(square(c), -0.5)), 0.39894228040143267794);
    gd_tensor *cdf = plus(times(gd_erf(times(c, 0.70710678118654752440)), 0.5), 0.5);
    return add(cdf, mul(c, density));
}

/* The gate (1 + tanh(u)) / 2 is the sigmoid of 2 u. */
static gd_tensor *gelu_tanh_slope(gd_tensor *x)
{
    const double k = 1.59576912160573071176, cubic = 0.044715; /* k = 2 sqrt(2 / pi) */
    gd_tensor *negative = below(x, 0), *a = left_of(negative, x, 30), *aa = square(a);
    gd_tensor *s = gd_sigmoid(times(mul(a, plus(times(aa, cubic), 1)), k));
    gd_tensor *du = plus(times(aa, 3 * cubic * k), k);
    return mirrored(negative, mul(s, plus(mul(mul(a, minus(1, s)), du), 1)));
}

static gd_tensor *erf_slope(gd_tensor *x)
{
    return times(gd_exp(gd_neg(square(gd_clamp(x, -40, 40)))), 1.12837916709551257390);
}

#define D(op_name, slope)                                                                \
    static void op_name##_derivative(const gd_call *call)                                \
    {                                                                                    \
        gd_tensor *x = call->input[0], *y = call->output[0], *dy = call->doutput[0];     \
        const double *numbers = call->op->args_size ? call->args : (const double[2]){0}; \
        const double p = numbers[0], q = numbers[1];                                     \
        (void)x, (void)y, (void)dy, (void)p, (void)q;                                    \
        call->dinput[0] = slope;                                                         \
    }
#define D2(op_name, da, db)
#include "elementwise/derivatives.def"

/* ---- Records ------------------------------------------------------------------------------ */

enum { NOTHING, INPUT, OUTPUT, STEPS };

/* dx may be written over dy, as each element needs only the dy at its own place. */
#define RECORD(op_name, op_formula, reads, size, op_shape)           \
    const gd_op gd_op_##op_name = {                                  \
        .formula = op_formula,                                       \
        .signature = "x[...] -> y[...]",                             \
        .args_size = size,                                           \
        .plain_args = true,                                          \
        .backward_reads_inputs = (reads) == INPUT ? GD_BIT(0) : 0,   \
        .backward_reads_outputs = (reads) == OUTPUT ? GD_BIT(0) : 0, \
        .dinput_over_doutput = GD_BIT(0),                            \
        .zero_gradient = (reads) == STEPS,                           \
        .shape = op_shape,                                           \
        GD_KERNELS(op_name),                                         \
        .derivative = op_name##_derivative,                          \
        GD_CASES(op_name##_cases),                                   \
    };

#define UNARY(name, formula, y, dx, reads, low, high, low2, high2, kinks)               \
    GD_KERNEL_PAIR(name)                                                                \
    static const gd_case name##_cases[] = {CASES(NULL, low, high, low2, high2, kinks)}; \
    RECORD(name, formula, reads, 0, NULL)                                               \
    gd_tensor *gd_##name(gd_tensor *x) GD_APPLIES(name, NULL, x)

#define SCALAR(name, formula, y, dx, reads, low, high, low2, high2, kinks, p_of_cases)      \
    GD_KERNEL_PAIR(name)                                                                    \
    static const double name##_p[2] = {p_of_cases};                                         \
    static const gd_case name##_cases[] = {CASES(name##_p, low, high, low2, high2, kinks)}; \
    RECORD(name, formula, reads, sizeof name##_p, NULL)                                     \
    gd_tensor *gd_##name(gd_tensor *x, double p) GD_APPLIES(name, (const double[2]){p}, x)

#define RANGE(name, formula, y, dx, reads, low, high, low2, high2, p_of_cases, q_of_cases) \
    GD_KERNEL_PAIR(name)                                                                   \
    static const double name##_p[2] = {p_of_cases, q_of_cases};                            \
    static const gd_case name##_cases[] = {CASES(name##_p, low, high, low2, high2, true)}; \
    RECORD(name, formula, reads, sizeof name##_p, check_range)                             \
    gd_tensor *gd_##name(gd_tensor *x, double p, double q)                                 \
        GD_APPLIES(name, ((const double[2]){p, q}), x)

#include "elementwise/unary.def"
