/* model.c - see model.h. */
#include "model.h"

#include <math.h>
#include <stdlib.h>

/* ---- Parameters --------------------------------------------------------------------------- */

/* A matrix [rows, columns], or a vector [rows] where columns is 0. Those of the layers are
 * for Muon, if it is the optimizer; not the embedding and the output, whose rows are updated
 * one by one. */
static gd_tensor *add(model *m, const char *name, int layer, int64_t rows, int64_t columns)
{
    const int64_t shape[2] = {rows, columns};
    const unsigned flags = columns ? GD_DECAY | (layer < 0 ? 0u : GD_MUON) : 0;
    const gd_text full = layer < 0 ? gd_format("%s", name) : gd_format("layers.%d.%s", layer, name);
    return gd_params_add(m->params, full.text, columns ? 2 : 1, shape, flags);
}

static void add_layer(model *m, int i)
{
    const model_config *c = &m->config;
    model_layer *l = &m->layers[i];
    const int64_t width = c->dim / c->heads;
    l->owner = m;
    l->norm1 = add(m, "norm1", i, c->dim, 0);
    l->wqkv = add(m, "wqkv", i, (c->heads + 2 * c->kv_heads) * width, c->dim);
    l->wo = add(m, "wo", i, c->dim, c->dim);
    l->norm2 = add(m, "norm2", i, c->dim, 0);
    l->w_gate_up = add(m, "w_gate_up", i, 2 * c->ffn, c->dim);
    l->w_down = add(m, "w_down", i, c->dim, c->ffn);
}

static void draw_values(model *m)
{
    double deep = 0.02 / sqrt(2 * (double)m->config.layers);
    for (int i = 0; i < gd_params_count(m->params); i++) {
        gd_tensor *t = gd_params_at(m->params, i);
        if (gd_tensor_ndim(t) == 1) {
            gd_tensor_fill(t, 1);
        } else {
            gd_random_normal(t, 0, 0.02);
        }
    }
    for (int64_t i = 0; i < m->config.layers; i++) {
        gd_random_normal(m->layers[i].wo, 0, deep);
        gd_random_normal(m->layers[i].w_down, 0, deep);
    }
}

gd_status model_declare(model *m, gd_context *ctx, gd_dtype dtype, const model_config *config)
{
    *m = (model){.config = *config, .ctx = ctx};
    if (m->config.eps == 0) m->config.eps = 1e-5;
    if (m->config.rope_base == 0) m->config.rope_base = 10000;
    m->layers = calloc((size_t)config->layers, sizeof *m->layers);
    if (!m->layers) return gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: the model");
    m->params = gd_params_create(ctx, dtype);
    m->embedding = add(m, "embedding", -1, config->vocab, config->dim);
    for (int i = 0; i < config->layers; i++) add_layer(m, i);
    m->norm_final = add(m, "norm_final", -1, config->dim, 0);
    m->output = config->tied ? m->embedding : add(m, "output", -1, config->vocab, config->dim);
    return gd_error_status(ctx);
}

gd_status model_fill(model *m)
{
    gd_params_finish(m->params);
    draw_values(m);
    return gd_error_status(m->ctx);
}

gd_status model_create(model *m, gd_context *ctx, gd_dtype dtype, const model_config *config)
{
    return model_declare(m, ctx, dtype, config) ? gd_error_status(ctx) : model_fill(m);
}

void model_free(model *m)
{
    gd_params_free(m->params);
    free(m->layers);
    *m = (model){0};
}

/* ---- Forward ------------------------------------------------------------------------------ */

static gd_tensor *dropped(const model *m, gd_tensor *x)
{
    bool drop = m->training && m->config.dropout > 0;
    return drop ? model_last_use(x, gd_dropout(x, m->config.dropout)) : x;
}

/* Takes over qkv [B, T, H + 2 KV, D], queries, keys and values -> [B, T, H, D] */
static gd_tensor *attend(const model *m, const model_layer *l, gd_tensor *qkv)
{
    if (m->attend) return m->attend(m->attend_user, l - m->layers, qkv);
    const gd_rope_options rope = {.base = m->config.rope_base};
    const gd_attention_options causal = {.causal = true,
                                         .dropout = m->training ? m->config.dropout : 0};
    return model_last_use(qkv, gd_rope_attention(qkv, m->config.kv_heads, &rope, &causal));
}

/* x = x + branch, and the norm of the sum, in one op; without a branch (NULL), only the norm. Takes
 * over the branch, and the x that it replaces. */
