/* unary.c - the functions of one variable: records, cases and public functions, made from the
 * table in unary.def. README.md has the derivatives. */
#include "arguments.h"
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
