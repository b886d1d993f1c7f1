/* swiglu.c - the op: a gated unit. README.md has the derivation. */
#include "swiglu/swiglu.h"
#include "derivation.h"
#include "gradus/ops.h"
#include "kernel.h"
#include "arguments.h"

GD_KERNEL_PAIR(swiglu)

/* Without up, the last dimension of gate has two halves. */
static gd_status swiglu_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *gate = call->input[0];
    const int last = gd_tensor_ndim(gate) - 1;
    if (call->input[1]) return GD_OK;
    if (last < 0 || gd_tensor_dim(gate, last) % 2)
        return gd_refuse(call, "gate is %s and up is NULL, wanted [..., 2N] that holds both",
                         gd_kind(gate).text);
    out->output[0].shape[last] /= 2;
    return GD_OK;
}

/* y = silu(gate) up */
static void swiglu_definition(const gd_call *call)
{
    gd_tensor *gate = call->input[0], *up = call->input[1];
    const int last = gd_tensor_ndim(gate) - 1;
    if (!up) {
        const int64_t n = gd_tensor_dim(gate, last) / 2;
        up = gd_narrow(gate, last, n, n);
        gate = gd_narrow(gate, last, 0, n);
    }
    call->output[0] = mul(gd_silu(gate), up);
}

/* Without up, gate has two halves. */
static const gd_case swiglu_cases[] = {
    {"3x17", NULL, GD_INPUTS({GD_DIMS(3, 17)}, {GD_DIMS(3, 17)})},
    {"large_gates", NULL,
     GD_INPUTS({GD_NORMAL(0, 10), GD_DIMS(65)}, {GD_NORMAL(0, 10), GD_DIMS(65)})},
    {"one", NULL, GD_INPUTS({GD_SCALAR}, {GD_SCALAR})},
    {"halves_3x2x17", NULL, GD_INPUTS({GD_DIMS(3, 34)}, GD_ABSENT)},
    {"halves_2x3x2x16", NULL, GD_INPUTS({GD_DIMS(2, 3, 32)}, GD_ABSENT)},
    {"large_halves", NULL, GD_INPUTS({GD_NORMAL(0, 10), GD_DIMS(66)}, GD_ABSENT)},
    {"empty", NULL, GD_INPUTS({GD_DIMS(0, 4)}, {GD_DIMS(0, 4)}), .may_be_empty = true},
    {"empty_halves", NULL, GD_INPUTS({GD_DIMS(3, 0)}, GD_ABSENT), .may_be_empty = true},
};

const gd_op gd_op_swiglu = {
    .formula = "y = silu(gate) * up, silu(z) = z / (1 + exp(-z))",
    .signature = "gate[...] up[...]? -> y[...]",
    .backward_reads_inputs = GD_ALL_INPUTS,
    .dinput_over_doutput = GD_BIT(1), /* dup */
    .dinput_over_input = GD_BIT(0),   /* dgate: a block is read before it is written */
    .shape = swiglu_shape,
    GD_KERNELS(swiglu),
    .definition = swiglu_definition,
    GD_CASES(swiglu_cases),
};

gd_tensor *gd_swiglu(gd_tensor *gate, gd_tensor *up) GD_APPLIES(swiglu, NULL, gate, up)
