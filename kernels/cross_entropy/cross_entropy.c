/* cross_entropy.c - the op: softmax, logarithm and the choice of the target in one. README.md has
 * the derivation. */
#include "cross_entropy/cross_entropy.h"

GD_KERNEL(cross_entropy_forward)
GD_KERNEL(cross_entropy_backward)

gd_status cross_entropy_check(const gd_call *call, const char *name, const gd_tensor *rows,
                              const gd_tensor *targets)
{
    const gd_cross_entropy_args *args = call->args;
    const int ndim = gd_tensor_ndim(rows);
    bool same = gd_tensor_dtype(targets) == GD_INT32 && gd_tensor_ndim(targets) == ndim - 1;
    for (int d = 0; same && d + 1 < ndim; d++) {
        same = gd_tensor_shape(targets)[d] == gd_tensor_shape(rows)[d];
    }
    if (!same) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT,
                            "targets is %s %s, wanted int32 and the shape of %s %s without its "
                            "last dimension",
                            gd_dtype_name(gd_tensor_dtype(targets)), gd_shape_text(targets).text,
                            name, gd_shape_text(rows).text);
    }
    if (args->reduction != GD_MEAN && args->reduction != GD_SUM) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "reduction is %d, wanted GD_MEAN or GD_SUM",
                            (int)args->reduction);
    }
    return GD_OK;
}

/* logits [..., V], targets [...] -> loss [], in float32 at least: in 16 bits a loss of 4 would have
 * steps of 1/32. Saves the two parts of logsumexp, the maximum [...] and the logarithm of the sum
 * [...], and the factor [] by which a row enters the loss: 1, or 1 / the number of rows that
 * count. */
static gd_status cross_entropy_shape(const gd_call *call, gd_spec *output, gd_spec *save,
                                     uint64_t *words)
{
    (void)words;
    const gd_tensor *logits = call->input[0], *targets = call->input[1];
    if (gd_tensor_ndim(logits) < 1 || !gd_dtype_is_real(gd_tensor_dtype(logits))) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "logits is %s %s, wanted a real [..., V]",
                            gd_dtype_name(gd_tensor_dtype(logits)), gd_shape_text(logits).text);
    }
    if (cross_entropy_check(call, "logits", logits, targets)) return GD_ERROR_ARGUMENT;
    output[0] = (gd_spec){.dtype = call->dtype, .ndim = 0};
    save[0] = gd_spec_like(targets);
    save[0].dtype = call->dtype;
    save[1] = save[0];
    save[2] = (gd_spec){.dtype = call->dtype, .ndim = 0};
    return GD_OK;
}

static const gd_cross_entropy_args mean = {GD_MEAN, 0, false}, sum = {GD_SUM, 0, false},
                                   ignore = {GD_MEAN, 1, true}, ignore_sum = {GD_SUM, 2, true};

static const gd_case cross_entropy_cases[] = {
    {"mean_5x11", &mean, GD_INPUTS({GD_DIMS(5, 11)}, {GD_INDEX(11), GD_DIMS(5)})},
    {"sum_4x7", &sum, GD_INPUTS({GD_DIMS(4, 7)}, {GD_INDEX(7), GD_DIMS(4)})},
    {"ignore_12x3", &ignore, GD_INPUTS({GD_DIMS(12, 3)}, {GD_INDEX(3), GD_DIMS(12)})},
    {"ignore_sum_9x4", &ignore_sum, GD_INPUTS({GD_DIMS(9, 4)}, {GD_INDEX(4), GD_DIMS(9)})},
    {"one_row", &mean, GD_INPUTS({GD_DIMS(6)}, {GD_INDEX(6), GD_SCALAR})},
    {"three_dimensions", &mean, GD_INPUTS({GD_DIMS(2, 3, 5)}, {GD_INDEX(5), GD_DIMS(2, 3)})},
    {"far_from_zero", &mean,
     GD_INPUTS({GD_NORMAL(500, 1), GD_DIMS(3, 9)}, {GD_INDEX(9), GD_DIMS(3)})},
    {"no_rows", &sum, GD_INPUTS({GD_DIMS(0, 4)}, {GD_INDEX(4), GD_DIMS(0)}), .may_be_empty = true},
};

const gd_op gd_op_cross_entropy = {
    .name = "cross_entropy",
    .formula = "loss = mean or sum over rows of logsumexp(logits) - logits[target]",
    .inputs = 2,
    .input_names = {"logits", "targets"},
    .outputs = 1,
    .saves = 3,
    .args_size = sizeof(gd_cross_entropy_args),
    .backward_reads_inputs = GD_ALL_INPUTS,
    .dinput_over_input = GD_BIT(0),
    .mixed = true,
    .shape = cross_entropy_shape,
    .forward = GD_ON_DEVICES(cross_entropy_forward),
    .backward = GD_ON_DEVICES(cross_entropy_backward),
    .cases = cross_entropy_cases,
    .case_count = sizeof cross_entropy_cases / sizeof *cross_entropy_cases,
};

gd_cross_entropy_args cross_entropy_args_of(const gd_cross_entropy_options *options)
{
    const gd_cross_entropy_options o = options ? *options : (gd_cross_entropy_options){0};
    return (gd_cross_entropy_args){.reduction = o.reduction,
                                   .ignore_index = (int32_t)gd_option(o.ignore_index, 0),
                                   .use_ignore_index = o.ignore_index != 0};
}

gd_tensor *gd_cross_entropy_with(gd_tensor *logits, gd_tensor *targets,
                                 const gd_cross_entropy_options *options)
{
    const gd_cross_entropy_args args = cross_entropy_args_of(options);
    return gd_apply(&gd_op_cross_entropy, (gd_tensor *[]){logits, targets}, 2, &args);
}

gd_tensor *gd_cross_entropy(gd_tensor *logits, gd_tensor *targets)
{
    return gd_cross_entropy_with(logits, targets, NULL);
}
