/* layer_norm.c - the op. README.md has the derivation. */
#include "layer_norm/layer_norm.h"
#include "derivation.h"
#include "gradus/ops.h"
#include "kernel.h"

GD_KERNEL_PAIR(layer_norm)

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

/* mean and rstd are saved in double for every dtype: far from 0 the rounding error of a float32
 * mean is as large as the differences of the x's. */
const gd_op gd_op_layer_norm = {
    .formula = "y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps)",
    .signature = "x[..., N] weight[N]? bias[N]? -> y[..., N]; mean:float64[...] rstd:float64[...]",
    GD_ARGS(gd_layer_norm_args),
    .backward_reads_inputs = GD_BIT(0) | GD_BIT(1),
    .dinput_over_doutput = GD_BIT(0),
    .dinput_float32 = GD_BIT(1) | GD_BIT(2),
    GD_RANGES({"eps", GD_FIELD(gd_layer_norm_args, eps), 0, INFINITY, "0 or more"}),
    GD_KERNELS(layer_norm),
    .definition = layer_norm_definition,
    GD_CASES(layer_norm_cases),
};

gd_tensor *gd_layer_norm(gd_tensor *x, gd_tensor *weight, gd_tensor *bias, double eps)
    GD_APPLIES(layer_norm, &(gd_layer_norm_args){eps}, x, weight, bias)
