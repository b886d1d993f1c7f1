/* batch_norm.c - the ops batch_norm, of training, and batch_norm_fixed, of evaluation. README.md
 * has the derivation. */
#include "batch_norm/batch_norm.h"
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"

GD_KERNEL_PAIR(batch_norm)
GD_KERNEL_PAIR(batch_norm_fixed)

/* mean and var are updated in training, and given in evaluation: neither has a gradient. */
static gd_status check(const gd_call *call, gd_shapes *out)
{
    (void)out;
    if (!call->input[BATCH_MEAN] != !call->input[BATCH_VAR])
        return gd_refuse(call, "mean is %s, but var is %s, wanted both or none",
                         call->input[BATCH_MEAN] ? "given" : "NULL",
                         call->input[BATCH_VAR] ? "given" : "NULL");
    for (int i = BATCH_MEAN; i < BATCH_INPUTS; i++) {
        if (gd_tensor_requires_grad(call->input[i]))
            return gd_refuse(call, "%s requires a gradient, wanted a tensor that does not",
                             gd_input_name(call->op, i).text);
    }
    return GD_OK;
}

/* A model is evaluated before it was trained or loaded. On a GPU the host cannot see this
 * without waiting. */
static gd_status fixed_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *mean = call->input[BATCH_MEAN], *var = call->input[BATCH_VAR];
    bool fresh = gd_context_device(call->context) == GD_CPU && gd_tensor_count(mean) > 0 &&
                 gd_tensor_dtype(mean) == GD_FLOAT32 && gd_tensor_dtype(var) == GD_FLOAT32 &&
                 gd_tensor_is_contiguous(mean) && gd_tensor_is_contiguous(var);
    const float *m = gd_tensor_data(mean), *v = gd_tensor_data(var);
    for (int64_t c = 0; fresh && c < gd_tensor_count(mean); c++) fresh = m[c] == 0 && v[c] == 1;
    if (fresh)
        gd_notice(call->context, GD_NOTICE_STATISTICS,
                  "batch_norm: mean is 0 and var is 1 in all channels, as before the first batch: "
                  "train or load the model before it is evaluated");
    return check(call, out);
}

static gd_status batch_norm_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *x = call->input[BATCH_X];
    const gd_channels shape = gd_channels_of(x);
    const gd_status status = check(call, out);
    if (status || shape.B * shape.S != 1) return status;
    return gd_refuse(
        call, "x is %s, wanted more than one element of each channel: a single one has no variance",
        gd_shape_text(x).text);
}

static const gd_option_range ranges[] = {
    {"eps", GD_FIELD(gd_batch_norm_args, eps), 0, INFINITY, "0 or more"},
    {"momentum", GD_FIELD(gd_batch_norm_args, momentum), 0, 1, "0 to 1"},
    {0}};

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

/* Inputs of a case: a weight; neither weight and bias nor mean and variance; these. */
#define WEIGHT(c)                     \
    {                                 \
        GD_NORMAL(0.5, 1), GD_DIMS(c) \
    }
#define NONE GD_ABSENT, GD_ABSENT
#define RUNNING(c)                                    \
    {GD_NORMAL(0, 1), .fixed = true, GD_DIMS(c)},     \
    {                                                 \
        GD_UNIFORM(0.5, 2), .fixed = true, GD_DIMS(c) \
    }

static const gd_case batch_norm_cases[] = {
    {"images", &usual, GD_INPUTS({GD_DIMS(3, 4, 5, 2)}, WEIGHT(4), {GD_DIMS(4)}, RUNNING(4))},
    {"rows", &usual, GD_INPUTS({GD_DIMS(7, 35)}, WEIGHT(35), {GD_DIMS(35)}, RUNNING(35))},
    {"no_statistics", &usual, GD_INPUTS({GD_DIMS(6, 3)}, WEIGHT(3), {GD_DIMS(3)}, NONE)},
    {"no_weight", &usual, GD_INPUTS({GD_DIMS(2, 3, 33)}, NONE, NONE)},
    {"one_example", &usual, GD_INPUTS({GD_DIMS(1, 2, 9)}, WEIGHT(2), GD_ABSENT, NONE)},
    {"far_from_zero", &usual,
     GD_INPUTS({GD_NORMAL(50, 1), GD_DIMS(4, 2, 3)}, WEIGHT(2), {GD_DIMS(2)}, NONE)},
    {"small_x_large_eps", &large_eps,
     GD_INPUTS({GD_NORMAL(0, 0.1), GD_DIMS(5, 3)}, GD_ABSENT, {GD_DIMS(3)}, NONE)},
    {"no_channels", &usual, GD_INPUTS({GD_DIMS(4, 0, 3)}, NONE, NONE), .may_be_empty = true},
    {"no_examples", &usual, GD_INPUTS({GD_DIMS(0, 2, 3)}, NONE, NONE), .may_be_empty = true},
};

static const gd_case batch_norm_fixed_cases[] = {
    {"images", &usual, GD_INPUTS({GD_DIMS(3, 4, 5, 2)}, WEIGHT(4), {GD_DIMS(4)}, RUNNING(4))},
    {"rows", &usual, GD_INPUTS({GD_DIMS(7, 35)}, WEIGHT(35), {GD_DIMS(35)}, RUNNING(35))},
    {"one_element", &usual, GD_INPUTS({GD_DIMS(1, 3)}, GD_ABSENT, {GD_DIMS(3)}, RUNNING(3))},
    {"large_eps", &large_eps, GD_INPUTS({GD_DIMS(5, 3, 4)}, WEIGHT(3), GD_ABSENT, RUNNING(3))},
    {"no_examples", &usual, GD_INPUTS({GD_DIMS(0, 2, 3)}, GD_ABSENT, GD_ABSENT, RUNNING(2)),
     .may_be_empty = true},
};

/* mean and rstd are saved in double for every dtype: far from 0 the rounding error of a float32
 * mean is as large as the differences of the x's. */
const gd_op gd_op_batch_norm = {
    .formula = "y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps), of a channel",
    .signature = "x[B, C, ...] weight:real[C]? bias:real[C]? mean:real[C]? var:real[C]? -> "
                 "y[B, C, ...]; mean:float64[C] rstd:float64[C]",
    .ranges = ranges,
    .updates_inputs = GD_BIT(BATCH_MEAN) | GD_BIT(BATCH_VAR),
    GD_ARGS(gd_batch_norm_args),
    .backward_reads_inputs = GD_BIT(BATCH_X) | GD_BIT(BATCH_WEIGHT),
    .dinput_over_doutput = GD_BIT(BATCH_X),
    .dinput_float32 = GD_BIT(BATCH_WEIGHT) | GD_BIT(BATCH_BIAS),
    .mixed = GD_BIT(GD_CUDA),
    .shape = batch_norm_shape,
    GD_KERNELS(batch_norm),
    .definition = batch_norm_definition,
    GD_CASES(batch_norm_cases),
};

const gd_op gd_op_batch_norm_fixed = {
    .formula = "y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var given",
    .signature = "x[B, C, ...] weight:real[C]? bias:real[C]? mean:real[C] var:real[C] -> "
                 "y[B, C, ...]",
    .ranges = ranges,
    GD_ARGS(gd_batch_norm_args),
    .backward_reads_inputs = ~GD_BIT(BATCH_BIAS),
    .dinput_over_doutput = GD_BIT(BATCH_X),
    .dinput_float32 = GD_BIT(BATCH_WEIGHT) | GD_BIT(BATCH_BIAS),
    .mixed = GD_BIT(GD_CUDA),
    .shape = fixed_shape,
    GD_KERNELS(batch_norm_fixed),
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
