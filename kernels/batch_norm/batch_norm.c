/* batch_norm.c - the ops batch_norm, of training, and batch_norm_fixed, of evaluation. README.md has
 * the derivation. */
#include "batch_norm/batch_norm.h"
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"

GD_KERNEL(batch_norm_forward)
GD_KERNEL(batch_norm_backward)
GD_KERNEL(batch_norm_fixed_forward)
GD_KERNEL(batch_norm_fixed_backward)

/* Input i: absent, or [C]. */
static gd_status check_vector(const gd_call *call, int i)
{
    const gd_tensor *t = call->input[i], *x = call->input[BATCH_X];
    if (!t) return GD_OK;
    if (gd_check_real(call, i)) return GD_ERROR_ARGUMENT;
    if (gd_tensor_ndim(t) == 1 && gd_tensor_dim(t, 0) == gd_tensor_dim(x, 1)) return GD_OK;
    return gd_refuse(call, "%s has shape %s, but x %s has %lld channels",
                     gd_input_name(call->op, i).text, gd_shape_text(t).text, gd_shape_text(x).text,
                     (long long)gd_tensor_dim(x, 1));
}

static gd_status check(const gd_call *call)
{
    const gd_batch_norm_args *args = call->args;
    const gd_tensor *x = call->input[BATCH_X];
    if (gd_tensor_ndim(x) < 2 || !gd_dtype_is_real(gd_tensor_dtype(x)))
        return gd_refuse(call, "x is %s, wanted a real [B, C, ...]", gd_kind(x).text);
    if (!(args->eps >= 0)) return gd_refuse(call, "eps is %g, wanted 0 or more", args->eps);
    if (!(args->momentum >= 0 && args->momentum <= 1))
        return gd_refuse(call, "momentum is %g, wanted 0 to 1", args->momentum);
    if (!call->input[BATCH_MEAN] != !call->input[BATCH_VAR])
        return gd_refuse(call, "mean is %s, but var is %s, wanted both or none",
                         call->input[BATCH_MEAN] ? "given" : "NULL",
                         call->input[BATCH_VAR] ? "given" : "NULL");
    gd_status status = GD_OK;
    for (int i = BATCH_WEIGHT; i < BATCH_INPUTS && !status; i++) status = check_vector(call, i);
    for (int i = BATCH_MEAN; i < BATCH_INPUTS && !status; i++) {
        if (call->input[i] && gd_tensor_requires_grad(call->input[i]))
            status = gd_refuse(call, "%s requires a gradient, wanted a tensor that does not",
                               gd_input_name(call->op, i).text);
    }
    return status;
}

/* x [B, C, ...] -> y like x; saves mean and rstd [C], in double for every dtype: far from 0 the
 * rounding error of a float32 mean is as large as the differences of the x's. */
static gd_status batch_norm_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *x = call->input[BATCH_X];
    const gd_status status = check(call);
    if (status) return status;
    const gd_channels shape = gd_channels_of(x);
    if (shape.B * shape.S == 1)
        return gd_refuse(
            call,
            "x is %s, wanted more than one element of each channel: a single one has no variance",
            gd_shape_text(x).text);
    out->output[0] = gd_spec_like(x);
    out->save[0] = (gd_spec){GD_FLOAT64, 1, {shape.C}};
    out->save[1] = out->save[0];
    return GD_OK;
}

static gd_status batch_norm_fixed_shape(const gd_call *call, gd_shapes *out)
{
    const gd_status status = check(call);
    if (!status) out->output[0] = gd_spec_like(call->input[BATCH_X]);
    return status;
}

/* xhat weight + bias, of each channel */
static gd_tensor *of_channels(const gd_call *call, gd_tensor *xhat)
{
    return scaled_and_shifted(xhat, by_channel(call->input[BATCH_WEIGHT], xhat),
                              by_channel(call->input[BATCH_BIAS], xhat));
}

