/* unary.c - the functions of one variable: records, cases and public functions, made from the
 * table in unary.def. README.md has the derivatives. */
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"

static gd_status unary_shape(const gd_call *call, gd_shapes *out)
{
    if (gd_check_real(call, 0)) return GD_ERROR_ARGUMENT;
    out->output[0] = gd_spec_like(call->input[0]);
    return GD_OK;
}

static gd_status range_shape(const gd_call *call, gd_shapes *out)
{
    const double *range = call->args;
    if (!(range[0] <= range[1])) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "low is %g and high is %g, wanted low <= high",
                            range[0], range[1]);
    }
    return unary_shape(call, out);
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

/* The slopes of functions.h by ops, with the same limits. */

static gd_tensor *silu_slope(gd_tensor *x)
{
    gd_tensor *s = gd_sigmoid(x), *c = gd_clamp(x, -1000, 1000);
    return mul(s, plus(mul(c, minus(1, s)), 1));
}

static gd_tensor *mish_slope(gd_tensor *x)
{
    gd_tensor *t = gd_tanh(gd_softplus(x)), *c = gd_clamp(x, -1000, 1000);
    return add(t, mul(mul(c, minus(1, square(t))), gd_sigmoid(x)));
}

static gd_tensor *gelu_slope(gd_tensor *x)
{
    gd_tensor *c = gd_clamp(x, -100, 100);
    gd_tensor *density = times(gd_exp(times(square(c), -0.5)), 0.39894228040143267794);
    gd_tensor *cdf = plus(times(gd_erf(times(c, 0.70710678118654752440)), 0.5), 0.5);
    return add(cdf, mul(c, density));
}

static gd_tensor *gelu_tanh_slope(gd_tensor *x)
{
    const double k = 0.79788456080286535588, cubic = 0.044715;
    gd_tensor *c = gd_clamp(x, -20, 20), *cc = square(c);
    gd_tensor *t = gd_tanh(times(mul(c, plus(times(cc, cubic), 1)), k));
    gd_tensor *du = plus(times(cc, 3 * cubic * k), k);
    return times(plus(add(t, mul(mul(c, minus(1, square(t))), du)), 1), 0.5);
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
        .name = #op_name,                                            \
        .formula = op_formula,                                       \
        .inputs = 1,                                                 \
        .input_names = {"x"},                                        \
        .outputs = 1,                                                \
        .args_size = size,                                           \
        .plain_args = true,                                          \
        .backward_reads_inputs = (reads) == INPUT ? GD_BIT(0) : 0,   \
        .backward_reads_outputs = (reads) == OUTPUT ? GD_BIT(0) : 0, \
        .dinput_over_doutput = GD_BIT(0),                            \
        .same_bits = true,                                           \
        .zero_gradient = (reads) == STEPS,                           \
        .shape = op_shape,                                           \
        .forward = GD_ON_DEVICES(op_name##_forward),                 \
        .backward = GD_ON_DEVICES(op_name##_backward),               \
        .derivative = op_name##_derivative,                          \
        GD_CASES(op_name##_cases),                                   \
    };

#define UNARY(name, formula, y, dx, reads, low, high, low2, high2, kinks)               \
    GD_KERNEL(name##_forward)                                                           \
    GD_KERNEL(name##_backward)                                                          \
    static const gd_case name##_cases[] = {CASES(NULL, low, high, low2, high2, kinks)}; \
    RECORD(name, formula, reads, 0, unary_shape)                                        \
    gd_tensor *gd_##name(gd_tensor *x)                                                  \
    {                                                                                   \
        return gd_apply(&gd_op_##name, &x, 1, NULL);                                    \
    }

#define SCALAR(name, formula, y, dx, reads, low, high, low2, high2, kinks, p_of_cases)      \
    GD_KERNEL(name##_forward)                                                               \
    GD_KERNEL(name##_backward)                                                              \
    static const double name##_p[2] = {p_of_cases};                                         \
    static const gd_case name##_cases[] = {CASES(name##_p, low, high, low2, high2, kinks)}; \
    RECORD(name, formula, reads, sizeof name##_p, unary_shape)                              \
    gd_tensor *gd_##name(gd_tensor *x, double p)                                            \
    {                                                                                       \
        return gd_apply(&gd_op_##name, &x, 1, (const double[2]){p});                        \
    }

#define RANGE(name, formula, y, dx, reads, low, high, low2, high2, p_of_cases, q_of_cases) \
    GD_KERNEL(name##_forward)                                                              \
    GD_KERNEL(name##_backward)                                                             \
    static const double name##_p[2] = {p_of_cases, q_of_cases};                            \
    static const gd_case name##_cases[] = {CASES(name##_p, low, high, low2, high2, true)}; \
    RECORD(name, formula, reads, sizeof name##_p, range_shape)                             \
    gd_tensor *gd_##name(gd_tensor *x, double p, double q)                                 \
    {                                                                                      \
        return gd_apply(&gd_op_##name, &x, 1, (const double[2]){p, q});                    \
    }

#include "elementwise/unary.def"