static gd_tensor *add_norm(const model *m, gd_tensor **x, gd_tensor *branch, gd_tensor *weight)
{
    const gd_rms_norm_options options = {.eps = m->config.eps};
    gd_tensor *before = *x;
    if (!branch) return gd_rms_norm(before, weight, m->config.eps);
    gd_tensor *h = gd_add_rms_norm(branch, before, weight, NULL, &options, x);
    return model_last_use(before, model_last_use(branch, h));
}

/* The same, and a product with what is normalised. */
static gd_tensor *add_norm_linear(const model *m, gd_tensor **x, gd_tensor *branch, gd_tensor *norm,
                                  gd_tensor *weight)
{
    gd_tensor *h = add_norm(m, x, branch, norm);
    return model_last_use(h, gd_linear(h, weight, NULL));
}

/* Takes over qkv [B, T, (H + 2 KV) D]. */
static gd_tensor *attention_branch(const model *m, const model_layer *l, gd_tensor *qkv)
{
    const model_config *c = &m->config;
    const int64_t rows[3] = {gd_tensor_dim(qkv, 0), gd_tensor_dim(qkv, 1), c->dim};
    const int64_t heads[4] = {rows[0], rows[1], c->heads + 2 * c->kv_heads, c->dim / c->heads};
    qkv = model_last_use(qkv, gd_reshape(qkv, 4, heads));
    gd_tensor *y = attend(m, l, qkv);
    y = model_last_use(y, gd_reshape(y, 3, rows));
    return dropped(m, model_last_use(y, gd_linear(y, l->wo, NULL)));
}

/* w_down (silu(gate) * up). Takes over gate_up [B, T, 2 ffn]. */
static gd_tensor *ffn(const model *m, const model_layer *l, gd_tensor *gate_up)
{
    gd_tensor *y = model_last_use(gate_up, gd_swiglu(gate_up, NULL));
    return dropped(m, model_last_use(y, gd_linear(y, l->w_down, NULL)));
}

/* One layer: takes the stream and a branch that is not yet added to it, and returns the same
 * two. */
static gd_tensor *run_layer(const model *m, const model_layer *l, gd_tensor **x, gd_tensor *branch)
{
    branch = attention_branch(m, l, add_norm_linear(m, x, branch, l->norm1, l->wqkv));
    return ffn(m, l, add_norm_linear(m, x, branch, l->norm2, l->w_gate_up));
}

/* A layer as a segment that the backward computes again: from stream to stream. It does not own its
 * input, but it may free a view of it. */
static gd_tensor *layer_again(void *user, gd_tensor *const *inputs, int count)
{
    (void)count;
    const model_layer *l = user;
    gd_tensor *x = gd_reshape(inputs[0], gd_tensor_ndim(inputs[0]), gd_tensor_shape(inputs[0]));
    gd_tensor *branch = run_layer(l->owner, l, &x, NULL);
    return model_last_use(x, model_last_use(branch, gd_add(x, branch)));
}

gd_tensor *model_hidden(model *m, gd_tensor *tokens)
{
    gd_tensor *x = dropped(m, gd_embedding(m->embedding, tokens)), *branch = NULL;
    for (int64_t i = 0; i < m->config.layers; i++) {
        if (m->config.recompute && !m->attend) {
            x = model_last_use(x, gd_recompute(m->ctx, layer_again, &m->layers[i], &x, 1));
        } else {
            branch = run_layer(m, &m->layers[i], &x, branch);
        }
    }
    gd_tensor *h = add_norm(m, &x, branch, m->norm_final);
    gd_tensor_free(x);
    return h;
}

gd_tensor *model_loss(model *m, gd_tensor *tokens, gd_tensor *targets)
{
    gd_tensor *h = model_hidden(m, tokens);
    return model_last_use(h, gd_linear_cross_entropy(h, m->output, targets, NULL));
}

double model_flops_per_token(const model *m, int64_t context)
{
    const model_config *c = &m->config;
    double weights = 0;
    for (int i = 0; i < gd_params_count(m->params); i++) {
        gd_tensor *t = gd_params_at(m->params, i);
        bool lookup = t == m->embedding && !c->tied;
        if (gd_tensor_ndim(t) == 2 && !lookup) weights += (double)gd_tensor_count(t);
    }
    return 6 * weights + 12 * (double)c->layers * (double)c->dim * (double)context;
}
