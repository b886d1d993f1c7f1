/* cross_entropy.c - the op: softmax, logarithm and the choice of the target in one. README.md has
 * the derivation. */
#include "cross_entropy/cross_entropy.h"
#include "arguments.h"
#include "derivation.h"

GD_KERNEL_PAIR(cross_entropy)

const gd_option_range cross_entropy_ranges[] = {CROSS_ENTROPY_RANGES(1, "0 to 1"), {0}};

gd_status cross_entropy_loss_shape(const gd_call *call, gd_shapes *out)
{
    if (((const gd_cross_entropy_args *)call->args)->reduction != GD_NONE) out->output[0].ndim = 0;
    if (!gd_tensor_requires_grad(call->input[2]) || gd_tensor_dtype(call->input[1]) != GD_INT32)
        return GD_OK;
    return gd_call_fail(call, GD_ERROR_UNSUPPORTED,
                        "%s requires a gradient, which class weights have only with targets "
                        "that are probabilities: give gd_detach of it",
                        gd_input_name(call->op, 2).text);
}

/* Targets are numbers of classes, without the last dimension, or probabilities. Saved are the two
 * parts of logsumexp, the maximum and the logarithm of the sum, and the factor of a row in the
 * loss: 1, or 1 over the divisor of the mean. */
static gd_status cross_entropy_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *logits = call->input[0], *targets = call->input[1];
    const bool numbers = gd_tensor_dtype(targets) == GD_INT32;
    const int ndim = gd_tensor_ndim(logits) - numbers;
    bool same = gd_tensor_ndim(targets) == ndim;
    for (int d = 0; same && d < ndim; d++)
        same = gd_tensor_shape(targets)[d] == gd_tensor_shape(logits)[d];
    if (!same)
        return gd_refuse(call,
                         "targets is %s, wanted int32 and the shape of %s %s without its last "
                         "dimension, or probabilities, %s and of the whole shape",
                         gd_kind(targets).text, gd_input_name(call->op, 0).text,
                         gd_shape_text(logits).text, gd_dtype_name(gd_tensor_dtype(logits)));
    if (!numbers && ((const gd_cross_entropy_args *)call->args)->use_ignore_index)
        return gd_refuse(call, "given an ignore index, but targets are probabilities");
    return cross_entropy_loss_shape(call, out);
}

/* ---- By ops ------------------------------------------------------------------------------- */

gd_tensor *cross_entropy_ignored(const gd_cross_entropy_args *args, gd_tensor *targets)
{
    return args->use_ignore_index ? is(gd_cast(targets, GD_FLOAT64), args->ignore_index) : NULL;
}

gd_tensor *cross_entropy_weights(const gd_call *call, gd_tensor *ignored, gd_tensor **targets)
{
    gd_tensor *weight = call->input[2];
    *targets = call->input[1];
    if (ignored) /* it may be outside the vocabulary */
        *targets = gd_cast(unless(ignored, gd_cast(*targets, GD_FLOAT64), 0), GD_INT32);
    if (weight) {
        if (gd_tensor_dtype(weight) != call->dtype) weight = gd_cast(weight, call->dtype);
        gd_tensor *index = gd_reshape(*targets, GD_SHAPE(gd_tensor_count(*targets)));
        weight = shaped_as(gd_gather(weight, 0, index), *targets);
    } else if (*targets) {
        weight = gd_constant(call->context, call->dtype, gd_tensor_ndim(*targets),
                             gd_tensor_shape(*targets), 1);
    }
    return ignored ? unless(ignored, weight, 0) : weight;
}

gd_tensor *cross_entropy_reduced(const gd_call *call, gd_tensor *loss, gd_tensor *weight,
                                 gd_tensor *ignored)
{
    const gd_reduction reduction = ((const gd_cross_entropy_args *)call->args)->reduction;
    if (reduction != GD_NONE) loss = gd_sum_all(loss);
    if (reduction != GD_MEAN) return loss;
    gd_tensor *divisor = gd_sum_all(weight), *none = NULL;
    divisor = unless(is(divisor, 0), divisor, NAN);
    if (ignored) none = gd_all(ignored, NULL, 0, false);
    loss = over(loss, none ? unless(none, divisor, 1) : divisor);
    return none ? unless(none, loss, NAN) : loss;
}

static gd_tensor *sum_of_rows(gd_tensor *x)
{
    const int last = gd_tensor_ndim(x) - 1;
    return gd_sum(x, &last, 1, false);
}

