/* masked_fill.c - y = value where the mask is set, else x. dx = dy where it is not, else 0. */
#include "arguments.h"
#include "derivation.h"
#include "elementwise/broadcast.h"
#include "gradus/ops.h"

GD_KERNEL(masked_fill_forward)
GD_KERNEL(masked_fill_backward)

static gd_status masked_fill_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *x = call->input[0], *mask = call->input[1];
    const gd_spec *y = out->output;
    if (gd_check_real(call, 0)) return GD_ERROR_ARGUMENT;
    if (gd_tensor_dtype(mask) != GD_INT32)
        return gd_refuse(call, "mask is %s, wanted int32", gd_dtype_name(gd_tensor_dtype(mask)));
    if (gd_tensor_ndim(mask) > gd_tensor_ndim(x) || gd_broadcast_shape(call, out) ||
        y->ndim != gd_tensor_ndim(x) ||
        memcmp(y->shape, gd_tensor_shape(x), (size_t)y->ndim * sizeof(int64_t)))
        return gd_refuse(call, "mask %s does not broadcast to x %s", gd_shape_text(mask).text,
                         gd_shape_text(x).text);
    return GD_OK;
}

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
    .name = "masked_fill",
    .formula = "y = mask ? value : x",
    .inputs = 2,
    .input_names = {"x", "mask"},
    .outputs = 1,
    .args_size = sizeof(double),
    .plain_args = true,
    .backward_reads_inputs = GD_BIT(1),
    .dinput_over_doutput = GD_BIT(0),
    .same_bits = true,
    .strided = true,
    .shape = masked_fill_shape,
    .forward = GD_ON_DEVICES(masked_fill_forward),
    .backward = GD_ON_DEVICES(masked_fill_backward),
    .derivative = masked_fill_derivative,
    GD_CASES(cases),
};

gd_tensor *gd_masked_fill(gd_tensor *x, gd_tensor *mask, double value)
{
    return gd_apply(&gd_op_masked_fill, (gd_tensor *[]){x, mask}, 2, &value);
}
