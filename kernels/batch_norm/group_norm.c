/* group_norm.c - the op group_norm. README.md has the derivation. */
#include "batch_norm/group_norm.h"
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"

GD_KERNEL_PAIR(group_norm)

/* Saves mean and rstd [B, groups], in double for every dtype. */
static gd_status group_norm_shape(const gd_call *call, gd_shapes *out)
{
    const gd_group_norm_args *args = call->args;
    const gd_tensor *x = call->input[0];
    const int64_t C = gd_tensor_dim(x, 1);
    if (args->groups < 1 || C % args->groups)
        return gd_refuse(call, "groups is %lld, wanted a divisor of the %lld channels of x %s",
                         (long long)args->groups, (long long)C, gd_shape_text(x).text);
    out->save[0].shape[1] = out->save[1].shape[1] = args->groups;
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
    .formula = "y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps), of a group",
    .signature = "x[B, C, ...] weight[C]? bias[C]? -> y[B, C, ...]; "
                 "mean:float64[B, 1] rstd:float64[B, 1]",
    GD_RANGES({"eps", GD_FIELD(gd_group_norm_args, eps), 0, INFINITY, "0 or more"}),
    GD_ARGS(gd_group_norm_args),
    .backward_reads_inputs = GD_BIT(0) | GD_BIT(1),
    .dinput_over_doutput = GD_BIT(0),
    .dinput_float32 = GD_BIT(1) | GD_BIT(2),
    .shape = group_norm_shape,
    GD_KERNELS(group_norm),
    .definition = group_norm_definition,
    GD_CASES(group_norm_cases),
};

gd_tensor *gd_group_norm(gd_tensor *x, int64_t groups, gd_tensor *weight, gd_tensor *bias,
                         double eps)
    GD_APPLIES(group_norm, (&(gd_group_norm_args){groups, eps}), x, weight, bias)
