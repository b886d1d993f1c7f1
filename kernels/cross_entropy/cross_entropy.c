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

#define INPUT(rows, v)                                                                            \
    {                                                                                             \
        {"logits", .ndim = 2, .shape = {rows, v}},                                                \
        {                                                                                         \
            "targets", .fill = GD_FILL_INDEX, .b = v, .fixed = true, .ndim = 1, .shape = { rows } \
        }                                                                                         \
    }

static const gd_case cross_entropy_cases[] = {
    {.name = "mean_5x11", .args = &mean, .inputs = 2, .input = INPUT(5, 11)},
    {.name = "sum_4x7", .args = &sum, .inputs = 2, .input = INPUT(4, 7)},
    {.name = "ignore_12x3", .args = &ignore, .inputs = 2, .input = INPUT(12, 3)},
    {.name = "ignore_sum_9x4", .args = &ignore_sum, .inputs = 2, .input = INPUT(9, 4)},
    {.name = "one_row",
     .args = &mean,
     .inputs = 2,
     .input = {{"logits", .ndim = 1, .shape = {6}},
               {"targets", .fill = GD_FILL_INDEX, .b = 6, .fixed = true, .ndim = 0}}},
    {.name = "three_dimensions",
     .args = &mean,
     .inputs = 2,
     .input = {{"logits", .ndim = 3, .shape = {2, 3, 5}},
               {"targets", .fill = GD_FILL_INDEX, .b = 5, .fixed = true, .ndim = 2,
                .shape = {2, 3}}}},
    {.name = "far_from_zero",
     .args = &mean,
     .inputs = 2,
     .input = {{"logits", .a = 500, .ndim = 2, .shape = {3, 9}},
               {"targets", .fill = GD_FILL_INDEX, .b = 9, .fixed = true, .ndim = 1, .shape = {3}}}},
    {.name = "no_rows", .args = &sum, .inputs = 2, .may_be_empty = true, .input = INPUT(0, 4)},
};

const gd_op gd_op_cross_entropy = {
    .name = "cross_entropy",
    .formula = "loss = mean or sum over rows of logsumexp(logits) - logits[target]",
    .inputs = 2,
    .outputs = 1,
    .saves = 3,
    .args_size = sizeof(gd_cross_entropy_args),
    .backward_reads_inputs = 3,
    .dinput_over_input = 1,
    .mixed = true,
    .shape = cross_entropy_shape,
    .forward = GD_ON_DEVICES(cross_entropy_forward),
    .backward = GD_ON_DEVICES(cross_entropy_backward),
    .cases = cross_entropy_cases,
    .case_count = sizeof cross_entropy_cases / sizeof *cross_entropy_cases,
};

gd_tensor *gd_cross_entropy_with(gd_tensor *logits, gd_tensor *targets,
                                 const gd_cross_entropy_options *options)
{
    gd_cross_entropy_args args = options ? *options : (gd_cross_entropy_args){.reduction = GD_MEAN};
    return gd_apply(&gd_op_cross_entropy, (gd_tensor *[]){logits, targets}, 2, &args);
}

gd_tensor *gd_cross_entropy(gd_tensor *logits, gd_tensor *targets)
{
    return gd_cross_entropy_with(logits, targets, NULL);
}
