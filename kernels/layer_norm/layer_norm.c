/* layer_norm.c - the op. README.md has the derivation. */
#include "layer_norm/layer_norm.h"
#include "gradus/ops.h"

GD_KERNEL(layer_norm_forward)
GD_KERNEL(layer_norm_backward)

/* weight or bias: absent, or [N] */
static gd_status check_vector(const gd_call *call, int i, const char *name)
{
    const gd_tensor *t = call->input[i], *x = call->input[0];
    if (!t) return GD_OK;
    if (gd_tensor_ndim(t) != 1 || gd_tensor_dim(t, 0) != gd_tensor_dim(x, -1)) {
        return gd_call_fail(
            call, GD_ERROR_ARGUMENT, "%s has shape %s, but the last dimension of x %s is %lld",
            name, gd_shape_text(t).text, gd_shape_text(x).text, (long long)gd_tensor_dim(x, -1));
    }
    if (gd_tensor_dtype(t) != gd_tensor_dtype(x)) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "%s is %s, wanted the dtype of x, %s", name,
                            gd_dtype_name(gd_tensor_dtype(t)), gd_dtype_name(gd_tensor_dtype(x)));
    }
    return GD_OK;
}

/* x [..., N] -> y like x; saves mean and rstd [...], in double whatever x is: far from 0 a mean
 * that is rounded to float32 is off by as much as the x's differ. */
static gd_status layer_norm_shape(const gd_call *call, gd_spec *output, gd_spec *save,
                                  uint64_t *words)
{
    (void)words;
    const gd_layer_norm_args *args = call->args;
    const gd_tensor *x = call->input[0];
    if (gd_tensor_ndim(x) < 1 || !gd_dtype_is_real(gd_tensor_dtype(x))) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "x is %s %s, wanted a real [..., N]",
                            gd_dtype_name(gd_tensor_dtype(x)), gd_shape_text(x).text);
    }
    if (!(args->eps >= 0)) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "eps is %g, wanted 0 or more", args->eps);
    }
    gd_status status = check_vector(call, 1, "weight");
    if (!status) status = check_vector(call, 2, "bias");
    if (status) return status;
    output[0] = gd_spec_like(x);
    save[0] = gd_spec_like(x);
    save[0].ndim--;
    save[0].dtype = GD_FLOAT64;
    save[1] = save[0];
    return GD_OK;
}

static const gd_layer_norm_args usual = {1e-5}, large_eps = {0.5};

#define X(...)           \
    {                    \
        "x", __VA_ARGS__ \
    }
#define W(n)                                          \
    {                                                 \
        "weight", .a = 0.5, .ndim = 1, .shape = { n } \
    }
#define B(n)                              \
    {                                     \
        "bias", .ndim = 1, .shape = { n } \
    }
#define NO_W                     \
    {                            \
        "weight", .absent = true \
    }
#define NO_B                   \
    {                          \
        "bias", .absent = true \
    }

static const gd_case layer_norm_cases[] = {
    {.name = "rows4_cols64",
     .args = &usual,
     .inputs = 3,
     .input = {X(.ndim = 2, .shape = {4, 64}), W(64), B(64)}},
    {.name = "rows2x3_cols7",
     .args = &usual,
     .inputs = 3,
     .input = {X(.ndim = 3, .shape = {2, 3, 7}), W(7), B(7)}},
    {.name = "no_weight_no_bias",
     .args = &usual,
     .inputs = 3,
     .input = {X(.ndim = 2, .shape = {3, 17}), NO_W, NO_B}},
    {.name = "no_bias",
     .args = &usual,
     .inputs = 3,
     .input = {X(.ndim = 2, .shape = {70, 5}), W(5), NO_B}},
    {.name = "far_from_zero",
     .args = &usual,
     .inputs = 3,
     .input = {X(.a = 50, .ndim = 2, .shape = {3, 33}), W(33), B(33)}},
    {.name = "small_x_large_eps",
     .args = &large_eps,
     .inputs = 3,
     .input = {X(.b = 0.1, .ndim = 1, .shape = {9}), W(9), B(9)}},
    {.name = "no_rows",
     .args = &usual,
     .inputs = 3,
     .may_be_empty = true,
     .input = {X(.ndim = 2, .shape = {0, 4}), NO_W, NO_B}},
};

const gd_op gd_op_layer_norm = {
    .name = "layer_norm",
    .formula = "y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps)",
    .inputs = 3,
    .optional_inputs = 6,
    .outputs = 1,
    .saves = 2,
    .args_size = sizeof(gd_layer_norm_args),
    .backward_reads_inputs = 3,
    .dinput_over_doutput = 1,
    .dinput_float32 = 1u << 1 | 1u << 2,
    .shape = layer_norm_shape,
    .forward = GD_ON_DEVICES(layer_norm_forward),
    .backward = GD_ON_DEVICES(layer_norm_backward),
    .cases = layer_norm_cases,
    .case_count = sizeof layer_norm_cases / sizeof *layer_norm_cases,
};

gd_tensor *gd_layer_norm(gd_tensor *x, gd_tensor *weight, gd_tensor *bias, double eps)
{
    gd_layer_norm_args args = {eps};
    return gd_apply(&gd_op_layer_norm, (gd_tensor *[]){x, weight, bias}, 3, &args);
}
