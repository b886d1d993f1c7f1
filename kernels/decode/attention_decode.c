/* attention_decode.c - the op: attention of one more token on those before it, whose keys and
 * values are kept. README.md says what it replaces. */
#include "decode/attention_decode.h"
#include "arguments.h"

GD_KERNEL(attention_decode_forward)

static gd_status check_qkv(const gd_call *call)
{
    const gd_tensor *qkv = call->input[0];
    gd_call reals = *call;
    reals.inputs = 3;
    if (gd_check_one_dtype(&reals)) return GD_ERROR_ARGUMENT;
    if (gd_tensor_ndim(qkv) == 4 && gd_tensor_dim(qkv, 1) == 1 && gd_tensor_dim(qkv, 3) % 2 == 0) {
        return GD_OK;
    }
    return gd_refuse(call, "qkv has shape %s, wanted [B, 1, H + 2 KV, D] with D even",
                     gd_shape_text(qkv).text);
}

/* Input i, the keys or the values: both of one shape that goes with qkv. */
static gd_status check_kept(const gd_call *call, int i)
{
    const gd_tensor *qkv = call->input[0], *keys = call->input[1], *t = call->input[i];
    bool fits = gd_tensor_ndim(t) == 4 && gd_tensor_dim(t, 0) == gd_tensor_dim(qkv, 0) &&
                gd_tensor_dim(t, 1) == gd_tensor_dim(keys, 1) &&
                gd_tensor_dim(t, 2) == gd_tensor_dim(keys, 2) &&
                gd_tensor_dim(t, 3) == gd_tensor_dim(qkv, 3);
    const int64_t KV = gd_tensor_dim(t, 2), H = gd_tensor_dim(qkv, 2) - 2 * KV;
    if (fits && KV > 0 && H > 0 && H % KV == 0) return GD_OK;
    return gd_refuse(call,
                     "%s has shape %s, wanted [%lld, capacity, KV, %lld], as keys has, to go with "
                     "qkv %s of H + 2 KV heads, H a multiple of KV",
                     gd_input_name(call->op, i).text, gd_shape_text(t).text,
                     (long long)gd_tensor_dim(qkv, 0), (long long)gd_tensor_dim(qkv, 3),
                     gd_shape_text(qkv).text);
}

static gd_status attention_decode_shape(const gd_call *call, gd_shapes *out)
{
    const attention_decode_args *args = call->args;
    const gd_tensor *position = call->input[3];
    if (check_qkv(call) || check_kept(call, 1) || check_kept(call, 2)) return GD_ERROR_ARGUMENT;
    if (gd_tensor_dtype(position) != GD_INT32 || gd_tensor_count(position) != 1)
        return gd_refuse(call, "position is %s, wanted one int32", gd_kind(position).text);
    if (!(args->base > 0)) return gd_refuse(call, "base is %g, wanted more than 0", args->base);
    if (args->position != 0)
        return gd_refuse(
            call, "options->position is %lld, wanted it unset, since position is a tensor here",
            (long long)args->position);
    out->output[0] = gd_spec_like(call->input[0]);
    out->output[0].shape[2] = attention_decode_sizes_of(call).H;
    return GD_OK;
}

static const attention_decode_args half = {.base = 10000}, other_base = {.base = 500},
                                   pairs = {.base = 10000, .interleaved = true};

/* GD_INDEX(n) draws the position; the others have no gradient. */
#define FIXED(...)                          \
    {                                       \
        .fixed = true, GD_DIMS(__VA_ARGS__) \
    }
#define CASE(case_name, case_args, heads, B, capacity, KV, D, positions)                       \
    {                                                                                          \
        .name = case_name, .args = &case_args,                                                 \
        GD_INPUTS(FIXED(B, 1, heads, D), FIXED(B, capacity, KV, D), FIXED(B, capacity, KV, D), \
                  {GD_INDEX(positions), GD_DIMS(1)}),                                          \
        .may_be_empty = true                                                                   \
    }

static const gd_case cases[] = {
    CASE("one_each", half, 9, 2, 7, 3, 8, 7),
    CASE("grouped", other_base, 8, 1, 40, 2, 6, 40),
    CASE("interleaved", pairs, 4, 2, 30, 1, 10, 30),
    CASE("first_token", half, 3, 1, 5, 1, 64, 1),
    CASE("many_keys", half, 10, 1, 3000, 2, 64, 3000),
    CASE("wide", half, 4, 1, 20, 1, 600, 20),
};

const gd_op gd_op_attention_decode = {
    .name = "attention_decode",
    .formula = "attention of one token over the cached keys and values and its own, which are "
               "stored at its position",
    .inputs = 4,
    .input_names = {"qkv", "keys", "values", "position"},
    .outputs = 1,
    .args_size = sizeof(attention_decode_args),
    .plain_args = true,
    .updates_inputs = GD_BIT(1) | GD_BIT(2),
    .shape = attention_decode_shape,
    .forward = GD_ON_DEVICES(attention_decode_forward),
    GD_CASES(cases),
};

gd_tensor *gd_attention_decode(gd_tensor *qkv, gd_tensor *keys, gd_tensor *values,
                               gd_tensor *position, const gd_rope_options *options)
{
    const attention_decode_args args = rope_args_of(options);
    gd_tensor *const inputs[] = {qkv, keys, values, position};
    return gd_apply(&gd_op_attention_decode, inputs, 4, &args);
}
