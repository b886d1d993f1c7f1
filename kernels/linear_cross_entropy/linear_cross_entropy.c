/* linear_cross_entropy.c - the op: the loss of a model's last layer, whose logits are not kept.
 * README.md has the derivation. */
#include "linear_cross_entropy/linear_cross_entropy.h"
#include "arguments.h"

extern const gd_op gd_op_cross_entropy;

GD_KERNEL_PAIR(linear_cross_entropy)

/* x [..., K], weight [V, K], targets [...] -> loss [], in float32 at least. Saves the factor [] of
 * a row in the loss, and the data for the gradients, without that factor and dloss: those for
 * dlogits, d = softmax(logits) - [j = target] [rows, head_columns]; or, where the rows go in
 * pieces, d weight and d^T x, if needed. */
static gd_status linear_cross_entropy_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *x = call->input[0];
    const bool gpu = gd_context_device(call->context) != GD_CPU;
    const gd_dtype dtype = gpu ? gd_tensor_dtype(x) : call->dtype;
    const head_sizes s = head_sizes_of(call);
    const bool pieces = head_in_pieces(&s, gd_dtype_size(dtype), gd_dtype_size(call->dtype));
    out->save[SAVE_D] = (gd_spec){
        .dtype = dtype, .ndim = pieces ? -1 : 2, .shape = {s.M, head_columns(call, dtype)}};
    for (int i = 0; i < 2; i++) {
        if (!pieces || !gd_tensor_requires_grad(call->input[i])) out->save[SAVE_DX + i].ndim = -1;
    }
    out->save[SAVE_DWEIGHT].shape[0] = head_columns(call, dtype);
    return GD_OK;
}

static void linear_cross_entropy_definition(const gd_call *call)
{
    gd_tensor *logits = gd_linear(call->input[0], call->input[1], NULL);
    call->output[0] = gd_apply(&gd_op_cross_entropy, (gd_tensor *[]){logits, call->input[2], NULL},
                               3, call->args);
}

static const gd_cross_entropy_args mean = {.reduction = GD_MEAN}, sum = {.reduction = GD_SUM},
                                   ignore = {.ignore_index = 1, .use_ignore_index = true},
                                   ignore_sum = {.reduction = GD_SUM,
                                                 .ignore_index = 2,
                                                 .use_ignore_index = true};

static const gd_case cases[] = {
    {"mean_5x3x11", &mean,
     GD_INPUTS({GD_DIMS(5, 3)}, {GD_DIMS(11, 3)}, {GD_INDEX(11), GD_DIMS(5)})},
    {"sum_4x6x7", &sum, GD_INPUTS({GD_DIMS(4, 6)}, {GD_DIMS(7, 6)}, {GD_INDEX(7), GD_DIMS(4)})},
    {"ignore_12x2x3", &ignore,
     GD_INPUTS({GD_DIMS(12, 2)}, {GD_DIMS(3, 2)}, {GD_INDEX(3), GD_DIMS(12)})},
    {"ignore_sum_9x5x4", &ignore_sum,
     GD_INPUTS({GD_DIMS(9, 5)}, {GD_DIMS(4, 5)}, {GD_INDEX(4), GD_DIMS(9)})},
    {"even_16x8x24", &mean,
     GD_INPUTS({GD_DIMS(16, 8)}, {GD_DIMS(24, 8)}, {GD_INDEX(24), GD_DIMS(16)})},
    {"wide_3x4x1100", &mean,
     GD_INPUTS({GD_DIMS(3, 4)}, {GD_DIMS(1100, 4)}, {GD_INDEX(1100), GD_DIMS(3)})},
    {"three_dimensions", &mean,
     GD_INPUTS({GD_DIMS(2, 3, 4)}, {GD_DIMS(5, 4)}, {GD_INDEX(5), GD_DIMS(2, 3)})},
    {"no_rows", &sum, GD_INPUTS({GD_DIMS(0, 4)}, {GD_DIMS(3, 4)}, {GD_INDEX(3), GD_DIMS(0)}),
     .may_be_empty = true},
    {"pieces_12301x1x12", &mean,
     GD_INPUTS({GD_DIMS(12301, 1)}, {GD_DIMS(12, 1)}, {GD_INDEX(12), GD_DIMS(12301)})},
};

const gd_op gd_op_linear_cross_entropy = {
    .formula = "loss = cross_entropy(x weight^T, targets)",
    .signature = "x[..., K] weight[V, K] targets:int32[...] -> loss:compute[]; "
                 "d factor:compute[] dx:compute[..., K] dweight:compute[V, K]",
    GD_ARGS(gd_cross_entropy_args),
    .backward_reads_inputs = GD_BIT(0) | GD_BIT(1),
    .dinput_float32 = GD_BIT(1),
    .mixed = GD_BIT(GD_CUDA),
    .ranges = cross_entropy_ranges,
    .shape = linear_cross_entropy_shape,
    GD_KERNELS(linear_cross_entropy),
    .definition = linear_cross_entropy_definition,
    GD_CASES(cases),
};

/* As two ops, whose errors name the arguments of this one. */
static gd_tensor *in_two(gd_tensor *x, gd_tensor *weight, gd_tensor *targets,
                         const gd_cross_entropy_options *options, const gd_cross_entropy_args *args)
{
    static const gd_op head = {.name = "linear_cross_entropy",
                               .signature = "x[..., K] weight[V, K] -> y[..., V]"};
    gd_op loss = gd_op_cross_entropy;
    loss.constant = false, loss.name = head.name, loss.input_names[0] = "x weight^T",
    loss.input_names[2] = "options->weight";
    if (!gd_accepts(&head, (gd_tensor *[]){x, weight}, 2, NULL)) return NULL;
    gd_tensor *logits = gd_linear(x, weight, NULL);
    gd_tensor *const inputs[] = {logits, targets, options ? options->weight : NULL};
    if (!logits || !gd_accepts(&loss, inputs, 3, args)) return NULL;
    return gd_cross_entropy_with(logits, targets, options);
}

gd_tensor *gd_linear_cross_entropy(gd_tensor *x, gd_tensor *weight, gd_tensor *targets,
                                   const gd_cross_entropy_options *options)
{
    const gd_cross_entropy_args args = cross_entropy_args_of(options);
    const bool probabilities = targets && gd_tensor_dtype(targets) != GD_INT32;
    if (probabilities || args.smoothing != 0 || args.reduction == GD_NONE ||
        (options && options->weight)) {
        return in_two(x, weight, targets, options, &args);
    }
    return gd_apply(&gd_op_linear_cross_entropy, (gd_tensor *[]){x, weight, targets}, 3, &args);
}
