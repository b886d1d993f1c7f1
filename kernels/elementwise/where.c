/* where.c - y = a where the condition holds, else b. */
#include "derivation.h"
#include "gradus/ops.h"
#include "kernel.h"

GD_KERNEL_PAIR(where)

static void where_derivative(const gd_call *call)
{
    gd_tensor *mask = call->input[0], *dy = call->doutput[0], *zero = number(dy, 0);
    if (call->dinput[1]) call->dinput[1] = sum_to(gd_where(mask, dy, zero), call->input[1]);
    if (call->dinput[2]) call->dinput[2] = sum_to(gd_where(mask, zero, dy), call->input[2]);
}

static const gd_case cases[] = {
    {"same", NULL, GD_INPUTS({GD_INDEX(2), GD_DIMS(5, 7)}, {GD_DIMS(5, 7)}, {GD_DIMS(5, 7)})},
    {"condition_row", NULL, GD_INPUTS({GD_INDEX(2), GD_DIMS(7)}, {GD_DIMS(5, 7)}, {GD_DIMS(5, 7)})},
    {"condition_column", NULL,
     GD_INPUTS({GD_INDEX(2), GD_DIMS(5, 1)}, {GD_DIMS(5, 7)}, {GD_DIMS(7)})},
    {"a_scalar", NULL, GD_INPUTS({GD_INDEX(2), GD_DIMS(5, 7)}, {GD_SCALAR}, {GD_DIMS(5, 7)})},
    {"b_scalar", NULL, GD_INPUTS({GD_INDEX(2), GD_DIMS(2, 5, 7)}, {GD_DIMS(5, 7)}, {GD_SCALAR})},
    {"all_outer", NULL, GD_INPUTS({GD_INDEX(2), GD_DIMS(2, 1, 1)}, {GD_DIMS(3, 1)}, {GD_DIMS(4)})},
    {"length1", NULL, GD_INPUTS({GD_INDEX(2), GD_DIMS(1)}, {GD_DIMS(1)}, {GD_DIMS(1)})},
    {"two_blocks", NULL,
     GD_INPUTS({GD_INDEX(2), GD_DIMS(4, 1367)}, {GD_DIMS(4, 1367)}, {GD_DIMS(1367)})},
    {"zero_rows", NULL, GD_INPUTS({GD_INDEX(2), GD_DIMS(0, 5)}, {GD_DIMS(5)}, {GD_DIMS(0, 5)}),
     .may_be_empty = true},
};

const gd_op gd_op_where = {
    .formula = "y = condition ? a : b",
    .signature = "condition:int32[*] a:any[*] b:any[*] -> y[*]", /* int32 is moved as float32 is */
    .backward_reads_inputs = GD_BIT(0),
    .strided = true,
    GD_KERNELS(where),
    .derivative = where_derivative,
    GD_CASES(cases),
};

gd_tensor *gd_where(gd_tensor *condition, gd_tensor *a, gd_tensor *b)
    GD_APPLIES(where, NULL, condition, a, b)
