/* layers.h - layers: structs of parameters. One call declares a layer's parameters, names them and
 * says how they begin; another runs it.
 *
 *     gd_params *params = gd_params_create(ctx, GD_FLOAT32);
 *     const gd_linear_layer in = gd_make_linear(params, 0, 784, 128, "in");
 *     const gd_linear_layer out = gd_make_linear(params, 0, 128, 10, "out");
 *     gd_params_finish(params); // memory, and the initial values
 *     ...
 *     gd_tensor *logits = gd_run_linear(&out, gd_relu(gd_run_linear(&in, x)));
 *
 * Names, shapes and initial values are those of PyTorch's modules, so gd_params_load reads what
 * safetensors saved of their state_dict(). `name` comes before each, "in.weight"; "" is nothing,
 * and gd_format("blocks.%d", i).text counts. Other initial values are written after
 * gd_params_finish (init.h). Weights have GD_DECAY; biases and norms have not. `flags` is 0, or
 * GD_NO_BIAS, or for the weights GD_MUON, or both.
 *
 * The group owns the parameters, a layer nothing; it may be copied. On an error (a NULL, a
 * name that the group has) the group is as it was, and the layer is zeros, with which running
 * it is an error.
 */
#ifndef GRADUS_LAYERS_H
#define GRADUS_LAYERS_H

#include <stdarg.h>
#include <string.h>

#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "gradus/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GD_NO_BIAS = 1 << 16 }; /* a layer without biases */

/* A name with numbers in it: gd_format("blocks.%d", i).text. */
GD_PRINTF(1, 2)
static inline gd_text gd_format(const char *format, ...)
{
    gd_text text;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text.text, sizeof text.text, format, arguments);
    va_end(arguments);
    return text;
}

/* ---- For layers of your own, as those below ----------------------------------------------- */

/* A layer that is being made: its struct [bytes], and what its group had before. */
typedef struct gd_layer_start {
    gd_params *params;
    const char *name;
    void *layer;
    size_t bytes;
    int parameters, buffers;
} gd_layer_start;

/* Zeroes the struct. */
static inline gd_layer_start gd_layer_begin(gd_params *params, const char *name, void *layer,
                                            size_t bytes)
{
    const gd_layer_start s = {params, name ? name : "",        layer,
                              bytes,  gd_params_count(params), gd_params_buffer_count(params)};
    memset(layer, 0, bytes);
    if (!name)
        gd_fail(gd_params_context(params), GD_ERROR_ARGUMENT,
                "layer: name is NULL, wanted what comes before the names of its parameters");
    return s;
}

/* After an error the group is as it was at the beginning, and the struct is zeros. */
static inline void gd_layer_end(const gd_layer_start *s)
{
    if (s->params && !gd_error(gd_params_context(s->params))) return;
    gd_params_truncate(s->params, s->parameters, s->buffers);
    memset(s->layer, 0, s->bytes);
}

/* "in.weight", of the part "weight" of the layer "in". */
static inline gd_text gd_layer_name(const gd_layer_start *s, const char *part)
{
    return gd_format("%s%s%s", s->name, *s->name ? "." : "", part);
}

/* A parameter with these flags of gd_params_add; and a bias [n], or NULL with GD_NO_BIAS. */
static inline gd_tensor *gd_layer_add(const gd_layer_start *s, unsigned flags, const char *part,
                                      gd_init init, int ndim, const int64_t *shape)
{
    return gd_params_addf(s->params, flags & ~(unsigned)GD_NO_BIAS, ndim, shape, init, "%s",
                          gd_layer_name(s, part).text);
}

static inline gd_tensor *gd_layer_bias(const gd_layer_start *s, unsigned flags, const char *part,
                                       gd_init init, int64_t n)
{
    return flags & GD_NO_BIAS ? NULL : gd_layer_add(s, 0, part, init, 1, &n);
}

/* An error unless the channels divide into groups. */
static inline void gd_layer_groups(const gd_layer_start *s, const char *make, int64_t groups,
                                   int64_t channels)
{
    if (groups < 1 || channels % groups)
        gd_fail(gd_params_context(s->params), GD_ERROR_ARGUMENT,
                "%s: groups is %lld, wanted a divisor of %lld channels", make, (long long)groups,
                (long long)channels);
}

