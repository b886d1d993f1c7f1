/* masked_fill.c - y = value where the mask is set, else x. dx = dy where it is not, else 0. */
#include "derivation.h"
#include "gradus/ops.h"
#include "kernel.h"

GD_KERNEL_PAIR(masked_fill)

static void masked_fill_derivative(const gd_call *call)
{
    call->dinput[0] = unless(call->input[1], call->doutput[0], 0);
}

static const double filling = -2.5;
static const gd_case cases[] = {
    {"same", &filling, GD_INPUTS({GD_DIMS(5, 7)}, {GD_INDEX(2), GD_DIMS(5, 7)})},
    {"mask_row", &filling, GD_INPUTS({GD_DIMS(5, 7)}, {GD_INDEX(2), GD_DIMS(7)})},
    {"mask_column", &filling, GD_INPUTS({GD_DIMS(2, 5, 7)}, {GD_INDEX(2), GD_DIMS(5, 1)})},
    {"length1", &filling, GD_INPUTS({GD_DIMS(1)}, {GD_INDEX(1), GD_SCALAR})},
    {"two_blocks", &filling, GD_INPUTS({GD_DIMS(4, 1367)}, {GD_INDEX(2), GD_DIMS(1367)})},
    {"zero_rows", &filling, GD_INPUTS({GD_DIMS(0, 5)}, {GD_INDEX(2), GD_DIMS(5)}),
     .may_be_empty = true},
};

const gd_op gd_op_masked_fill = {
    .formula = "y = mask ? value : x",
    .signature = "x[...] mask:int32[*] -> y[...]",
    GD_ARGS(double),
    .backward_reads_inputs = GD_BIT(1),
    .dinput_over_doutput = GD_BIT(0),
    .strided = true,
    GD_KERNELS(masked_fill),
    .derivative = masked_fill_derivative,
    GD_CASES(cases),
};

gd_tensor *gd_masked_fill(gd_tensor *x, gd_tensor *mask, double value)
    GD_APPLIES(masked_fill, &value, x, mask)