/* The loss of one target a row, of log-probabilities y. */
static gd_tensor *loss_of_targets(const gd_call *call, gd_tensor *y, gd_reduction reduction)
{
    const gd_cross_entropy_args *args = call->args;
    const int32_t ignored = args->ignore_index ? args->ignore_index : GD_ZERO;
    const gd_cross_entropy_options options = {.reduction = reduction,
                                              .ignore_index = args->use_ignore_index ? ignored : 0,
                                              .weight = call->input[2]};
    return gd_nll_loss(y, call->input[1], &options);
}

/* With smoothing, one target a row: (1 - eps) times its loss, and eps / V of those of
 * all classes. */
static gd_tensor *smoothed_losses(const gd_call *call, gd_tensor *y, gd_tensor *ignored)
{
    const double eps = ((const gd_cross_entropy_args *)call->args)->smoothing;
    const double V = (double)gd_tensor_dim(y, -1);
    gd_tensor *targets, *weight = call->input[2];
    gd_tensor *all = weight ? unless(is(weight, 0), mul(y, weight), 0) : y;
    gd_tensor *loss = times(sum_of_rows(all), -eps / V);
    gd_tensor *own = loss_of_targets(call, y, GD_NONE);
    if (eps < 1) loss = add(loss, times(own, 1 - eps));
    if (ignored) loss = unless(ignored, loss, 0);
    return cross_entropy_reduced(call, loss, cross_entropy_weights(call, ignored, &targets),
                                 ignored);
}

/* loss_i = -sum_j c_ij y_ij, with the shares c of the classes. A share of 0 adds nothing, even
 * where y is -inf, but has a slope, which is the weight of its class. */
static gd_tensor *shared_losses(const gd_call *call, gd_tensor *y)
{
    const gd_cross_entropy_args *args = call->args;
    gd_tensor *share = call->input[1], *weight = call->input[2];
    if (args->smoothing != 0)
        share =
            plus(times(share, 1 - args->smoothing), args->smoothing / (double)gd_tensor_dim(y, -1));
    if (weight) share = mul(share, weight);
    y = gd_where(is(share, 0), unless(is(y, -INFINITY), y, 0), y);
    gd_tensor *loss = gd_neg(sum_of_rows(mul(share, y)));
    return cross_entropy_reduced(call, loss, all_of(loss, 1), NULL);
}

/* Of y = log_softmax(x): its nll_loss, unless classes share a row. */
static void cross_entropy_definition(const gd_call *call)
{
    const gd_cross_entropy_args *args = call->args;
    gd_tensor *x = call->input[0], *targets = call->input[1];
    const bool numbers = gd_tensor_dtype(targets) == GD_INT32;
    gd_tensor *ignored = numbers ? cross_entropy_ignored(args, targets) : NULL;
    if (ignored) x = unless(gd_unsqueeze(ignored, -1), x, 0);
    gd_tensor *y = gd_log_softmax(x, -1);
    if (!numbers)
        call->output[0] = shared_losses(call, y);
    else if (args->smoothing != 0)
        call->output[0] = smoothed_losses(call, y, ignored);
    else
        call->output[0] = loss_of_targets(call, y, args->reduction);
}

/* ---- Cases -------------------------------------------------------------------------------- */

static const gd_cross_entropy_args mean = {.reduction = GD_MEAN}, sum = {.reduction = GD_SUM},
                                   none = {.reduction = GD_NONE},
                                   ignore = {.ignore_index = 1, .use_ignore_index = true},
                                   ignore_sum = {.reduction = GD_SUM,
                                                 .ignore_index = 2,
                                                 .use_ignore_index = true},
                                   smooth = {.smoothing = 0.3},
                                   all = {.reduction = GD_NONE,
                                          .ignore_index = 1,
                                          .use_ignore_index = true,
                                          .smoothing = 0.1},
                                   smooth_none = {.reduction = GD_NONE, .smoothing = 0.2};

#define WEIGHT(size)                                     \
    {                                                    \
        GD_UNIFORM(0.2, 2), .fixed = true, GD_DIMS(size) \
    }
#define LEARNED(size)                     \
    {                                     \
        GD_UNIFORM(0.2, 2), GD_DIMS(size) \
    }
#define PROBABILITIES(...)                     \
    {                                          \
        GD_UNIFORM(0, 1), GD_DIMS(__VA_ARGS__) \
    }

