/* dropout.c - the op: zeros at random. README.md has the derivation. */
#include "dropout/dropout.h"
#include "arguments.h"
#include "gradus/ops.h"

GD_KERNEL_PAIR(dropout)

static gd_status draw(const gd_call *call, gd_shapes *out)
{
    const gd_dropout_args *args = call->args;
    const int64_t count = gd_tensor_count(call->input[0]);
    out->random_words = gd_dropout_threshold(args->p) ? (uint64_t)gd_divide_up(count, 2) : 0;
    return GD_OK;
}

/* The stream is where the forward found it, so the mask is the same. */
static void dropout_derivative(const gd_call *call)
{
    call->dinput[0] = gd_apply(call->op, call->doutput, 1, call->args);
}

static const gd_dropout_args none = {0}, some = {0.25}, most = {0.9};

static const gd_case dropout_cases[] = {
    {"p0.25_7x19", &some, GD_INPUTS({GD_DIMS(7, 19)})},
    {"p0.9", &most, GD_INPUTS({GD_DIMS(200)})},
    {"p0", &none, GD_INPUTS({GD_DIMS(5)})},
    {"empty", &some, GD_INPUTS({GD_DIMS(0)}), .may_be_empty = true},
};

const gd_op gd_op_dropout = {
    .formula = "y = x * keep / (1 - p), keep = 1 with probability 1 - p",
    .signature = "x[...] -> y[...]",
    GD_ARGS(gd_dropout_args),
    .dinput_over_doutput = GD_BIT(0),
    .random = true,
    GD_RANGES({"p", GD_FIELD(gd_dropout_args, p), 0, 1 - DBL_EPSILON / 2, "0 <= p < 1"}),
    .shape = draw,
    GD_KERNELS(dropout),
    .derivative = dropout_derivative,
    GD_CASES(dropout_cases),
};

gd_tensor *gd_dropout(gd_tensor *x, double p) GD_APPLIES(dropout, &(gd_dropout_args){p}, x)