/* The mean and the variance are over all axes but that of the channels. */
static void batch_norm_definition(const gd_call *call)
{
    gd_tensor *x = call->input[BATCH_X];
    int axes[GD_MAX_DIMS], count = 0;
    for (int d = 0; d < gd_tensor_ndim(x); d++)
        if (d != 1) axes[count++] = d;
    const double eps = ((const gd_batch_norm_args *)call->args)->eps;
    call->output[0] = of_channels(call, of_unit_square(centred(x, axes, count), axes, count, eps));
}

static void batch_norm_fixed_definition(const gd_call *call)
{
    gd_tensor *x = call->input[BATCH_X];
    gd_tensor *rstd =
        gd_rsqrt(plus(call->input[BATCH_VAR], ((const gd_batch_norm_args *)call->args)->eps));
    gd_tensor *xhat = mul(sub(x, by_channel(call->input[BATCH_MEAN], x)), by_channel(rstd, x));
    call->output[0] = of_channels(call, xhat);
}

static const gd_batch_norm_args usual = {1e-5, 0.1}, large_eps = {0.5, 0.25};

#define AROUND_HALF GD_NORMAL(0.5, 1)
#define RUNNING_MEAN(c)                            \
    {                                              \
        GD_NORMAL(0, 1), .fixed = true, GD_DIMS(c) \
    }
#define RUNNING_VAR(c)                                \
    {                                                 \
        GD_UNIFORM(0.5, 2), .fixed = true, GD_DIMS(c) \
    }

static const gd_case batch_norm_cases[] = {
    {"images", &usual,
     GD_INPUTS({GD_DIMS(3, 4, 5, 2)}, {AROUND_HALF, GD_DIMS(4)}, {GD_DIMS(4)}, RUNNING_MEAN(4),
               RUNNING_VAR(4))},
    {"rows", &usual,
     GD_INPUTS({GD_DIMS(7, 35)}, {AROUND_HALF, GD_DIMS(35)}, {GD_DIMS(35)}, RUNNING_MEAN(35),
               RUNNING_VAR(35))},
    {"no_statistics", &usual,
     GD_INPUTS({GD_DIMS(6, 3)}, {AROUND_HALF, GD_DIMS(3)}, {GD_DIMS(3)}, GD_ABSENT, GD_ABSENT)},
    {"no_weight", &usual,
     GD_INPUTS({GD_DIMS(2, 3, 33)}, GD_ABSENT, GD_ABSENT, GD_ABSENT, GD_ABSENT)},
    {"one_example", &usual,
     GD_INPUTS({GD_DIMS(1, 2, 9)}, {AROUND_HALF, GD_DIMS(2)}, GD_ABSENT, GD_ABSENT, GD_ABSENT)},
    {"far_from_zero", &usual,
     GD_INPUTS({GD_NORMAL(50, 1), GD_DIMS(4, 2, 3)}, {AROUND_HALF, GD_DIMS(2)}, {GD_DIMS(2)},
               GD_ABSENT, GD_ABSENT)},
    {"small_x_large_eps", &large_eps,
     GD_INPUTS({GD_NORMAL(0, 0.1), GD_DIMS(5, 3)}, GD_ABSENT, {GD_DIMS(3)}, GD_ABSENT, GD_ABSENT)},
    {"no_channels", &usual,
     GD_INPUTS({GD_DIMS(4, 0, 3)}, GD_ABSENT, GD_ABSENT, GD_ABSENT, GD_ABSENT),
     .may_be_empty = true},
    {"no_examples", &usual,
     GD_INPUTS({GD_DIMS(0, 2, 3)}, GD_ABSENT, GD_ABSENT, GD_ABSENT, GD_ABSENT),
     .may_be_empty = true},
};