/* An error if a layer has no function to run on x. */
static inline bool gd_layer_function(bool there, const gd_tensor *x, const char *run)
{
    if (!there)
        gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT,
                "%s: the function is NULL, wanted an op such as %s", run,
                !strcmp(run, "run_mlp") ? "gd_relu" : "gd_conv2d");
    return there;
}

/* Whether a layer can run on x; an error if it has no weight. */
static inline bool gd_layer_ready(const gd_tensor *weight, const gd_tensor *x, const char *run)
{
    if (x && !weight)
        gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT,
                "%s: the layer has no weight, wanted one that was made without an error", run);
    return x && weight;
}

/* ---- Linear ------------------------------------------------------------------------------- */

typedef struct gd_linear_layer {
    gd_tensor *weight, *bias; /* [out, in], [out] or NULL */
} gd_linear_layer;

/* torch.nn.Linear(in, out). */
static inline gd_linear_layer gd_make_linear(gd_params *params, unsigned flags, int64_t in,
                                             int64_t out, const char *name)
{
    gd_linear_layer l;
    const gd_layer_start s = gd_layer_begin(params, name, &l, sizeof l);
    const gd_init init = {GD_INIT_FAN, (double)in, 0};
    l.weight = gd_layer_add(&s, flags | GD_DECAY, "weight", init, GD_SHAPE(out, in));
    l.bias = gd_layer_bias(&s, flags, "bias", init, out);
    gd_layer_end(&s);
    return l;
}

/* x [..., in] -> [..., out] */
static inline gd_tensor *gd_run_linear(const gd_linear_layer *l, gd_tensor *x)
{
    if (!gd_layer_ready(l ? l->weight : NULL, x, "run_linear")) return NULL;
    return gd_linear(x, l->weight, l->bias);
}

enum { GD_MLP_MOST = 16 };

typedef struct gd_mlp {
    int count;
    gd_linear_layer layers[GD_MLP_MOST];
} gd_mlp;

/* torch.nn.Sequential(Linear, function, Linear, ...), of parameters "0.weight", "0.bias",
 * "2.weight" ...: `count` layers, 1 to GD_MLP_MOST; widths [count + 1]. */
static inline gd_mlp gd_make_mlp(gd_params *params, unsigned flags, int count,
                                 const int64_t *widths, const char *name)
{
    gd_mlp m;
    const gd_layer_start s = gd_layer_begin(params, name, &m, sizeof m);
    if (count < 1 || count > GD_MLP_MOST || !widths)
        gd_fail(gd_params_context(params), GD_ERROR_ARGUMENT,
                "make_mlp: %d layers, of widths %s, wanted 1 to %d layers and their widths", count,
                widths ? "[...]" : "NULL", (int)GD_MLP_MOST);
    for (; widths && m.count < count && m.count < GD_MLP_MOST; m.count++) {
        const gd_text part = gd_layer_name(&s, gd_format("%d", 2 * m.count).text);
        m.layers[m.count] =
            gd_make_linear(params, flags, widths[m.count], widths[m.count + 1], part.text);
    }
    gd_layer_end(&s);
    return m;
}

/* x [..., widths[0]] -> [..., widths[count]]; the function, such as gd_relu, is behind each layer
 * but the last. */
static inline gd_tensor *gd_run_mlp(const gd_mlp *m, gd_tensor *x,
                                    gd_tensor *(*function)(gd_tensor *))
{
    if (!gd_layer_ready(m ? m->layers[0].weight : NULL, x, "run_mlp")) return NULL;
    if (!gd_layer_function(function || m->count == 1, x, "run_mlp")) return NULL;
    for (int i = 0; i < m->count; i++) {
        x = gd_run_linear(&m->layers[i], x);
        if (i + 1 < m->count) x = function(x);
    }
    return x;
}

/* torch.nn.Embedding(V, C): a weight [V, C] alone. */
static inline gd_linear_layer gd_make_embedding(gd_params *params, int64_t V, int64_t C,
                                                const char *name)
{
    gd_linear_layer l;
    const gd_layer_start s = gd_layer_begin(params, name, &l, sizeof l);
    const gd_init init = {GD_INIT_NORMAL, 0, 1};
    l.weight = gd_layer_add(&s, GD_DECAY, "weight", init, GD_SHAPE(V, C));
    gd_layer_end(&s);
    return l;
}

