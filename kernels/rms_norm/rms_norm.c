/* rms_norm.c - the ops rms_norm and add_rms_norm: the checks of their arguments, what they save for
 * the backward, and their cases. README.md derives the backward, plain_cpu.c computes it as
 * it is derived, and problem.c leads from the tensors to the kernels.
 *
 * Saved: rstd [M], one number per row; the tape keeps x (add_rms_norm: the sum) anyway. xhat is not
 * saved: x * rstd is cheaper than reading it. */
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"
#include "rms_norm/rms_norm.h"

extern const gd_op gd_op_rms_norm, gd_op_add_rms_norm;

/* ---- What is accepted --------------------------------------------------------------------- */

/* Weight and bias are absent, [N], or [H, N] beside x [..., H, N]. */
static gd_status check_param(const gd_call *call, int i)
{
    const gd_tensor *x = call->input[0], *t = call->input[i];
    if (!t) return GD_OK;
    const int ndim = gd_tensor_ndim(t);
    bool fits = ndim == 1 || (ndim == 2 && gd_tensor_ndim(x) > 1);
    for (int d = 1; fits && d <= ndim; d++) fits = gd_tensor_dim(t, -d) == gd_tensor_dim(x, -d);
    if (fits) return GD_OK;
    return gd_refuse(call,
                     "%s has shape %s, wanted the last dimension of x %s, or the last two for one "
                     "row per head",
                     gd_input_name(call->op, i).text, gd_shape_text(t).text, gd_shape_text(x).text);
}

static gd_status check_params(const gd_call *call, gd_shapes *out)
{
    if (call->outputs == 2) out->output[1].dtype = gd_tensor_dtype(call->input[1]); /* sum */
    const gd_status status = check_param(call, call->inputs - 2);
    return status ? status : check_param(call, call->inputs - 1);
}

static const gd_option_range ranges[] = {
    {"eps", GD_FIELD(gd_rms_norm_args, eps), 0, DBL_MAX, "a finite number of at least 0"},
    {"offset", GD_FIELD(gd_rms_norm_args, offset), -DBL_MAX, DBL_MAX, "a finite number"},
    {0}};

/* ---- By ops ------------------------------------------------------------------------------- */

/* y = x rstd (offset + weight) + bias; a row is the last dimension. */
static void definition(const gd_call *call)
{
    const gd_rms_norm_args *args = call->args;
    gd_tensor *x = call->input[0], *weight = call->input[call->inputs - 2];
    if (call->outputs == 2) x = call->output[1] = add(x, call->input[1]);
    if (weight && args->offset != 0) weight = plus(weight, args->offset);
    const int last = gd_tensor_ndim(x) - 1;
    call->output[0] = scaled_and_shifted(of_unit_square(x, &last, 1, args->eps), weight,
                                         call->input[call->inputs - 1]);
}

/* ---- What users call ---------------------------------------------------------------------- */

static gd_rms_norm_args make_args(const gd_rms_norm_options *options)
{
    const gd_rms_norm_options o = options ? *options : (gd_rms_norm_options){0};
    return (gd_rms_norm_args){gd_option(o.eps, 1e-5), gd_option(o.offset, 0),
                              o.round_before_weight};
}

gd_tensor *gd_rms_norm(gd_tensor *x, gd_tensor *weight, double eps)
{
    return gd_apply(&gd_op_rms_norm, (gd_tensor *[]){x, weight, NULL}, 3,
                    &(gd_rms_norm_args){.eps = eps});
}

gd_tensor *gd_rms_norm_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                            const gd_rms_norm_options *options)
    GD_APPLIES(rms_norm, (gd_rms_norm_args[]){make_args(options)}, x, weight, bias)

gd_tensor *gd_add_rms_norm(gd_tensor *x, gd_tensor *residual, gd_tensor *weight, gd_tensor *bias,
                           const gd_rms_norm_options *options, gd_tensor **sum)
{
    gd_tensor *outputs[2] = {NULL, NULL};
    gd_rms_norm_args args = make_args(options);
    gd_apply_multi(&gd_op_add_rms_norm, (gd_tensor *[]){x, residual, weight, bias}, 4, &args,
                   outputs);
    if (sum) *sum = outputs[1];
    return outputs[0];
}

/* ---- Cases -------------------------------------------------------------------------------- */

/* Weights are around 1 but not 1: with ones a forgotten weight would not show. Where N is small, or
 * x is, eps is chosen so that dx is not a difference of nearly equal numbers: at N = 1 and eps = 0
 * it is 0. */
static const gd_rms_norm_args plain = {1e-5, 0, 0}, half = {0.5, 0, 0}, no_eps = {0, 0, 0},
                              gemma = {1e-6, 1, 0}, large_eps = {100, 0, 0},
                              tiny_eps = {1e-10, 0, 0}, negative_offset = {1e-5, -0.5, 0};