static const gd_case cross_entropy_cases[] = {
    {"mean_5x11", &mean, GD_INPUTS({GD_DIMS(5, 11)}, {GD_INDEX(11), GD_DIMS(5)}, GD_ABSENT)},
    {"sum_4x7", &sum, GD_INPUTS({GD_DIMS(4, 7)}, {GD_INDEX(7), GD_DIMS(4)}, GD_ABSENT)},
    {"ignore_12x3", &ignore, GD_INPUTS({GD_DIMS(12, 3)}, {GD_INDEX(3), GD_DIMS(12)}, GD_ABSENT)},
    {"ignore_sum_9x4", &ignore_sum,
     GD_INPUTS({GD_DIMS(9, 4)}, {GD_INDEX(4), GD_DIMS(9)}, GD_ABSENT)},
    {"one_row", &mean, GD_INPUTS({GD_DIMS(6)}, {GD_INDEX(6), GD_SCALAR}, GD_ABSENT)},
    {"three_dimensions", &mean,
     GD_INPUTS({GD_DIMS(2, 3, 5)}, {GD_INDEX(5), GD_DIMS(2, 3)}, GD_ABSENT)},
    {"far_from_zero", &mean,
     GD_INPUTS({GD_NORMAL(500, 1), GD_DIMS(3, 9)}, {GD_INDEX(9), GD_DIMS(3)}, GD_ABSENT)},
    {"no_rows", &sum, GD_INPUTS({GD_DIMS(0, 4)}, {GD_INDEX(4), GD_DIMS(0)}, GD_ABSENT),
     .may_be_empty = true},
    {"weight", &mean, GD_INPUTS({GD_DIMS(5, 7)}, {GD_INDEX(7), GD_DIMS(5)}, WEIGHT(7))},
    {"smoothing", &smooth, GD_INPUTS({GD_DIMS(4, 6)}, {GD_INDEX(6), GD_DIMS(4)}, GD_ABSENT)},
    {"none", &none, GD_INPUTS({GD_DIMS(2, 3, 5)}, {GD_INDEX(5), GD_DIMS(2, 3)}, GD_ABSENT)},
    {"all_options", &all, GD_INPUTS({GD_DIMS(9, 4)}, {GD_INDEX(4), GD_DIMS(9)}, WEIGHT(4))},
    {"probabilities", &mean, GD_INPUTS({GD_DIMS(4, 6)}, PROBABILITIES(4, 6), GD_ABSENT)},
    {"probabilities_and_all", &smooth_none,
     GD_INPUTS({GD_DIMS(2, 2, 5)}, PROBABILITIES(2, 2, 5), LEARNED(5))},
    {"probabilities_and_weight", &mean,
     GD_INPUTS({GD_DIMS(70, 3)}, PROBABILITIES(70, 3), LEARNED(3))},
    {"no_rows_none", &smooth_none, GD_INPUTS({GD_DIMS(0, 4)}, {GD_INDEX(4), GD_DIMS(0)}, WEIGHT(4)),
     .may_be_empty = true},
};

const gd_op gd_op_cross_entropy = {
    .formula = "loss = mean or sum over rows of logsumexp(logits) - logits[target]",
    .signature = "logits[..., V] targets:mask weight[V]? -> loss:compute[...]; "
                 "max:compute[...] log:compute[...] factor:compute[]",
    GD_ARGS(gd_cross_entropy_args),
    .backward_reads_inputs = GD_ALL_INPUTS,
    .dinput_over_input = GD_BIT(0),
    .mixed = GD_BIT(GD_CUDA),
    .ranges = cross_entropy_ranges,
    .shape = cross_entropy_shape,
    GD_KERNELS(cross_entropy),
    .definition = cross_entropy_definition,
    GD_CASES(cross_entropy_cases),
};

gd_cross_entropy_args cross_entropy_args_of(const gd_cross_entropy_options *options)
{
    const gd_cross_entropy_options o = options ? *options : (gd_cross_entropy_options){0};
    return (gd_cross_entropy_args){.reduction = o.reduction,
                                   .ignore_index = (int32_t)gd_option(o.ignore_index, 0),
                                   .use_ignore_index = o.ignore_index != 0,
                                   .smoothing = gd_option(o.label_smoothing, 0)};
}

gd_tensor *gd_cross_entropy_with(gd_tensor *logits, gd_tensor *targets,
                                 const gd_cross_entropy_options *options)
    GD_APPLIES(cross_entropy, ((gd_cross_entropy_args[]){cross_entropy_args_of(options)}), logits,
               targets, options ? options->weight : NULL)

gd_tensor *gd_cross_entropy(gd_tensor *logits, gd_tensor *targets)
    GD_APPLIES(cross_entropy, (gd_cross_entropy_args[]){{0}}, logits, targets, NULL)
