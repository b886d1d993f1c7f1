/* attention.c - y = softmax(scale q k^T + mask) v per head. README.md derives the gradients. */
#include "attention/attention.h"
#include "attention/dropout.h"
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"

/* The mask is broadcast to [B, H, T, S]. */
static gd_status check_mask(const gd_call *call)
{
    const attention_sizes z = attention_sizes_of(call);
    const int64_t wanted[] = {z.B, z.H, z.T, z.S};
    const gd_tensor *mask = call->input[3];
    const int missing = mask ? 4 - gd_tensor_ndim(mask) : 0;
    bool fits = missing >= 0;
    for (int d = missing; mask && fits && d < 4; d++) {
        const int64_t size = gd_tensor_dim(mask, d - missing);
        fits = size == 1 || size == wanted[d];
    }
    if (!fits)
        return gd_refuse(call,
                         "mask has shape %s, wanted one that broadcasts to [B, H, T, S], here "
                         "[%lld, %lld, %lld, %lld]",
                         gd_shape_text(mask).text, (long long)z.B, (long long)z.H, (long long)z.T,
                         (long long)z.S);
    return GD_OK;
}

static gd_status attention_shape(const gd_call *call, gd_shapes *out)
{
    const attention_sizes z = attention_sizes_of(call);
    if (z.KV ? z.H % z.KV != 0 : z.H != 0)
        return gd_refuse(call, "q %s has %lld heads, wanted a multiple of the %lld heads of k %s",
                         gd_shape_text(call->input[0]).text, (long long)z.H, (long long)z.KV,
                         gd_shape_text(call->input[1]).text);
    out->random_words = attention_dropout_words(call->args, &z);
    return check_mask(call);
}

/* ---- By ops ------------------------------------------------------------------------------- */

/* 0, 1, 2, ... down a column [count, 1], or along a row [1, count] */
static gd_tensor *places(const gd_call *call, int64_t count, int axis)
{
    gd_tensor *ones = gd_constant(call->context, GD_FLOAT64, 2,
                                  (int64_t[]){axis ? 1 : count, axis ? count : 1}, 1);
    return plus(gd_cumsum(ones, axis), -1);
}

/* The scores with -inf where a query does not see a key. */
static gd_tensor *seen(const gd_call *call, const attention_sizes *z, gd_tensor *score)
{
    const attention_args *args = call->args;
    gd_tensor *mask = call->input[3];
    /* of key s before the own key of query t */
    gd_tensor *ahead =
        sub(places(call, z->S, 1), plus(places(call, z->T, 0), (double)(z->S - z->T)));
    if (mask && gd_tensor_dtype(mask) == GD_INT32)
        score = unless(is(gd_cast(mask, GD_FLOAT64), 0), score, -INFINITY);
    else if (mask)
        score = add(score, mask);
    if (args->causal) score = unless(above(ahead, 0), score, -INFINITY);
    if (args->window)
        score = unless(above(gd_abs(ahead), (double)args->window - 1), score, -INFINITY);
    return score;
}

/* The softmax of each row, and zeros in a row without a key to see. */
static gd_tensor *weights_of(gd_tensor *score)
{
    const int last = 3;
    gd_tensor *hidden = is(score, -INFINITY), *top = gd_detach(gd_max(score, &last, 1, true));
    top = unless(is(top, -INFINITY), top, 0);
    gd_tensor *e = unless(hidden, gd_exp(sub(gd_where(hidden, top, score), top)), 0);
    gd_tensor *total = gd_sum(e, &last, 1, true);
    return over(e, unless(is(total, 0), total, 1));
}

/* What dropout makes of ones, in the order in which attention draws (dropout.h): by tiles of 16
 * queries and 16 keys, in which t = 8 t1 + t0 and s = 8 s2 + 2 s1 + s0 go by t0, s1, t1, s2, s0. */
