/* decode.c - see decode.h. The forward is that of model.c for one text, without dropout and
 * recomputation; for a single token, by the ops of kernels/decode. */
#include "decode.h"

#include <stdlib.h>

/* ---- Making and freeing ------------------------------------------------------------------- */

gd_status decoder_create(decoder *d, model *m, int64_t capacity)
{
    const model_config *c = &m->config;
    const int64_t shape[4] = {1, capacity, c->kv_heads, c->dim / c->heads}, two = 2;
    const gd_dtype dtype = gd_tensor_dtype(m->embedding);
    *d = (decoder){.m = m, .layers = c->layers, .capacity = capacity};
    d->keys = calloc((size_t)c->layers, sizeof *d->keys);
    d->values = calloc((size_t)c->layers, sizeof *d->values);
    if (!d->keys || !d->values) {
        return gd_fail(m->ctx, GD_ERROR_MEMORY, "out of memory: the keys and values of %lld layers",
                       (long long)c->layers);
    }
    for (int64_t i = 0; i < c->layers; i++) {
        d->keys[i] = gd_tensor_create(m->ctx, dtype, 4, shape);
        d->values[i] = gd_tensor_create(m->ctx, dtype, 4, shape);
    }
    d->logits = gd_tensor_create(m->ctx, GD_FLOAT32, 1, &c->vocab);
    d->next = gd_tensor_create(m->ctx, GD_INT32, 1, &two);
    d->ids = gd_tensor_create(m->ctx, GD_INT32, 1, &capacity);
    d->graph = gd_graph_create(m->ctx, NULL);
    return gd_error_status(m->ctx);
}

void decoder_free(decoder *d)
{
    for (int64_t i = 0; i < d->layers; i++) {
        if (d->keys) gd_tensor_free(d->keys[i]);
        if (d->values) gd_tensor_free(d->values[i]);
    }
    gd_graph_free(d->graph);
    gd_tensor_free(d->logits);
    gd_tensor_free(d->next);
    gd_tensor_free(d->ids);
    free(d->keys);
    free(d->values);
    *d = (decoder){0};
}

/* ---- Forward ------------------------------------------------------------------------------ */

/* Appends the rows [1, T, KV, D] to those in `all`, and returns a view of all rows so far. */
static gd_tensor *append(gd_tensor *all, int64_t length, gd_tensor *rows)
{
    int64_t end = length + gd_tensor_dim(rows, 1);
    gd_tensor_copy(gd_slice(all, 1, length, end), rows);
    gd_tensor_free(rows);
    return gd_slice(all, 1, 0, end);
}

/* Attention, causal, of the tokens that are being read, on all so far; stores their keys and values.
 * `position`: of a single token; NULL: of several, after those read before. Takes over
 * qkv [1, T, H + 2 KV, D] -> [1, T, H, D]. */
static gd_tensor *attend(decoder *d, int64_t layer, gd_tensor *qkv, gd_tensor *position)
{
    const model_config *c = &d->m->config;
    const gd_attention_options causal = {.causal = true};
    gd_rope_options rope = {.base = c->rope_base};
    gd_tensor *keys = d->keys[layer], *values = d->values[layer], *q, *k, *v;
    if (position)
        return model_last_use(qkv, gd_attention_decode(qkv, keys, values, position, &rope));
    rope.position = d->length;
    gd_rope_qkv(qkv, c->kv_heads, &rope, &q, &k, &v);
    gd_tensor_free(qkv);
    k = append(keys, d->length, k);
    v = append(values, d->length, v);
    gd_tensor *y = gd_attention(q, k, v, &causal);
    gd_tensor_free(q), gd_tensor_free(k), gd_tensor_free(v);
    return y;
}

/* model_add_norm, and a product with what is normalised; for a single token in one op. */
static gd_tensor *add_norm_linear(const model *m, gd_tensor **x, gd_tensor *branch, gd_tensor *norm,
                                  gd_tensor *weight, bool single)
{
    if (!branch || !single) {
        gd_tensor *h = model_add_norm(m, x, branch, norm);
        return model_last_use(h, gd_linear(h, weight, NULL));
    }
    gd_tensor *before = *x;
    gd_tensor *y = gd_norm_linear_decode(branch, before, norm, weight, m->config.eps, x);
    return model_last_use(before, model_last_use(branch, y));
}