/* ids GD_INT32 [...] -> [..., C] */
static inline gd_tensor *gd_run_embedding(const gd_linear_layer *l, gd_tensor *ids)
{
    if (!gd_layer_ready(l ? l->weight : NULL, ids, "run_embedding")) return NULL;
    return gd_embedding(l->weight, ids);
}

/* ---- Convolutions ------------------------------------------------------------------------- */

typedef gd_tensor *(*gd_conv_op)(gd_tensor *, gd_tensor *, gd_tensor *, const gd_conv_options *);

typedef struct gd_conv_layer {
    gd_tensor *weight, *bias; /* the bias may be NULL */
    gd_conv_op op;
    gd_conv_options options; /* strides, padding ... */
} gd_conv_layer;

/* torch.nn.Conv2d(in, out, (rows, cols)) with the op gd_conv2d, ConvTranspose2d with
 * gd_conv_transpose2d, Conv1d(in, out, rows) with gd_conv1d. NULL options for the defaults. */
static inline gd_conv_layer gd_make_conv(gd_params *params, unsigned flags, gd_conv_op op,
                                         int64_t in, int64_t out, int64_t rows, int64_t cols,
                                         const gd_conv_options *options, const char *name)
{
    gd_conv_layer l;
    const gd_layer_start s = gd_layer_begin(params, name, &l, sizeof l);
    const bool back = op == gd_conv_transpose2d, one = op == gd_conv1d;
    const int64_t given = options && options->groups ? options->groups : 1;
    const int64_t groups = given < 1 ? 1 : given;
    if (!op)
        gd_fail(gd_params_context(params), GD_ERROR_ARGUMENT,
                "make_conv: op is NULL, wanted gd_conv2d, gd_conv1d or gd_conv_transpose2d");
    gd_layer_groups(&s, "make_conv", given, in);
    gd_layer_groups(&s, "make_conv", given, out);
    const int64_t shape[] = {back ? in : out, (back ? out : in) / groups, rows, cols};
    const gd_init init = {GD_INIT_FAN, (double)shape[1] * (double)rows * (one ? 1 : (double)cols),
                          0};
    l.weight = gd_layer_add(&s, flags | GD_DECAY, "weight", init, one ? 3 : 4, shape);
    l.bias = gd_layer_bias(&s, flags, "bias", init, out);
    l.op = op;
    if (options) l.options = *options;
    gd_layer_end(&s);
    return l;
}

/* x [B, in, H, W] -> [B, out, OH, OW], or x [B, in, L] -> [B, out, OL] */
static inline gd_tensor *gd_run_conv(const gd_conv_layer *l, gd_tensor *x)
{
    if (!gd_layer_ready(l ? l->weight : NULL, x, "run_conv")) return NULL;
    if (!gd_layer_function(l->op, x, "run_conv")) return NULL;
    return l->op(x, l->weight, l->bias, &l->options);
}

/* ---- Norms -------------------------------------------------------------------------------- */

typedef enum gd_norm_kind { GD_LAYER_NORM, GD_RMS_NORM, GD_GROUP_NORM, GD_BATCH_NORM } gd_norm_kind;

typedef struct gd_norm_layer {
    gd_norm_kind kind;
    gd_tensor *weight, *bias;      /* [n]; the bias is NULL for GD_RMS_NORM */
    int64_t groups;                /* of GD_GROUP_NORM */
    gd_batch_norm_options options; /* eps, of all: 1e-5; the others are GD_BATCH_NORM's */
} gd_norm_layer;

/* torch.nn.LayerNorm(n), RMSNorm(n, eps=1e-5), GroupNorm(groups, n) (groups is unused elsewhere),
 * and BatchNorm1d(n) and 2d, with the buffers "running_mean" and "running_var", but without
 * "num_batches_tracked". */
