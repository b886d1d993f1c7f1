/* rope.c - the op: rotary position embedding. README.md has the derivation. */
#include "rope/rope.h"

GD_KERNEL(rope_forward)
GD_KERNEL(rope_backward)

/* x [B, T, H, D] -> like x */
static gd_status rope_shape(const gd_call *call, gd_spec *output, gd_spec *save, uint64_t *words)
{
    (void)save;
    (void)words;
    const gd_rope_args *args = call->args;
    const gd_tensor *x = call->input[0];
    if (gd_tensor_ndim(x) != 4 || gd_tensor_dim(x, 3) % 2 ||
        !gd_dtype_is_real(gd_tensor_dtype(x))) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT,
                            "x is %s %s, wanted a real [B, T, H, D] with D even",
                            gd_dtype_name(gd_tensor_dtype(x)), gd_shape_text(x).text);
    }
    if (!(args->base > 0)) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "base is %g, wanted more than 0", args->base);
    }
    const int64_t last = INT64_C(1) << 53; /* beyond, a double does not have them all */
    if (args->position < 0 || args->position > last) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "position is %lld, wanted 0 to %lld",
                            (long long)args->position, (long long)last);
    }
    output[0] = gd_spec_like(x);
    return GD_OK;
}

static const gd_rope_args half = {10000, 0, false}, later = {500, 12, false},
                          pairs = {10000, 3, true};

static const gd_case rope_cases[] = {
    {"halves_2x5x3x8", &half, GD_INPUTS({GD_DIMS(2, 5, 3, 8)})},
    {"halves_from_12", &later, GD_INPUTS({GD_DIMS(1, 7, 2, 6)})},
    {"interleaved_from_3", &pairs, GD_INPUTS({GD_DIMS(2, 3, 1, 10)})},
    {"one_pair", &half, GD_INPUTS({GD_DIMS(1, 2, 1, 2)})},
    {"no_rows", &half, GD_INPUTS({GD_DIMS(2, 0, 3, 8)}), .may_be_empty = true},
};

const gd_op gd_op_rope = {
    .name = "rope",
    .formula = "pairs of x turned by the angle position * base^(-2i/D)",
    .inputs = 1,
    .input_names = {"x"},
    .outputs = 1,
    .args_size = sizeof(gd_rope_args),
    .dinput_over_doutput = GD_BIT(0),
    .shape = rope_shape,
    .forward = GD_ON_DEVICES(rope_forward),
    .backward = GD_ON_DEVICES(rope_backward),
    .cases = rope_cases,
    .case_count = sizeof rope_cases / sizeof *rope_cases,
};

gd_tensor *gd_rope(gd_tensor *x, const gd_rope_options *options)
{
    gd_rope_args args = options ? *options : (gd_rope_options){0};
    args.base = gd_option(args.base, 10000);
    if (args.position == GD_ZERO) args.position = 0;
    return gd_apply(&gd_op_rope, &x, 1, &args);
}