/* tokens GD_INT32 [1, T] -> logits [1, 1, V] of the token after them; `position` as for attend. */
static gd_tensor *read_tokens(decoder *d, gd_tensor *tokens, gd_tensor *position)
{
    const model *m = d->m;
    const model_config *c = &m->config;
    const int64_t last = gd_tensor_dim(tokens, 1) - 1, rows[3] = {1, last + 1, c->dim};
    const int64_t heads[4] = {1, last + 1, c->heads + 2 * c->kv_heads, c->dim / c->heads};
    gd_tensor *x = gd_embedding(m->embedding, tokens), *branch = NULL;
    for (int64_t i = 0; i < c->layers; i++) {
        const model_layer *l = &m->layers[i];
        gd_tensor *y = add_norm_linear(m, &x, branch, l->norm1, l->wqkv, position);
        y = attend(d, i, model_last_use(y, gd_reshape(y, 4, heads)), position);
        y = model_last_use(y, gd_reshape(y, 3, rows));
        branch = model_last_use(y, gd_linear(y, l->wo, NULL));
        branch = model_ffn(m, l, add_norm_linear(m, &x, branch, l->norm2, l->w_gate_up, position));
    }
    gd_tensor *h = model_add_norm(m, &x, branch, m->norm_final);
    gd_tensor_free(x);
    h = model_last_use(h, gd_slice(h, 1, last, last + 1));
    return model_last_use(h, gd_linear(h, m->output, NULL));
}

/* ---- Reading ------------------------------------------------------------------------------ */

/* Reads the token in `next`. */
static gd_tensor *read_next(decoder *d)
{
    const int64_t shape[2] = {1, 1};
    gd_tensor *token = gd_reshape(gd_slice(d->next, 0, 0, 1), 2, shape);
    return read_tokens(d, token, gd_slice(d->next, 0, 1, 2));
}

static gd_status keep_logits(decoder *d, gd_tensor *logits)
{
    return gd_tensor_copy(d->logits, gd_reshape(logits, 1, &d->m->config.vocab));
}

static gd_status draw_from(decoder *d, gd_tensor *logits)
{
    gd_sample_token(gd_slice(logits, -1, 0, d->drawn), d->next, d->ids, d->temperature);
    return gd_error_status(d->m->ctx);
}

/* The functions of the graph. */
static gd_status read_step(void *d)
{
    return keep_logits(d, read_next(d));
}
static gd_status sample_token(void *d)
{
    return draw_from(d, read_next(d));
}

/* Reads the tokens and passes the logits on, by `step` or, if it is not a single one, `rest`. */
static gd_status read_all(decoder *d, const int32_t *tokens, int64_t count, gd_graph_function step,
                          gd_status (*rest)(decoder *, gd_tensor *))
{
    gd_context *ctx = d->m->ctx;
    const int32_t next[2] = {tokens[count - 1], (int32_t)(d->length + count - 1)};
    const int64_t shape[2] = {1, count};
    gd_tensor_write(d->next, next, sizeof next);
    if (count == 1) {
        gd_graph_run(d->graph, step, d);
    } else {
        gd_tensor *all = gd_tensor_from(ctx, GD_INT32, 2, shape, tokens);
        rest(d, read_tokens(d, all, NULL));
        gd_step_end(ctx);
        gd_tensor_free(all);
    }
    d->length += count;
    return gd_error_status(ctx);
}

gd_status decode_read(decoder *d, const int32_t *tokens, int64_t count)
{
    return read_all(d, tokens, count, read_step, keep_logits);
}

int64_t decode_sample(decoder *d, const int32_t *tokens, int64_t count, int64_t draws, int32_t *ids)
{
    const int64_t begin = d->length + count - 1;
    int64_t good = 0;
    read_all(d, tokens, count, sample_token, draw_from);
    for (int64_t i = 1; i < draws; i++) gd_graph_run(d->graph, sample_token, d);
    gd_tensor_read(gd_slice(d->ids, 0, begin, begin + draws), ids, (size_t)draws * sizeof *ids);
    gd_step_end(d->m->ctx);
    if (gd_error(d->m->ctx)) return 0;
    while (good < draws && ids[good] >= 0) good++;
    if (good > 0) d->length += good - 1; /* the last one is to be read */
    return good;
}