static gd_tensor *kept(const gd_call *call, const attention_sizes *z)
{
    static const int axes[] = {0, 1, 5, 3, 2, 6, 4, 7};
    const int64_t T = gd_divide_up(z->T, 16), S = gd_divide_up(z->S, 16);
    gd_tensor *tiles = gd_constant(call->context, call->dtype, 8,
                                   (int64_t[]){z->B * z->H, T, S, 8, 4, 2, 2, 2}, 1);
    gd_tensor *y =
        gd_permute(gd_dropout(tiles, ((const attention_args *)call->args)->dropout), axes);
    y = gd_reshape(y, GD_SHAPE(z->B, z->H, T * 16, S * 16));
    return gd_narrow(gd_narrow(y, 2, 0, z->T), 3, 0, z->S);
}

/* [B, N, heads, D] -> [B, heads, N, D], or back; and each head repeated G times */
static gd_tensor *heads_first(gd_tensor *x, int64_t G)
{
    gd_tensor *y = gd_transpose(x, 1, 2);
    const int64_t *n = gd_tensor_shape(y);
    if (G == 1 || !y) return y;
    y = gd_expand(gd_unsqueeze(y, 2), GD_SHAPE(n[0], n[1], G, n[2], n[3]));
    return gd_reshape(y, GD_SHAPE(n[0], n[1] * G, n[2], n[3]));
}

/* y = softmax(scale q k^T + mask) v per head */
static void attention_definition(const gd_call *call)
{
    const attention_sizes z = attention_sizes_of(call);
    const attention_args *args = call->args;
    gd_tensor *q = heads_first(call->input[0], 1), *k = heads_first(call->input[1], z.G),
              *v = heads_first(call->input[2], z.G);
    gd_tensor *score = times(gd_matmul_with(q, k, false, true), args->scale);
    gd_tensor *p = weights_of(seen(call, &z, score));
    if (args->dropout > 0) p = mul(p, kept(call, &z));
    call->output[0] = heads_first(gd_matmul(p, v), 1);
}

GD_KERNEL_PAIR(attention)

/* ---- Cases -------------------------------------------------------------------------------- */

static const attention_args full = {.scale = 0.5}, causal = {.causal = true, .scale = 0.5},
                            negative = {.causal = true, .scale = -0.3},
                            dropped = {.causal = true, .scale = 0.5, .dropout = 0.3},
                            sliding = {.causal = true, .scale = 0.5, .window = 3},
                            around = {.scale = 0.5, .window = 2},
                            all = {.causal = true, .scale = 0.5, .dropout = 0.2, .window = 50};

#define Q(...)               \
    {                        \
        GD_DIMS(__VA_ARGS__) \
    }
#define K Q
#define V Q
#define BIAS Q
#define MASK(...)                         \
    {                                     \
        GD_INDEX(2), GD_DIMS(__VA_ARGS__) \
    }
#define MASKED(case_name, case_args, ...)                                            \
    {                                                                                \
        .name = case_name, .args = &case_args, .inputs = 4, .input = { __VA_ARGS__ } \
    }
#define CASE(case_name, case_args, ...) MASKED(case_name, case_args, __VA_ARGS__, GD_ABSENT)