#define NONE .absent = true
#define CASES(C)                                                             \
    C(bias, plain, GD_DIMS(3, 17), GD_DIMS(17), GD_DIMS(17))                 \
    C(no_weight, plain, GD_DIMS(5, 33), NONE, NONE)                          \
    C(only_bias, plain, GD_DIMS(5, 8), NONE, GD_DIMS(8))                     \
    C(offset1, gemma, GD_DIMS(4, 31), GD_DIMS(31), NONE)                     \
    C(per_head, plain, GD_DIMS(3, 2, 5, 16), GD_DIMS(5, 16), GD_DIMS(5, 16)) \
    C(weight_per_head, half, GD_DIMS(2, 3, 7), GD_DIMS(3, 7), GD_DIMS(7))    \
    C(bias_per_head, half, GD_DIMS(2, 3, 7), GD_DIMS(7), GD_DIMS(3, 7))      \
    C(cols1, half, GD_DIMS(6, 1), GD_DIMS(1), GD_DIMS(1))                    \
    C(cols3, half, GD_DIMS(7, 3), GD_DIMS(3), NONE)                          \
    C(tile_and_one, plain, GD_DIMS(2, 257), GD_DIMS(257), GD_DIMS(257))      \
    C(one_row, plain, GD_DIMS(64), GD_DIMS(64), NONE)                        \
    C(many_rows, half, GD_DIMS(5, 41, 9), GD_DIMS(9), GD_DIMS(9))            \
    C(uneven_pieces, half, GD_DIMS(1030, 10), GD_DIMS(10), NONE)             \
    C(no_eps, no_eps, GD_DIMS(3, 40), GD_DIMS(40), NONE)                     \
    C(large_eps, large_eps, GD_DIMS(3, 20), GD_DIMS(20), NONE)
#define AROUND_1 GD_NORMAL(1, 0.5)
#define ALONE(name, args, x, weight, bias) \
    {#name, &args, GD_INPUTS({x}, {AROUND_1, weight}, {bias})},
#define ADDED(name, args, x, weight, bias) \
    {#name, &args, GD_INPUTS({x}, {GD_NORMAL(0, 2), x}, {AROUND_1, weight}, {bias})},

static const gd_case rms_norm_cases[] = {
    {"rows4_cols64", &plain, GD_INPUTS({GD_DIMS(4, 64)}, {AROUND_1, GD_DIMS(64)}, GD_ABSENT)},
    {"tiny_x", &tiny_eps,
     GD_INPUTS({GD_NORMAL(0, 1e-4), GD_DIMS(4, 24)}, {AROUND_1, GD_DIMS(24)}, GD_ABSENT)},
    {"huge_x", &negative_offset,
     GD_INPUTS({GD_NORMAL(0, 1e4), GD_DIMS(4, 24)}, {AROUND_1, GD_DIMS(24)}, {GD_DIMS(24)})},
    {"no_rows", &plain, GD_INPUTS({GD_DIMS(0, 12)}, {GD_DIMS(12)}, {GD_DIMS(12)}),
     .may_be_empty = true},
    {"no_cols", &plain, GD_INPUTS({GD_DIMS(4, 0)}, {GD_DIMS(0)}, {GD_DIMS(0)}),
     .may_be_empty = true},
    CASES(ALONE)};

static const gd_case add_rms_norm_cases[] = {
    {"rows4_cols64", &plain,
     GD_INPUTS({GD_DIMS(4, 64)}, {GD_NORMAL(0, 2), GD_DIMS(4, 64)}, {AROUND_1, GD_DIMS(64)},
               GD_ABSENT)},
    {"no_rows", &plain, GD_INPUTS({GD_DIMS(0, 12)}, {GD_DIMS(0, 12)}, {GD_DIMS(12)}, {GD_DIMS(12)}),
     .may_be_empty = true},
    CASES(ADDED)};

/* ---- The records -------------------------------------------------------------------------- */

/* What both have: they save rstd. */
#define OF_BOTH                                                                       \
    GD_ARGS(gd_rms_norm_args), GD_BUILT_IN,                                           \
        .strided = true, .mixed = GD_BIT(GD_CPU) | GD_BIT(GD_CUDA), .ranges = ranges, \
        .shape = check_params, .definition = definition,                              \
        .forward = {rms_norm_forward, rms_norm_forward},                              \
        .backward = {rms_norm_backward, rms_norm_backward}

const gd_op gd_op_rms_norm = {
    .name = "rms_norm",
    .formula = "y = x * rstd * (offset + weight) + bias, rstd = 1 / sqrt(mean(x^2) + eps)",
    .signature = "x[..., N] weight:real? bias:real? -> y[..., N]; rstd:compute[...]",
    .backward_reads_inputs = GD_BIT(0) | GD_BIT(1),
    .dinput_over_doutput = GD_BIT(0),
    .dinput_float32 = GD_BIT(1) | GD_BIT(2),
    OF_BOTH,
    GD_CASES(rms_norm_cases),
};

const gd_op gd_op_add_rms_norm = {
    .name = "add_rms_norm",
    .formula = "sum = x + residual, y = rms_norm(sum, weight, bias)",
    .signature = "x[..., N] residual:real[..., N] weight:real? bias:real? -> "
                 "y[..., N] sum[..., N]; rstd:compute[...]",
    .backward_reads_inputs = GD_BIT(2),
    .backward_reads_outputs = GD_BIT(1),
    .dinput_over_doutput = GD_BIT(0) | GD_BIT(1),
    .dinput_float32 = GD_BIT(2) | GD_BIT(3),
    OF_BOTH,
    GD_CASES(add_rms_norm_cases),
};
