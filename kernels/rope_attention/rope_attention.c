/* rope_attention.c - the op: y = attention(rope(q), rope(k), v), where q, k and v are the heads of
 * one product. It has no kernels of its own. README.md says what it saves. */
#include "rope_attention/rope_attention.h"
#include "attention/dropout.h"
#include "arguments.h"

/* ---- The CPU's kernels --------------------------------------------------------------------- */

static gd_status rope_attention_forward_cpu(const gd_call *call)
{
    rope_attention_calls calls;
    gd_status status = rope_attention_open(call, &calls);
    if (!status) status = gd_op_rope_qkv.forward[GD_CPU](&calls.rope);
    if (!status) status = gd_op_attention.forward[GD_CPU](&calls.attention);
    return status;
}

static gd_status rope_attention_backward_cpu(const gd_call *call)
{
    rope_attention_calls calls;
    gd_status status = rope_attention_open(call, &calls);
    return status ? status : rope_attention_backward_in_two(call, &calls);
}

/* ---- By ops ------------------------------------------------------------------------------- */

static void rope_attention_definition(const gd_call *call)
{
    const rope_attention_args *args = call->args;
    gd_tensor *in[4] = {NULL}; /* q, k, v, and no mask */
    gd_apply_multi(&gd_op_rope_qkv, call->input, 1, &args->rope, in);
    call->output[0] = gd_apply(&gd_op_attention, in, 4, &args->attention);
}

/* ---- The op ------------------------------------------------------------------------------- */

/* qkv [B, T, H + 2 KV, D] -> [B, T, H, D] */
static gd_status rope_attention_shape(const gd_call *call, gd_shapes *out)
{
    const rope_attention_args *args = call->args;
    if (rope_qkv_check(call, &args->rope)) return GD_ERROR_ARGUMENT;
    const gd_spec q = part_spec(call, 0), k = part_spec(call, 1);
    const int64_t B = q.shape[0], T = q.shape[1], H = q.shape[2], KV = k.shape[2], D = q.shape[3];
    if (H % KV != 0)
        return gd_refuse(
            call, "qkv %s has %lld heads of queries, wanted a multiple of the %lld heads of keys",
            gd_shape_text(call->input[0]).text, (long long)H, (long long)KV);
    out->output[0] = q;
    out->output[0].dtype = gd_tensor_dtype(call->input[0]);
    out->save[SAVE_LSE] = (gd_spec){.dtype = call->dtype, .ndim = 3, .shape = {B, H, T}};
    for (int i = 0; i < 3; i++) out->save[SAVE_Q + i] = part_spec(call, i);
    out->save[SAVE_ANGLES] = (gd_spec){.dtype = GD_FLOAT32, .ndim = 3, .shape = {T, D / 2, 2}};
    if (gd_context_device(call->context) == GD_CPU || args->rope.rope.interleaved) {
        out->save[SAVE_ANGLES].ndim = -1;
    }
    const attention_sizes z = {.B = B, .T = T, .S = T, .H = H};
    out->random_words = attention_dropout_words(&args->attention, &z);
    return GD_OK;
}

static const rope_attention_args
    full = {{{.base = 10000}, 1}, {.scale = 0.5}},
    causal = {{{.base = 10000}, 1}, {.causal = true, .scale = 0.5}},
    groups = {{{.base = 500, .position = 12}, 2}, {.causal = true, .scale = 0.3}},
    in_pairs = {{{.base = 10000, .position = 3, .interleaved = true}, 1},
                {.causal = true, .scale = 0.5}},
    dropped = {{{.base = 10000}, 1}, {.causal = true, .scale = 0.5, .dropout = 0.3}},
    sliding = {{{.base = 10000}, 1}, {.causal = true, .scale = 0.5, .window = 3}};

static const gd_case cases[] = {
    {"full", &full, GD_INPUTS({GD_DIMS(2, 5, 3, 8)})},
    {"one_pair", &full, GD_INPUTS({GD_DIMS(1, 3, 3, 2)})},
    {"causal", &causal, GD_INPUTS({GD_DIMS(2, 6, 6, 4)})},
    {"grouped", &groups, GD_INPUTS({GD_DIMS(1, 6, 8, 6)})},
    {"interleaved", &in_pairs, GD_INPUTS({GD_DIMS(1, 4, 5, 10)})},
    {"dropout", &dropped, GD_INPUTS({GD_DIMS(2, 7, 4, 4)})},
    {"window", &sliding, GD_INPUTS({GD_DIMS(1, 9, 3, 4)})},
    {"two_tiles", &groups, GD_INPUTS({GD_DIMS(1, 70, 6, 2)})},
    {"heads_of_32", &causal, GD_INPUTS({GD_DIMS(1, 3, 6, 32)})},
    {"heads_of_64", &full, GD_INPUTS({GD_DIMS(1, 3, 3, 64)})},
    {"no_rows", &full, GD_INPUTS({GD_DIMS(2, 0, 3, 8)}), .may_be_empty = true},
};

const gd_op gd_op_rope_attention = {
    .formula = "y = attention(rope(q), rope(k), v) with q, k and v from qkv",
    .signature = "qkv[B, T, N, 2D] -> y; lse q k v angles",
    GD_RANGES(ROPE_RANGES(rope_attention_args, rope.rope.),
              ATTENTION_RANGES(rope_attention_args, attention.)),
    GD_ARGS(rope_attention_args),
    .backward_reads_outputs = GD_BIT(0),
    .strided = true,
    .random = true,
    .shape = rope_attention_shape,
    GD_KERNELS(rope_attention),
    .definition = rope_attention_definition,
    GD_CASES(cases),
};

gd_tensor *gd_rope_attention(gd_tensor *qkv, int64_t kv_heads, const gd_rope_options *rope,
                             const gd_attention_options *options)
{
    if (qkv && options && options->mask) {
        gd_fail(gd_tensor_context(qkv), GD_ERROR_ARGUMENT,
                "rope_attention: options->mask is given, wanted NULL; gd_attention takes one");
        return NULL;
    }
    const rope_attention_args args = {{rope_args_of(rope), kv_heads},
                                      attention_args_of(options, qkv)};
    return gd_apply(&gd_op_rope_attention, &qkv, 1, &args);
}