static const gd_case batch_norm_fixed_cases[] = {
    {"images", &usual,
     GD_INPUTS({GD_DIMS(3, 4, 5, 2)}, {AROUND_HALF, GD_DIMS(4)}, {GD_DIMS(4)}, RUNNING_MEAN(4),
               RUNNING_VAR(4))},
    {"rows", &usual,
     GD_INPUTS({GD_DIMS(7, 35)}, {AROUND_HALF, GD_DIMS(35)}, {GD_DIMS(35)}, RUNNING_MEAN(35),
               RUNNING_VAR(35))},
    {"one_element", &usual,
     GD_INPUTS({GD_DIMS(1, 3)}, GD_ABSENT, {GD_DIMS(3)}, RUNNING_MEAN(3), RUNNING_VAR(3))},
    {"large_eps", &large_eps,
     GD_INPUTS({GD_DIMS(5, 3, 4)}, {AROUND_HALF, GD_DIMS(3)}, GD_ABSENT, RUNNING_MEAN(3),
               RUNNING_VAR(3))},
    {"no_examples", &usual,
     GD_INPUTS({GD_DIMS(0, 2, 3)}, GD_ABSENT, GD_ABSENT, RUNNING_MEAN(2), RUNNING_VAR(2)),
     .may_be_empty = true},
};

const gd_op gd_op_batch_norm = {
    .name = "batch_norm",
    .formula = "y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps), of a channel",
    .inputs = BATCH_INPUTS,
    .input_names = {"x", "weight", "bias", "mean", "var"},
    .optional_inputs = ~GD_BIT(BATCH_X),
    .updates_inputs = GD_BIT(BATCH_MEAN) | GD_BIT(BATCH_VAR),
    .outputs = 1,
    .saves = 2,
    .args_size = sizeof(gd_batch_norm_args),
    .plain_args = true,
    .backward_reads_inputs = GD_BIT(BATCH_X) | GD_BIT(BATCH_WEIGHT),
    .dinput_over_doutput = GD_BIT(BATCH_X),
    .dinput_float32 = GD_BIT(BATCH_WEIGHT) | GD_BIT(BATCH_BIAS),
    .mixed = GD_BIT(GD_CUDA),
    .same_bits = true,
    .shape = batch_norm_shape,
    .forward = GD_ON_DEVICES(batch_norm_forward),
    .backward = GD_ON_DEVICES(batch_norm_backward),
    .definition = batch_norm_definition,
    GD_CASES(batch_norm_cases),
};

const gd_op gd_op_batch_norm_fixed = {
    .name = "batch_norm_fixed",
    .formula = "y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var given",
    .inputs = BATCH_INPUTS,
    .input_names = {"x", "weight", "bias", "mean", "var"},
    .optional_inputs = GD_BIT(BATCH_WEIGHT) | GD_BIT(BATCH_BIAS),
    .outputs = 1,
    .args_size = sizeof(gd_batch_norm_args),
    .plain_args = true,
    .backward_reads_inputs = ~GD_BIT(BATCH_BIAS),
    .dinput_over_doutput = GD_BIT(BATCH_X),
    .dinput_float32 = GD_BIT(BATCH_WEIGHT) | GD_BIT(BATCH_BIAS),
    .mixed = GD_BIT(GD_CUDA),
    .same_bits = true,
    .shape = batch_norm_fixed_shape,
    .forward = GD_ON_DEVICES(batch_norm_fixed_forward),
    .backward = GD_ON_DEVICES(batch_norm_fixed_backward),
    .definition = batch_norm_fixed_definition,
    GD_CASES(batch_norm_fixed_cases),
};

gd_tensor *gd_batch_norm(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                         const gd_batch_norm_options *options)
{
    const gd_batch_norm_options none = {0}, *o = options ? options : &none;
    const gd_batch_norm_args args = {gd_option(o->eps, 1e-5), gd_option(o->momentum, 0.1)};
    gd_tensor *inputs[] = {x, weight, bias, o->mean, o->var};
    if (!o->evaluate) return gd_apply(&gd_op_batch_norm, inputs, BATCH_INPUTS, &args);
    gd_op evaluating = gd_op_batch_norm_fixed;
    evaluating.name = gd_op_batch_norm.name; /* for what the caller has done wrong */
    if (!gd_accepts(&evaluating, inputs, BATCH_INPUTS, &args)) return NULL;
    return gd_apply(&gd_op_batch_norm_fixed, inputs, BATCH_INPUTS, &args);
}