static const gd_case cases[] = {
    CASE("full", full, Q(2, 5, 2, 4), K(2, 5, 2, 4), V(2, 5, 2, 4)),
    CASE("causal", causal, Q(2, 7, 2, 4), K(2, 7, 2, 4), V(2, 7, 2, 4)),
    CASE("groups", causal, Q(1, 6, 6, 3), K(1, 6, 2, 3), V(1, 6, 2, 3)),
    CASE("one_key_head", full, Q(2, 3, 4, 2), K(2, 5, 1, 2), V(2, 5, 1, 2)),
    CASE("wide_values", causal, Q(1, 5, 2, 3), K(1, 5, 2, 3), V(1, 5, 2, 7)),
    CASE("narrow_values", full, Q(1, 5, 2, 9), K(1, 4, 2, 9), V(1, 4, 2, 1)),
    CASE("more_keys", causal, Q(1, 3, 2, 4), K(1, 8, 2, 4), V(1, 8, 2, 4)),
    CASE("more_queries", causal, Q(1, 8, 2, 4), K(1, 3, 2, 4), V(1, 3, 2, 4)),
    CASE("negative_scale", negative, Q(1, 6, 1, 5), K(1, 6, 1, 5), V(1, 6, 1, 5)),
    CASE("single", full, Q(1, 1, 1, 1), K(1, 2, 1, 1), V(1, 2, 1, 1)),
    CASE("two_tiles", causal, Q(1, 110, 2, 3), K(1, 110, 1, 3), V(1, 110, 1, 2)),
    CASE("dropout", dropped, Q(2, 7, 4, 3), K(2, 9, 2, 3), V(2, 9, 2, 5)),
    CASE("dropout_tiles", dropped, Q(1, 40, 2, 3), K(1, 100, 1, 3), V(1, 100, 1, 2)),
    CASE("two_tiles_full", full, Q(1, 33, 1, 3), K(1, 131, 1, 3), V(1, 131, 1, 3)),
    CASE("window", sliding, Q(1, 9, 2, 3), K(1, 9, 1, 3), V(1, 9, 1, 2)),
    CASE("window_to_both_sides", around, Q(1, 5, 1, 3), K(1, 8, 1, 3), V(1, 8, 1, 2)),
    MASKED("mask", full, Q(2, 5, 2, 3), K(2, 6, 1, 3), V(2, 6, 1, 4), MASK(2, 2, 5, 6)),
    MASKED("mask_of_keys", causal, Q(2, 6, 2, 3), K(2, 6, 2, 3), V(2, 6, 2, 4), MASK(2, 1, 1, 6)),
    MASKED("bias", full, Q(2, 3, 4, 2), K(2, 5, 2, 2), V(2, 5, 2, 3), BIAS(2, 4, 3, 5)),
    MASKED("bias_of_heads", causal, Q(2, 4, 3, 2), K(2, 4, 3, 2), V(2, 4, 3, 2), BIAS(3, 4, 4)),
    MASKED("bias_of_keys", causal, Q(2, 4, 2, 2), K(2, 6, 1, 2), V(2, 6, 1, 2), BIAS(2, 1, 1, 6)),
    MASKED("bias_tiles", all, Q(1, 70, 2, 3), K(1, 110, 1, 3), V(1, 110, 1, 2), BIAS(70, 110)),
    {.name = "no_queries",
     .args = &full,
     .inputs = 4,
     .input = {Q(1, 0, 2, 4), K(1, 3, 2, 4), V(1, 3, 2, 4), GD_ABSENT},
     .may_be_empty = true},
    {.name = "no_keys",
     .args = &full,
     .inputs = 4,
     .input = {Q(1, 3, 2, 4), K(1, 0, 2, 4), V(1, 0, 2, 4), GD_ABSENT},
     .may_be_empty = true},
};

const gd_op gd_op_attention = {
    .formula = "y = softmax(scale q k^T + mask) v per head",
    .signature = "q[B, T, H, D] k[B, S, K, D] v[B, S, K, E] mask:mask? -> y[B, T, H, E]; "
                 "lse:compute[B, H, T]",
    GD_RANGES(ATTENTION_RANGES(attention_args, )),
    GD_ARGS(attention_args),
    .backward_reads_inputs = GD_ALL_INPUTS,
    .backward_reads_outputs = GD_BIT(0),
    .strided = true,
    .random = true,
    .shape = attention_shape,
    GD_KERNELS(attention),
    .definition = attention_definition,
    GD_CASES(cases),
};

attention_args attention_args_of(const gd_attention_options *options, const gd_tensor *q)
{
    const int64_t D = q && gd_tensor_ndim(q) ? gd_tensor_dim(q, -1) : 1;
    attention_args args = {.causal = options && options->causal};
    args.scale = gd_option(options ? options->scale : 0, 1 / sqrt((double)gd_max64(D, 1)));
    args.dropout = gd_option(options ? options->dropout : 0, 0);
    args.window = options ? gd_min64(options->window, INT64_MAX / 4) : 0; /* no sum overflows */
    return args;
}

gd_tensor *gd_attention(gd_tensor *q, gd_tensor *k, gd_tensor *v,
                        const gd_attention_options *options)
    GD_APPLIES(attention, ((attention_args[]){attention_args_of(options, q)}), q, k, v,
               options ? options->mask : NULL)
