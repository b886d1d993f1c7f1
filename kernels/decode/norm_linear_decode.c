/* norm_linear_decode.c - the op: a linear layer with the sum and the norm in front of it, for one
 * token. README.md says what it replaces. */
#include "decode/norm_linear_decode.h"
#include "arguments.h"

#include <math.h>

GD_KERNEL(norm_linear_decode_forward)

static gd_status check_shape(const gd_call *call, int i, bool fits, const char *wanted)
{
    if (fits) return GD_OK;
    return gd_refuse(call, "%s has shape %s, wanted %s for x %s", call->op->input_names[i],
                     gd_shape_text(call->input[i]).text, wanted,
                     gd_shape_text(call->input[0]).text);
}

static gd_status norm_linear_decode_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *x = call->input[0], *residual = call->input[1], *norm = call->input[2];
    const gd_tensor *weight = call->input[3];
    const double eps = ((const norm_linear_decode_args *)call->args)->eps;
    if (gd_check_one_dtype(call)) return GD_ERROR_ARGUMENT;
    if (gd_tensor_ndim(x) < 1 || gd_tensor_dim(x, -1) < 1)
        return gd_refuse(call, "x has shape %s, wanted [..., K], K > 0", gd_shape_text(x).text);
    const int64_t K = gd_tensor_dim(x, -1);
    bool same = gd_tensor_ndim(x) == gd_tensor_ndim(residual);
    for (int d = 0; same && d < gd_tensor_ndim(x); d++)
        same = gd_tensor_dim(x, d) == gd_tensor_dim(residual, d);
    if (check_shape(call, 1, same, "the same") ||
        check_shape(call, 2, gd_tensor_ndim(norm) == 1 && gd_tensor_dim(norm, 0) == K, "[K]") ||
        check_shape(call, 3,
                    gd_tensor_ndim(weight) == 2 && gd_tensor_dim(weight, 0) > 0 &&
                        gd_tensor_dim(weight, 1) == K,
                    "[N, K], N > 0,")) {
        return GD_ERROR_ARGUMENT;
    }
    if (!(eps >= 0 && isfinite(eps)))
        return gd_refuse(call, "eps is %g, wanted a finite number of at least 0", eps);
    out->output[0] = out->output[1] = gd_spec_like(x);
    out->output[0].shape[out->output[0].ndim - 1] = gd_tensor_dim(weight, 0);
    return GD_OK;
}

static const norm_linear_decode_args usual = {1e-5}, half = {0.5};

#define CASE(case_name, case_args, N, K, ...)                                            \
    {                                                                                    \
        .name = case_name, .args = &case_args,                                           \
        GD_INPUTS({.fixed = true, GD_DIMS(__VA_ARGS__, K)},                              \
                  {.fixed = true, GD_DIMS(__VA_ARGS__, K)}, {.fixed = true, GD_DIMS(K)}, \
                  {.fixed = true, GD_DIMS(N, K)}),                                       \
        .may_be_empty = true                                                             \
    }

static const gd_case cases[] = {
    CASE("row", usual, 21, 264, 1), CASE("long_row", half, 9, 3088, 1, 1),
    CASE("odd", usual, 7, 1037, 1), CASE("rows", half, 130, 40, 3, 2),
    CASE("one", usual, 1, 1, 1),    CASE("no_rows", usual, 3, 8, 0),
};

const gd_op gd_op_norm_linear_decode = {
    .name = "norm_linear_decode",
    .formula = "y = rms_norm(x + residual, norm_weight) weight^T, and the sum",
    .inputs = 4,
    .input_names = {"x", "residual", "norm_weight", "weight"},
    .outputs = 2,
    .args_size = sizeof(norm_linear_decode_args),
    .plain_args = true,
    .shape = norm_linear_decode_shape,
    .forward = GD_ON_DEVICES(norm_linear_decode_forward),
    GD_CASES(cases),
};

gd_tensor *gd_norm_linear_decode(gd_tensor *x, gd_tensor *residual, gd_tensor *norm_weight,
                                 gd_tensor *weight, double eps, gd_tensor **sum)
{
    const norm_linear_decode_args args = {eps};
    gd_tensor *const inputs[] = {x, residual, norm_weight, weight};
    gd_tensor *outputs[2] = {NULL, NULL};
    gd_apply_multi(&gd_op_norm_linear_decode, inputs, 4, &args, outputs);
    if (sum) *sum = outputs[1];
    return outputs[0];
}
