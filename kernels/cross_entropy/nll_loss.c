/* nll_loss.c - the op: the negative log-probabilities of the targets. README.md has the
 * derivation. */
#include "cross_entropy/cross_entropy.h"
#include "derivation.h"

GD_KERNEL_PAIR(nll_loss)

/* -w x of the target of each row, divided by the sum of the weights. What a weight of 0 does
 * not let through may be infinite or NaN; where no target counts, the mean is NaN and its
 * gradient 0. */
static void nll_loss_definition(const gd_call *call)
{
    gd_tensor *ignored = cross_entropy_ignored(call->args, call->input[1]), *targets;
    gd_tensor *weight = cross_entropy_weights(call, ignored, &targets);
    gd_tensor *x = gd_gather(call->input[0], -1, gd_unsqueeze(targets, -1));
    x = shaped_as(gd_tensor_dtype(x) == call->dtype ? x : gd_cast(x, call->dtype), targets);
    if (ignored) x = unless(ignored, x, 0);
    x = gd_where(is(weight, 0), unless(is_nan(sub(x, x)), x, 0), x);
    call->output[0] = cross_entropy_reduced(call, mul(gd_neg(weight), x), weight, ignored);
}

static const gd_cross_entropy_args mean = {.reduction = GD_MEAN}, sum = {.reduction = GD_SUM},
                                   none = {.reduction = GD_NONE},
                                   ignore = {.ignore_index = 1, .use_ignore_index = true},
                                   ignore_none = {.reduction = GD_NONE,
                                                  .ignore_index = 2,
                                                  .use_ignore_index = true};

#define LOGS(...)                               \
    {                                           \
        GD_UNIFORM(-5, 0), GD_DIMS(__VA_ARGS__) \
    }
#define WEIGHT(size)                                     \
    {                                                    \
        GD_UNIFORM(0.2, 2), .fixed = true, GD_DIMS(size) \
    }

static const gd_case nll_loss_cases[] = {
    {"mean_5x11", &mean, GD_INPUTS(LOGS(5, 11), {GD_INDEX(11), GD_DIMS(5)}, GD_ABSENT)},
    {"sum_weight", &sum, GD_INPUTS(LOGS(4, 7), {GD_INDEX(7), GD_DIMS(4)}, WEIGHT(7))},
    {"mean_weight", &mean, GD_INPUTS(LOGS(6, 5), {GD_INDEX(5), GD_DIMS(6)}, WEIGHT(5))},
    {"none", &none, GD_INPUTS(LOGS(2, 3, 5), {GD_INDEX(5), GD_DIMS(2, 3)}, GD_ABSENT)},
    {"ignore_12x3", &ignore, GD_INPUTS(LOGS(12, 3), {GD_INDEX(3), GD_DIMS(12)}, WEIGHT(3))},
    {"ignore_none", &ignore_none, GD_INPUTS(LOGS(9, 4), {GD_INDEX(4), GD_DIMS(9)}, WEIGHT(4))},
    {"one_row", &mean, GD_INPUTS(LOGS(6), {GD_INDEX(6), GD_SCALAR}, GD_ABSENT)},
    {"long", &mean, GD_INPUTS(LOGS(2100, 2), {GD_INDEX(2), GD_DIMS(2100)}, GD_ABSENT)},
    {"no_rows", &sum, GD_INPUTS({GD_DIMS(0, 4)}, {GD_INDEX(4), GD_DIMS(0)}, GD_ABSENT),
     .may_be_empty = true},
};

const gd_op gd_op_nll_loss = {
    .name = "nll_loss",
    .formula = "loss = mean or sum over rows of -weight[target] log_probs[target]",
    .signature = "log_probs[..., V] targets:int32[...] weight[V]? -> "
                 "loss:compute[...]; factor:compute[]",
    GD_ARGS(gd_cross_entropy_args),
    .backward_reads_inputs = GD_BIT(1) | GD_BIT(2),
    GD_BUILT_IN,
    GD_RANGES(CROSS_ENTROPY_RANGES(0, "0: gd_cross_entropy_with has it")),
    .mixed = GD_BIT(GD_CUDA), /* what is taken of log_probs is converted, not all of it */
    .shape = cross_entropy_loss_shape,
    .forward = {[GD_CPU] = nll_loss_forward_cpu},
    .backward = {[GD_CPU] = nll_loss_backward_cpu},
    .definition = nll_loss_definition,
    GD_CASES(nll_loss_cases),
};

gd_tensor *gd_nll_loss(gd_tensor *log_probs, gd_tensor *targets,
                       const gd_cross_entropy_options *options)
    GD_APPLIES(nll_loss, ((gd_cross_entropy_args[]){cross_entropy_args_of(options)}), log_probs,
               targets, options ? options->weight : NULL)
