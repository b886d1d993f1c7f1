/* softmax.c - the ops softmax and log_softmax. README.md has the derivations. */
#include "softmax/softmax.h"
#include "derivation.h"
#include "gradus/ops.h"

GD_KERNEL_PAIR(softmax)
GD_KERNEL_PAIR(log_softmax)

/* ---- By ops ------------------------------------------------------------------------------- */

/* x - max(x). The result does not depend on the maximum, so it is detached. */
static gd_tensor *shifted(gd_tensor *x, int axis)
{
    return sub(x, gd_detach(gd_max(x, &axis, 1, true)));
}

static void softmax_definition(const gd_call *call)
{
    const int axis = ((const gd_softmax_args *)call->args)->axis;
    gd_tensor *e = gd_exp(shifted(call->input[0], axis));
    call->output[0] = over(e, gd_sum(e, &axis, 1, true));
}

/* dx = y (dy - sum(dy y)) */
static void softmax_derivative(const gd_call *call)
{
    const int axis = ((const gd_softmax_args *)call->args)->axis;
    gd_tensor *y = call->output[0], *dy = call->doutput[0];
    call->dinput[0] = mul(y, sub(dy, gd_sum(mul(dy, y), &axis, 1, true)));
}

static void log_softmax_definition(const gd_call *call)
{
    const int axis = ((const gd_softmax_args *)call->args)->axis;
    gd_tensor *z = shifted(call->input[0], axis);
    call->output[0] = sub(z, gd_log(gd_sum(gd_exp(z), &axis, 1, true)));
}

/* dx = dy - e^y sum(dy) */
static void log_softmax_derivative(const gd_call *call)
{
    const int axis = ((const gd_softmax_args *)call->args)->axis;
    gd_tensor *dy = call->doutput[0];
    call->dinput[0] = sub(dy, mul(gd_exp(call->output[0]), gd_sum(dy, &axis, 1, true)));
}

static const gd_softmax_args first = {0}, second = {1};

static const gd_case softmax_cases[] = {
    {"rows5_cols17", &second, GD_INPUTS({GD_DIMS(5, 17)})},
    {"middle_axis", &second, GD_INPUTS({GD_DIMS(2, 7, 3)})},
    {"first_axis", &first, GD_INPUTS({GD_DIMS(9, 4)})},
    {"far_from_zero", &second, GD_INPUTS({GD_NORMAL(800, 1), GD_DIMS(3, 8)})},
    {"spread", &second, GD_INPUTS({GD_NORMAL(0, 3), GD_DIMS(3, 33)})},
    {"two", &first, GD_INPUTS({GD_DIMS(2)})},
    {"no_rows", &second, GD_INPUTS({GD_DIMS(0, 4)}), .may_be_empty = true},
};

/* In both records. */
#define SOFTMAX(op)                                                                       \
    .signature = "x[...] -> y[...]", GD_ARGS(gd_softmax_args),                            \
    GD_RANGES(GD_AXIS_RANGE(gd_softmax_args, axis)), .backward_reads_outputs = GD_BIT(0), \
    GD_KERNELS(op), .definition = op##_definition, .derivative = op##_derivative,         \
    GD_CASES(softmax_cases)

const gd_op gd_op_softmax = {
    .formula = "y_i = exp(x_i) / sum_j exp(x_j)",
    SOFTMAX(softmax),
};

const gd_op gd_op_log_softmax = {
    .formula = "y_i = x_i - log(sum_j exp(x_j))",
    SOFTMAX(log_softmax),
};

gd_tensor *gd_softmax(gd_tensor *x, int axis)
    GD_APPLIES(softmax, (gd_softmax_args[]){{gd_axis_from_start(x, axis)}}, x)

gd_tensor *gd_log_softmax(gd_tensor *x, int axis)
    GD_APPLIES(log_softmax, (gd_softmax_args[]){{gd_axis_from_start(x, axis)}}, x)
