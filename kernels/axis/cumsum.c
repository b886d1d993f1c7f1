/* cumsum.c - the op cumsum: sums of all elements up to each. README.md has the derivation. */
#include "axis/axis.h"

GD_KERNEL_PAIR(cumsum)

/* dx_i = dy_i + ... + dy_n */
static void cumsum_derivative(const gd_call *call)
{
    const int axis = ((const gd_axis_args *)call->args)->axis;
    call->dinput[0] = gd_flip(gd_cumsum(gd_flip(call->doutput[0], &axis, 1), axis), &axis, 1);
}

static const gd_axis_args first = {.axis = 0}, second = {.axis = 1};

static const gd_case cases[] = {
    {"rows", &second, GD_INPUTS({GD_DIMS(3, 7)})},
    {"columns", &first, GD_INPUTS({GD_DIMS(9, 4)})},
    {"middle_axis", &second, GD_INPUTS({GD_DIMS(2, 6, 3)})},
    {"long", &second, GD_INPUTS({GD_DIMS(2, 300)})},
    {"tiny", &first, GD_INPUTS({GD_NORMAL(0, 1e-3), GD_DIMS(11)})},
    {"length1", &second, GD_INPUTS({GD_DIMS(4, 1)})},
    {"no_rows", &second, GD_INPUTS({GD_DIMS(0, 4)}), .may_be_empty = true},
};

const gd_option_range gd_axis_ranges[] = {GD_AXIS_RANGE(gd_axis_args, axis), {0}};

const gd_op gd_op_cumsum = {
    .formula = "y_i = x_0 + ... + x_i along an axis",
    .signature = "x[...] -> y[...]",
    GD_ARGS(gd_axis_args),
    .strided = true,
    .ranges = gd_axis_ranges,
    GD_KERNELS(cumsum),
    .derivative = cumsum_derivative,
    GD_CASES(cases),
};

gd_tensor *gd_cumsum(gd_tensor *x, int axis)
    GD_APPLIES(cumsum, ((gd_axis_args[]){gd_axis_args_of(x, axis)}), x)
