/* linear.c - y = x weight^T + bias, the layer. README.md derives the gradients. */
#include "arguments.h"
#include "gradus/ops.h"

static gd_status linear_shape(const gd_call *call, gd_spec *output, gd_spec *save, uint64_t *words)
{
    (void)save, (void)words;
    static const char *const names[] = {"x", "weight", "bias"};
    const gd_tensor *x = call->input[0], *weight = call->input[1], *bias = call->input[2];
    if (gd_check_one_dtype(call, names)) return GD_ERROR_ARGUMENT;
    if (gd_tensor_ndim(x) < 1) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT,
                            "x has no dimensions, wanted [..., K] for weight %s",
                            gd_shape_text(weight).text);
    }
    if (gd_tensor_ndim(weight) != 2 || gd_tensor_dim(weight, 1) != gd_tensor_dim(x, -1)) {
        return gd_call_fail(
            call, GD_ERROR_ARGUMENT, "weight has shape %s, wanted [N, %lld] for x %s",
            gd_shape_text(weight).text, (long long)gd_tensor_dim(x, -1), gd_shape_text(x).text);
    }
    int64_t N = gd_tensor_dim(weight, 0);
    if (bias && (gd_tensor_ndim(bias) != 1 || gd_tensor_dim(bias, 0) != N)) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT,
                            "bias has shape %s, wanted [%lld] for weight %s",
                            gd_shape_text(bias).text, (long long)N, gd_shape_text(weight).text);
    }
    output[0] = gd_spec_like(x);
    output[0].shape[output[0].ndim - 1] = N;
    return GD_OK;
}

GD_KERNEL(linear_forward)
GD_KERNEL(linear_backward)

#define X(...)                            \
    {                                     \
        .name = "x", GD_DIMS(__VA_ARGS__) \
    }
#define W(...)                                 \
    {                                          \
        .name = "weight", GD_DIMS(__VA_ARGS__) \
    }
#define BIAS(n)                    \
    {                              \
        .name = "bias", GD_DIMS(n) \
    }
#define NO_BIAS                        \
    {                                  \
        .name = "bias", .absent = true \
    }

static const gd_case cases[] = {
    {.name = "rows4_5_to_7", .inputs = 3, .input = {X(4, 5), W(7, 5), BIAS(7)}},
    {.name = "no_bias", .inputs = 3, .input = {X(4, 5), W(7, 5), NO_BIAS}},
    {.name = "vector", .inputs = 3, .input = {X(9), W(3, 9), BIAS(3)}},
    {.name = "batch", .inputs = 3, .input = {X(2, 3, 6), W(5, 6), BIAS(5)}},
    {.name = "one_to_many", .inputs = 3, .input = {X(11, 1), W(13, 1), BIAS(13)}},
    {.name = "many_to_one", .inputs = 3, .input = {X(11, 17), W(1, 17), BIAS(1)}},
    {.name = "larger", .inputs = 3, .input = {X(3, 67, 33), W(49, 33), BIAS(49)}},
    {.name = "no_rows", .inputs = 3, .input = {X(0, 5), W(3, 5), BIAS(3)}, .may_be_empty = true},
};

const gd_op gd_op_linear = {
    .name = "linear",
    .formula = "y = x weight^T + bias",
    .inputs = 3,
    .optional_inputs = 1u << 2,
    .outputs = 1,
    .backward_reads_inputs = 1u << 0 | 1u << 1,
    .dinput_float32 = 1u << 1 | 1u << 2,
    .shape = linear_shape,
    .forward = GD_ON_DEVICES(linear_forward),
    .backward = GD_ON_DEVICES(linear_backward),
    .cases = cases,
    .case_count = sizeof cases / sizeof *cases,
};

gd_tensor *gd_linear(gd_tensor *x, gd_tensor *weight, gd_tensor *bias)
{
    return gd_apply(&gd_op_linear, (gd_tensor *[]){x, weight, bias}, 3, NULL);
}
