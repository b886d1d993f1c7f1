/* layer_norm.c - the op. README.md has the derivation. */
#include "layer_norm/layer_norm.h"
#include "derivation.h"
#include "gradus/ops.h"
#include "arguments.h"

GD_KERNEL(layer_norm_forward)
GD_KERNEL(layer_norm_backward)

/* weight or bias: absent, or [N] */
static gd_status check_vector(const gd_call *call, int i)
{
    const gd_text name = gd_input_name(call->op, i);
    const gd_tensor *t = call->input[i], *x = call->input[0];
    if (!t) return GD_OK;
    if (gd_tensor_ndim(t) != 1 || gd_tensor_dim(t, 0) != gd_tensor_dim(x, -1))
        return gd_refuse(call, "%s has shape %s, but the last dimension of x %s is %lld", name.text,
                         gd_shape_text(t).text, gd_shape_text(x).text,
                         (long long)gd_tensor_dim(x, -1));
    if (gd_tensor_dtype(t) != gd_tensor_dtype(x))
        return gd_refuse(call, "%s is %s, wanted the dtype of x, %s", name.text,
                         gd_dtype_name(gd_tensor_dtype(t)), gd_dtype_name(gd_tensor_dtype(x)));
    return GD_OK;
}

/* x [..., N] -> y like x; saves mean and rstd [...], in double for every dtype: far from 0 the
 * rounding error of a float32 mean is as large as the differences of the x's. */
static gd_status layer_norm_shape(const gd_call *call, gd_shapes *out)
{
    const gd_layer_norm_args *args = call->args;
    const gd_tensor *x = call->input[0];
    if (gd_tensor_ndim(x) < 1 || !gd_dtype_is_real(gd_tensor_dtype(x)))
        return gd_refuse(call, "x is %s, wanted a real [..., N]", gd_kind(x).text);
    if (!(args->eps >= 0)) return gd_refuse(call, "eps is %g, wanted 0 or more", args->eps);
    gd_status status = check_vector(call, 1);
    if (!status) status = check_vector(call, 2);
    if (status) return status;
    out->output[0] = gd_spec_like(x);
    out->save[0] = gd_spec_like(x);
    out->save[0].ndim--;
    out->save[0].dtype = GD_FLOAT64;
    out->save[1] = out->save[0];
    return GD_OK;
}

/* y = (x - mean) rstd weight + bias */
static void layer_norm_definition(const gd_call *call)
{
    const int last = gd_tensor_ndim(call->input[0]) - 1;
    const double eps = ((const gd_layer_norm_args *)call->args)->eps;
    gd_tensor *xhat = of_unit_square(centred(call->input[0], &last, 1), &last, 1, eps);
    call->output[0] = scaled_and_shifted(xhat, call->input[1], call->input[2]);
}

static const gd_layer_norm_args usual = {1e-5}, large_eps = {0.5};

#define AROUND_HALF GD_NORMAL(0.5, 1)

static const gd_case layer_norm_cases[] = {
    {"rows4_cols64", &usual,
     GD_INPUTS({GD_DIMS(4, 64)}, {AROUND_HALF, GD_DIMS(64)}, {GD_DIMS(64)})},
    {"rows2x3_cols7", &usual,
     GD_INPUTS({GD_DIMS(2, 3, 7)}, {AROUND_HALF, GD_DIMS(7)}, {GD_DIMS(7)})},
    {"no_weight_no_bias", &usual, GD_INPUTS({GD_DIMS(3, 17)}, GD_ABSENT, GD_ABSENT)},
    {"no_bias", &usual, GD_INPUTS({GD_DIMS(70, 5)}, {AROUND_HALF, GD_DIMS(5)}, GD_ABSENT)},
    {"far_from_zero", &usual,
     GD_INPUTS({GD_NORMAL(50, 1), GD_DIMS(3, 33)}, {AROUND_HALF, GD_DIMS(33)}, {GD_DIMS(33)})},
    {"small_x_large_eps", &large_eps,
     GD_INPUTS({GD_NORMAL(0, 0.1), GD_DIMS(9)}, {AROUND_HALF, GD_DIMS(9)}, {GD_DIMS(9)})},
    {"no_rows", &usual, GD_INPUTS({GD_DIMS(0, 4)}, GD_ABSENT, GD_ABSENT), .may_be_empty = true},
};

const gd_op gd_op_layer_norm = {
    .name = "layer_norm",
    .formula = "y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps)",
    .inputs = 3,
    .input_names = {"x", "weight", "bias"},
    .optional_inputs = GD_BIT(1) | GD_BIT(2),
    .outputs = 1,
    .saves = 2,
    .args_size = sizeof(gd_layer_norm_args),
    .plain_args = true,
    .backward_reads_inputs = GD_BIT(0) | GD_BIT(1),
    .dinput_over_doutput = GD_BIT(0),
    .dinput_float32 = GD_BIT(1) | GD_BIT(2),
    .same_bits = true,
    .shape = layer_norm_shape,
    .forward = GD_ON_DEVICES(layer_norm_forward),
    .backward = GD_ON_DEVICES(layer_norm_backward),
    .definition = layer_norm_definition,
    GD_CASES(layer_norm_cases),
};

gd_tensor *gd_layer_norm(gd_tensor *x, gd_tensor *weight, gd_tensor *bias, double eps)
{
    gd_layer_norm_args args = {eps};
    return gd_apply(&gd_op_layer_norm, (gd_tensor *[]){x, weight, bias}, 3, &args);
}