static inline gd_norm_layer gd_make_norm(gd_params *params, gd_norm_kind kind, int64_t groups,
                                         int64_t n, const char *name)
{
    gd_norm_layer l;
    const gd_layer_start s = gd_layer_begin(params, name, &l, sizeof l);
    const gd_init zero = {GD_INIT_CONSTANT, 0, 0}, one = {GD_INIT_CONSTANT, 1, 0};
    l.weight = gd_layer_add(&s, 0, "weight", one, 1, &n);
    l.bias = gd_layer_bias(&s, kind == GD_RMS_NORM ? GD_NO_BIAS : 0, "bias", zero, n);
    l.kind = kind, l.groups = groups, l.options.eps = 1e-5;
    if (kind == GD_GROUP_NORM) gd_layer_groups(&s, "make_norm", groups, n);
    if (kind == GD_BATCH_NORM) {
        const gd_dtype dtype = gd_tensor_dtype(l.weight) == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32;
        l.options.mean =
            gd_params_add_buffer(params, gd_layer_name(&s, "running_mean").text, dtype, 1, &n);
        l.options.var =
            gd_params_add_buffer(params, gd_layer_name(&s, "running_var").text, dtype, 1, &n);
        gd_params_set_init(params, l.options.var, one);
    }
    gd_layer_end(&s);
    return l;
}

/* x [..., n], or [B, n, ...] -> like x. `evaluate`, of GD_BATCH_NORM alone: by the running
 * statistics, instead of by the batch, which moves them. */
static inline gd_tensor *gd_run_norm(const gd_norm_layer *l, gd_tensor *x, bool evaluate)
{
    if (!gd_layer_ready(l ? l->weight : NULL, x, "run_norm")) return NULL;
    gd_batch_norm_options options = l->options;
    options.evaluate = evaluate;
    switch (l->kind) {
    case GD_LAYER_NORM:
        return gd_layer_norm(x, l->weight, l->bias, options.eps);
    case GD_RMS_NORM:
        return gd_rms_norm(x, l->weight, options.eps);
    case GD_GROUP_NORM:
        return gd_group_norm(x, l->groups, l->weight, l->bias, options.eps);
    default:
        return gd_batch_norm(x, l->weight, l->bias, &options);
    }
}

/* ---- Recurrent layers --------------------------------------------------------------------- */

typedef struct gd_rnn_layers {
    int count;
    gd_rnn_weights weights[GD_RNN_MOST_LAYERS];
} gd_rnn_layers;

/* torch.nn.LSTM(in, H, count, batch_first=True) for 4 gates, GRU for 3; count is 1 to
 * GD_RNN_MOST_LAYERS. */
static inline gd_rnn_layers gd_make_rnn(gd_params *params, unsigned flags, int gates, int64_t in,
                                        int64_t H, int count, const char *name)
{
    gd_rnn_layers l;
    const gd_layer_start s = gd_layer_begin(params, name, &l, sizeof l);
    const gd_init init = {GD_INIT_FAN, (double)H, 0};
    const unsigned weight = flags | GD_DECAY;
    if (gates != 3 && gates != 4)
        gd_fail(gd_params_context(params), GD_ERROR_ARGUMENT,
                "make_rnn: gates is %d, wanted 3 (GRU) or 4 (LSTM)", gates);
    if (count < 1 || count > GD_RNN_MOST_LAYERS)
        gd_fail(gd_params_context(params), GD_ERROR_ARGUMENT,
                "make_rnn: count is %d, wanted 1 to %d layers", count, GD_RNN_MOST_LAYERS);
    for (int i = 0; i < count && i < GD_RNN_MOST_LAYERS; i++) {
        gd_rnn_weights *w = &l.weights[l.count++];
        w->input = gd_layer_add(&s, weight, gd_format("weight_ih_l%d", i).text, init,
                                GD_SHAPE(gates * H, i ? H : in));
        w->hidden = gd_layer_add(&s, weight, gd_format("weight_hh_l%d", i).text, init,
                                 GD_SHAPE(gates * H, H));
        w->input_bias = gd_layer_bias(&s, flags, gd_format("bias_ih_l%d", i).text, init, gates * H);
        w->hidden_bias =
            gd_layer_bias(&s, flags, gd_format("bias_hh_l%d", i).text, init, gates * H);
    }
    gd_layer_end(&s);
    return l;
}

