/* linear.c - y = x weight^T + bias, the layer. README.md derives the gradients. */
#include "derivation.h"
#include "kernel.h"
#include "gradus/ops.h"

GD_KERNEL_PAIR(linear)

/* x or dy as rows. */
static gd_tensor *as_rows(gd_tensor *x, const gd_tensor *y, int64_t columns)
{
    return shaped(x, GD_SHAPE(gd_row_count(y), columns));
}

/* dx = dy weight, dweight = dy^T x, dbias = the sum of dy's rows. */
static void linear_derivative(const gd_call *call)
{
    gd_tensor *x = call->input[0], *weight = call->input[1];
    const int64_t N = gd_tensor_dim(weight, 0), K = gd_tensor_dim(weight, 1);
    gd_tensor *dy = as_rows(call->doutput[0], x, N);
    if (call->dinput[0]) call->dinput[0] = shaped_as(gd_matmul(dy, weight), x);
    if (call->dinput[1]) call->dinput[1] = gd_matmul_with(dy, as_rows(x, x, K), true, false);
    if (call->dinput[2]) call->dinput[2] = sum_to(dy, call->input[2]);
}

static const gd_case cases[] = {
    {"rows4_5_to_7", NULL, GD_INPUTS({GD_DIMS(4, 5)}, {GD_DIMS(7, 5)}, {GD_DIMS(7)})},
    {"no_bias", NULL, GD_INPUTS({GD_DIMS(4, 5)}, {GD_DIMS(7, 5)}, GD_ABSENT)},
    {"vector", NULL, GD_INPUTS({GD_DIMS(9)}, {GD_DIMS(3, 9)}, {GD_DIMS(3)})},
    {"batch", NULL, GD_INPUTS({GD_DIMS(2, 3, 6)}, {GD_DIMS(5, 6)}, {GD_DIMS(5)})},
    {"one_to_many", NULL, GD_INPUTS({GD_DIMS(11, 1)}, {GD_DIMS(13, 1)}, {GD_DIMS(13)})},
    {"many_to_one", NULL, GD_INPUTS({GD_DIMS(11, 17)}, {GD_DIMS(1, 17)}, {GD_DIMS(1)})},
    {"larger", NULL, GD_INPUTS({GD_DIMS(3, 67, 33)}, {GD_DIMS(49, 33)}, {GD_DIMS(49)})},
    {"row", NULL, GD_INPUTS({GD_DIMS(264)}, {GD_DIMS(21, 264)}, {GD_DIMS(21)})},
    {"long_row", NULL, GD_INPUTS({GD_DIMS(1, 3088)}, {GD_DIMS(9, 3088)}, GD_ABSENT)},
    {"no_rows", NULL, GD_INPUTS({GD_DIMS(0, 5)}, {GD_DIMS(3, 5)}, {GD_DIMS(3)}),
     .may_be_empty = true},
};

const gd_op gd_op_linear = {
    .formula = "y = x weight^T + bias",
    .signature = "x[..., K] weight[N, K] bias[N]? -> y[..., N]",
    .backward_reads_inputs = GD_BIT(0) | GD_BIT(1),
    .dinput_float32 = GD_BIT(1) | GD_BIT(2),
    GD_KERNELS(linear),
    .derivative = linear_derivative,
    GD_CASES(cases),
};

gd_tensor *gd_linear(gd_tensor *x, gd_tensor *weight, gd_tensor *bias)
    GD_APPLIES(linear, NULL, x, weight, bias)
