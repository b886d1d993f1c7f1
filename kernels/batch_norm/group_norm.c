/* group_norm.c - the op group_norm. README.md has the derivation. */
#include "batch_norm/group_norm.h"
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"

GD_KERNEL(group_norm_forward)
GD_KERNEL(group_norm_backward)

/* x [B, C, ...] -> y like x; saves mean and rstd [B, groups], in double for every dtype. */
static gd_status group_norm_shape(const gd_call *call, gd_shapes *out)
{
    const gd_group_norm_args *args = call->args;
    const gd_tensor *x = call->input[0];
    if (gd_tensor_ndim(x) < 2 || !gd_dtype_is_real(gd_tensor_dtype(x)))
        return gd_refuse(call, "x is %s, wanted a real [B, C, ...]", gd_kind(x).text);
    const int64_t C = gd_tensor_dim(x, 1);
    if (args->groups < 1 || C % args->groups)
        return gd_refuse(call, "groups is %lld, wanted a divisor of the %lld channels of x %s",
                         (long long)args->groups, (long long)C, gd_shape_text(x).text);
    if (!(args->eps >= 0)) return gd_refuse(call, "eps is %g, wanted 0 or more", args->eps);
    for (int i = 1; i < 3; i++) {
        const gd_tensor *t = call->input[i];
        if (!t || (gd_tensor_ndim(t) == 1 && gd_tensor_dim(t, 0) == C)) continue;
        return gd_refuse(call, "%s has shape %s, but x %s has %lld channels",
                         gd_input_name(call->op, i).text, gd_shape_text(t).text,
                         gd_shape_text(x).text, (long long)C);
    }
    if (gd_check_one_dtype(call)) return GD_ERROR_ARGUMENT;
    out->output[0] = gd_spec_like(x);
    out->save[0] = (gd_spec){GD_FLOAT64, 2, {gd_tensor_dim(x, 0), args->groups}};
    out->save[1] = out->save[0];
    return GD_OK;
}

/* layer_norm of each group, and a weight and a bias for each channel */
static void group_norm_definition(const gd_call *call)
{
    const gd_groups g = gd_groups_of(call);
    const double eps = ((const gd_group_norm_args *)call->args)->eps;
    gd_tensor *x = call->input[0];
    const int last = 2;
    gd_tensor *rows = gd_reshape(x, GD_SHAPE(gd_tensor_dim(x, 0), g.groups, g.size));
    gd_tensor *xhat = shaped_as(of_unit_square(centred(rows, &last, 1), &last, 1, eps), x);
    call->output[0] =
        scaled_and_shifted(xhat, by_channel(call->input[1], x), by_channel(call->input[2], x));
}

static const gd_group_norm_args two = {2, 1e-5}, one = {1, 1e-5}, three = {3, 0.5};

#define AROUND_HALF GD_NORMAL(0.5, 1)

static const gd_case group_norm_cases[] = {
    {"images", &two, GD_INPUTS({GD_DIMS(2, 4, 3, 5)}, {AROUND_HALF, GD_DIMS(4)}, {GD_DIMS(4)})},
    {"one_group", &one, GD_INPUTS({GD_DIMS(3, 5, 7)}, {AROUND_HALF, GD_DIMS(5)}, {GD_DIMS(5)})},
    {"each_channel", &three, GD_INPUTS({GD_DIMS(2, 3, 8)}, {AROUND_HALF, GD_DIMS(3)}, GD_ABSENT)},
    {"rows", &two, GD_INPUTS({GD_DIMS(3, 6)}, {AROUND_HALF, GD_DIMS(6)}, {GD_DIMS(6)})},
    {"no_weight", &two, GD_INPUTS({GD_DIMS(2, 4, 33)}, GD_ABSENT, GD_ABSENT)},
    {"packs", &two, GD_INPUTS({GD_DIMS(1, 6, 64)}, {AROUND_HALF, GD_DIMS(6)}, {GD_DIMS(6)})},
    {"far_from_zero", &two,
     GD_INPUTS({GD_NORMAL(50, 1), GD_DIMS(2, 4, 3)}, {AROUND_HALF, GD_DIMS(4)}, {GD_DIMS(4)})},
    {"no_examples", &two, GD_INPUTS({GD_DIMS(0, 4, 3)}, GD_ABSENT, GD_ABSENT),
     .may_be_empty = true},
};

const gd_op gd_op_group_norm = {
    .name = "group_norm",
    .formula = "y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps), of a group",
    .inputs = 3,
    .input_names = {"x", "weight", "bias"},
    .optional_inputs = GD_BIT(1) | GD_BIT(2),
    .outputs = 1,
    .saves = 2,
    .args_size = sizeof(gd_group_norm_args),
    .plain_args = true,
    .backward_reads_inputs = GD_BIT(0) | GD_BIT(1),
    .dinput_over_doutput = GD_BIT(0),
    .dinput_float32 = GD_BIT(1) | GD_BIT(2),
    .same_bits = true,
    .shape = group_norm_shape,
    .forward = GD_ON_DEVICES(group_norm_forward),
    .backward = GD_ON_DEVICES(group_norm_backward),
    .definition = group_norm_definition,
    GD_CASES(group_norm_cases),
};

gd_tensor *gd_group_norm(gd_tensor *x, int64_t groups, gd_tensor *weight, gd_tensor *bias,
                         double eps)
{
    const gd_group_norm_args args = {groups, eps};
    return gd_apply(&gd_op_group_norm, (gd_tensor *[]){x, weight, bias}, 3, &args);
}
