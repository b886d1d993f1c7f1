/* rope.c - the ops: rotary position embedding, of one tensor (rope), and of the queries and keys in
 * a product of queries, keys and values (rope_qkv). README.md has the derivation. */
#include "rope/rope.h"
#include "arguments.h"
#include "derivation.h"

extern const gd_op gd_op_rope;

GD_KERNEL_PAIR(rope)

gd_rope_args rope_args_of(const gd_rope_options *options)
{
    const gd_rope_options o = options ? *options : (gd_rope_options){0};
    return (gd_rope_args){.base = gd_option(o.base, 10000),
                          .position = gd_whole_option(o.position, 0),
                          .interleaved = o.interleaved};
}

/* ---- By ops ------------------------------------------------------------------------------- */

/* Pairs of x turned back. With s, the sign of the second element of each pair turned, a rotation by
 * the opposite angle is s rope(s x); NULL for NULL. */
static gd_tensor *turned_back(gd_tensor *x, const gd_rope_args *args)
{
    if (!x) return NULL;
    const int64_t D = gd_tensor_dim(x, 3);
    gd_tensor *sign[2];
    for (int i = 0; i < 2; i++)
        sign[i] =
            gd_constant(gd_tensor_context(x), gd_tensor_dtype(x), GD_SHAPE(D / 2, 1), i ? -1 : 1);
    gd_tensor *s = gd_reshape(gd_concat(sign, 2, args->interleaved), GD_SHAPE(D)), *y = mul(s, x);
    return mul(s, gd_apply(&gd_op_rope, &y, 1, args));
}

static void rope_derivative(const gd_call *call)
{
    call->dinput[0] = turned_back(call->doutput[0], call->args);
}

static void rope_qkv_derivative(const gd_call *call)
{
    const gd_rope_qkv_args *args = call->args;
    gd_tensor *part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = i < 2 ? turned_back(call->doutput[i], &args->rope) : call->doutput[i];
        if (!part[i]) part[i] = all_of(call->output[i], 0);
    }
    call->dinput[0] = gd_concat(part, 3, 2);
}

/* ---- rope --------------------------------------------------------------------------------- */

static const gd_rope_args half = {.base = 10000}, later = {.base = 500, .position = 12},
                          pairs = {.base = 10000, .position = 3, .interleaved = true};

static const gd_case rope_cases[] = {
    {"halves_2x5x3x8", &half, GD_INPUTS({GD_DIMS(2, 5, 3, 8)})},
    {"halves_from_12", &later, GD_INPUTS({GD_DIMS(1, 7, 2, 6)})},
    {"interleaved_from_3", &pairs, GD_INPUTS({GD_DIMS(2, 3, 1, 10)})},
    {"many_batches", &half, GD_INPUTS({GD_DIMS(9, 3, 2, 16)})},
    {"one_pair", &half, GD_INPUTS({GD_DIMS(1, 2, 1, 2)})},
    {"no_rows", &half, GD_INPUTS({GD_DIMS(2, 0, 3, 8)}), .may_be_empty = true},
};

const gd_op gd_op_rope = {
    .formula = "pairs of x turned by the angle position * base^(-2i/D)",
    .signature = "x[B, T, H, 2D] -> y[B, T, H, 2D]",
    GD_RANGES(ROPE_RANGES(gd_rope_args, )),
    GD_ARGS(gd_rope_args),
    .dinput_over_doutput = GD_BIT(0),
    .strided = true,
    GD_KERNELS(rope),
    .derivative = rope_derivative,
    GD_CASES(rope_cases),
};

gd_tensor *gd_rope(gd_tensor *x, const gd_rope_options *options)
    GD_APPLIES(rope, ((gd_rope_args[]){rope_args_of(options)}), x)

/* ---- rope_qkv ----------------------------------------------------------------------------- */

gd_status rope_qkv_check(const gd_call *call, const gd_rope_qkv_args *args)
{
    const gd_tensor *qkv = call->input[0];
    const int64_t heads = gd_tensor_dim(qkv, 2), most = heads > 0 ? (heads - 1) / 2 : 0;
    if (args->kv_heads < 1 || args->kv_heads > most)
        return gd_refuse(call,
                         "kv_heads is %lld, wanted 1 to %lld, since qkv %s has %lld heads of "
                         "queries, keys and values",
                         (long long)args->kv_heads, (long long)most, gd_shape_text(qkv).text,
                         (long long)heads);
    return GD_OK;
}

/* qkv [B, T, H + 2 KV, D] -> q [B, T, H, D], k and v [B, T, KV, D] */
static gd_status rope_qkv_shape(const gd_call *call, gd_shapes *out)
{
    const gd_rope_qkv_args *args = call->args;
    if (rope_qkv_check(call, args)) return GD_ERROR_ARGUMENT;
    out->output[0].shape[2] -= 2 * args->kv_heads;
    out->output[1].shape[2] = out->output[2].shape[2] = args->kv_heads;
    return GD_OK;
}

static const gd_rope_qkv_args one_each = {{.base = 10000}, 1},
                              grouped = {{.base = 500, .position = 12}, 2},
                              in_pairs = {{.base = 10000, .position = 3, .interleaved = true}, 1};

static const gd_case rope_qkv_cases[] = {
    {"one_each_2x5x3x8", &one_each, GD_INPUTS({GD_DIMS(2, 5, 3, 8)})},
    {"grouped", &grouped, GD_INPUTS({GD_DIMS(2, 3, 8, 6)})},
    {"interleaved", &in_pairs, GD_INPUTS({GD_DIMS(1, 4, 5, 10)})},
    {"many_batches", &grouped, GD_INPUTS({GD_DIMS(9, 2, 6, 16)})},
    {"no_rows", &one_each, GD_INPUTS({GD_DIMS(2, 0, 3, 8)}), .may_be_empty = true},
};

const gd_op gd_op_rope_qkv = {
    .name = "rope_qkv",
    .formula = "q, k and v from qkv, q and k rotated as by rope",
    .signature = "qkv[B, T, N, 2D] -> q[B, T, N, 2D] k[B, T, N, 2D] v[B, T, N, 2D]",
    GD_RANGES(ROPE_RANGES(gd_rope_qkv_args, rope.)),
    GD_ARGS(gd_rope_qkv_args),
    .strided = true,
    .shape = rope_qkv_shape,
    .forward = GD_ON_DEVICES(rope_forward),
    .backward = GD_ON_DEVICES(rope_backward),
    GD_BUILT_IN,
    .derivative = rope_qkv_derivative,
    GD_CASES(rope_qkv_cases),
};

gd_status gd_rope_qkv(gd_tensor *qkv, int64_t kv_heads, const gd_rope_options *options,
                      gd_tensor **q, gd_tensor **k, gd_tensor **v)
{
    const gd_rope_qkv_args args = {rope_args_of(options), kv_heads};
    gd_tensor **const to[] = {q, k, v}, *outputs[3] = {NULL};
    gd_status status = GD_OK;
    for (int i = 0; i < 3; i++) {
        if (to[i])
            *to[i] = NULL;
        else if (!status)
            status = gd_fail(gd_tensor_context(qkv), GD_ERROR_ARGUMENT,
                             "rope_qkv: %c is NULL, wanted a place for the tensor", "qkv"[i]);
    }
    if (!status) status = gd_apply_multi(&gd_op_rope_qkv, &qkv, 1, &args, outputs);
    for (int i = 0; i < 3 && !status; i++) *to[i] = outputs[i];
    return status;
}
