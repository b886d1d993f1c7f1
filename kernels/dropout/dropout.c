/* dropout.c - the op: zeros at random. README.md has the derivation. */
#include "dropout/dropout.h"
#include "gradus/ops.h"

GD_KERNEL(dropout_forward)
GD_KERNEL(dropout_backward)

static gd_status dropout_shape(const gd_call *call, gd_spec *output, gd_spec *save, uint64_t *words)
{
    (void)save;
    const gd_dropout_args *args = call->args;
    if (!(args->p >= 0 && args->p < 1)) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "p is %g, wanted 0 <= p < 1", args->p);
    }
    if (!gd_dtype_is_real(gd_tensor_dtype(call->input[0]))) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "x is int32 %s, wanted a real dtype",
                            gd_shape_text(call->input[0]).text);
    }
    output[0] = gd_spec_like(call->input[0]);
    *words = args->p > 0 ? (uint64_t)gd_tensor_count(call->input[0]) : 0;
    return GD_OK;
}

static const gd_dropout_args none = {0}, some = {0.3}, most = {0.9};

static const gd_case dropout_cases[] = {
    {.name = "p0.3_7x19",
     .args = &some,
     .inputs = 1,
     .input = {{"x", .ndim = 2, .shape = {7, 19}}}},
    {.name = "p0.9", .args = &most, .inputs = 1, .input = {{"x", .ndim = 1, .shape = {200}}}},
    {.name = "p0", .args = &none, .inputs = 1, .input = {{"x", .ndim = 1, .shape = {5}}}},
    {.name = "empty",
     .args = &some,
     .inputs = 1,
     .may_be_empty = true,
     .input = {{"x", .ndim = 1, .shape = {0}}}},
};

const gd_op gd_op_dropout = {
    .name = "dropout",
    .formula = "y = x * keep / (1 - p), keep = 1 with probability 1 - p",
    .inputs = 1,
    .outputs = 1,
    .args_size = sizeof(gd_dropout_args),
    .dinput_over_doutput = 1,
    .random = true,
    .shape = dropout_shape,
    .forward = GD_ON_DEVICES(dropout_forward),
    .backward = GD_ON_DEVICES(dropout_backward),
    .cases = dropout_cases,
    .case_count = sizeof dropout_cases / sizeof *dropout_cases,
};

gd_tensor *gd_dropout(gd_tensor *x, double p)
{
    gd_dropout_args args = {p};
    return gd_apply(&gd_op_dropout, &x, 1, &args);
}