/* x [B, T, in] -> [B, T, H]. The states [count, B, H] are those of gd_lstm and gd_gru, or NULL. */
static inline gd_tensor *gd_run_lstm(const gd_rnn_layers *l, gd_tensor *x, gd_tensor *state,
                                     gd_tensor *cell, gd_tensor **last_state, gd_tensor **last_cell)
{
    if (!gd_layer_ready(l ? l->weights[0].input : NULL, x, "run_lstm")) return NULL;
    return gd_lstm(x, l->weights, l->count, state, cell, last_state, last_cell);
}

static inline gd_tensor *gd_run_gru(const gd_rnn_layers *l, gd_tensor *x, gd_tensor *state,
                                    gd_tensor **last_state)
{
    if (!gd_layer_ready(l ? l->weights[0].input : NULL, x, "run_gru")) return NULL;
    return gd_gru(x, l->weights, l->count, state, last_state);
}

/* ---- Attention ---------------------------------------------------------------------------- */

typedef struct gd_attention_layer {
    gd_tensor *weight, *bias; /* of queries, keys and values, [3 E, E] and [3 E] or NULL */
    gd_linear_layer out;      /* [E, E] */
    int64_t heads;
} gd_attention_layer;

/* torch.nn.MultiheadAttention(E, heads, batch_first=True). */
static inline gd_attention_layer gd_make_attention(gd_params *params, unsigned flags, int64_t E,
                                                   int64_t heads, const char *name)
{
    gd_attention_layer l;
    const gd_layer_start s = gd_layer_begin(params, name, &l, sizeof l);
    const gd_init xavier = {GD_INIT_XAVIER_UNIFORM, 1, 0}, zero = {GD_INIT_CONSTANT, 0, 0};
    const gd_init fan = {GD_INIT_FAN, (double)E, 0};
    const unsigned weight = flags | GD_DECAY;
    if (heads < 1 || E % heads)
        gd_fail(gd_params_context(params), GD_ERROR_ARGUMENT,
                "make_attention: heads is %lld, wanted a divisor of E, %lld", (long long)heads,
                (long long)E);
    l.weight = gd_layer_add(&s, weight, "in_proj_weight", xavier, GD_SHAPE(3 * E, E));
    l.bias = gd_layer_bias(&s, flags, "in_proj_bias", zero, 3 * E);
    l.out.weight = gd_layer_add(&s, weight, "out_proj.weight", fan, GD_SHAPE(E, E));
    l.out.bias = gd_layer_bias(&s, flags, "out_proj.bias", zero, E);
    l.heads = heads;
    gd_layer_end(&s);
    return l;
}

/* x times parts `first` to `end` of the weight, as heads: [B, T, (end - first) heads, D] */
static inline gd_tensor *gd_layer_heads(const gd_attention_layer *l, gd_tensor *x, int64_t first,
                                        int64_t end)
{
    const int64_t E = gd_tensor_dim(l->weight, 1), n = (end - first) * l->heads;
    gd_tensor *weight = gd_slice(l->weight, 0, first * E, end * E);
    gd_tensor *bias = l->bias ? gd_slice(l->bias, 0, first * E, end * E) : NULL;
    return gd_reshape(gd_linear(x, weight, bias),
                      GD_SHAPE(gd_tensor_dim(x, 0), gd_tensor_dim(x, 1), n, E / l->heads));
}

/* x [B, T, E] asks `from` [B, S, E], or itself where that is NULL -> [B, T, E]. NULL options:
 * all see all. */
static inline gd_tensor *gd_run_attention(const gd_attention_layer *l, gd_tensor *x,
                                          gd_tensor *from, const gd_attention_options *options)
{
    if (!gd_layer_ready(l ? l->weight : NULL, x, "run_attention")) return NULL;
    const int64_t n = l->heads;
    gd_tensor *q = gd_layer_heads(l, x, 0, from ? 1 : 3);
    gd_tensor *kv = from ? gd_layer_heads(l, from, 1, 3) : gd_slice(q, 2, n, 3 * n);
    gd_tensor *y = gd_attention(from ? q : gd_slice(q, 2, 0, n), gd_slice(kv, 2, 0, n),
                                gd_slice(kv, 2, n, 2 * n), options);
    return gd_run_linear(&l->out, gd_reshape(y, gd_tensor_ndim(x), gd_tensor_shape(x)));
}

#ifdef __cplusplus
}
#endif
#endif
