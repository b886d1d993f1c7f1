/* swiglu.c - the op: a gated unit. README.md has the derivation. */
#include "swiglu/swiglu.h"
#include "gradus/ops.h"
#include "kernel.h"

GD_KERNEL(swiglu_forward)
GD_KERNEL(swiglu_backward)

/* One tensor for both: its last dimension has two halves. */
static gd_status halves_shape(const gd_call *call, gd_spec *output)
{
    const gd_tensor *gate = call->input[0];
    const int last = gd_tensor_ndim(gate) - 1;
    if (last < 0 || gd_tensor_dim(gate, last) % 2 || !gd_dtype_is_real(gd_tensor_dtype(gate))) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT,
                            "gate is %s %s and up is NULL, wanted a real [..., 2 N] that holds "
                            "both",
                            gd_dtype_name(gd_tensor_dtype(gate)), gd_shape_text(gate).text);
    }
    output[0] = gd_spec_like(gate);
    output[0].shape[last] /= 2;
    return GD_OK;
}

static gd_status swiglu_shape(const gd_call *call, gd_spec *output, gd_spec *save, uint64_t *words)
{
    (void)save;
    (void)words;
    const gd_tensor *gate = call->input[0], *up = call->input[1];
    if (!up) return halves_shape(call, output);
    bool same =
        gd_tensor_dtype(gate) == gd_tensor_dtype(up) && gd_tensor_ndim(gate) == gd_tensor_ndim(up);
    for (int d = 0; same && d < gd_tensor_ndim(gate); d++) {
        same = gd_tensor_shape(gate)[d] == gd_tensor_shape(up)[d];
    }
    if (!same || !gd_dtype_is_real(gd_tensor_dtype(gate))) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT,
                            "up is %s %s, wanted a real dtype and the shape of gate, %s %s",
                            gd_dtype_name(gd_tensor_dtype(up)), gd_shape_text(up).text,
                            gd_dtype_name(gd_tensor_dtype(gate)), gd_shape_text(gate).text);
    }
    output[0] = gd_spec_like(gate);
    return GD_OK;
}

#define BOTH(...)          \
    {"gate", __VA_ARGS__}, \
    {                      \
        "up", __VA_ARGS__  \
    }

/* One tensor of two halves. */
#define HALVES(...)          \
    {"gate", __VA_ARGS__},   \
    {                        \
        "up", .absent = true \
    }

static const gd_case swiglu_cases[] = {
    {.name = "3x17", .inputs = 2, .input = {BOTH(.ndim = 2, .shape = {3, 17})}},
    {.name = "large_gates", .inputs = 2, .input = {BOTH(.b = 10, .ndim = 1, .shape = {65})}},
    {.name = "one", .inputs = 2, .input = {BOTH(.ndim = 0)}},
    {.name = "halves_3x2x17", .inputs = 2, .input = {HALVES(.ndim = 2, .shape = {3, 34})}},
    {.name = "halves_2x3x2x16", .inputs = 2, .input = {HALVES(.ndim = 3, .shape = {2, 3, 32})}},
    {.name = "large_halves", .inputs = 2, .input = {HALVES(.b = 10, .ndim = 1, .shape = {66})}},
    {.name = "empty",
     .inputs = 2,
     .may_be_empty = true,
     .input = {BOTH(.ndim = 2, .shape = {0, 4})}},
    {.name = "empty_halves",
     .inputs = 2,
     .may_be_empty = true,
     .input = {HALVES(.ndim = 2, .shape = {3, 0})}},
};

const gd_op gd_op_swiglu = {
    .name = "swiglu",
    .formula = "y = silu(gate) * up, silu(z) = z / (1 + exp(-z))",
    .inputs = 2,
    .optional_inputs = 1u << 1,
    .outputs = 1,
    .backward_reads_inputs = 3,
    .dinput_over_doutput = 2, /* dup, and dgate over gate: a block is read before it is written */
    .dinput_over_input = 1,
    .shape = swiglu_shape,
    .forward = GD_ON_DEVICES(swiglu_forward),
    .backward = GD_ON_DEVICES(swiglu_backward),
    .cases = swiglu_cases,
    .case_count = sizeof swiglu_cases / sizeof *swiglu_cases,
};

gd_tensor *gd_swiglu(gd_tensor *gate, gd_tensor *up)
{
    return gd_apply(&gd_op_swiglu, (gd_tensor *[]){gate, up}, 2, NULL);
}
