/* decode.c - see decode.h. */
#include "decode.h"

#include <stdlib.h>

/* ---- Making and freeing ------------------------------------------------------------------- */

gd_status decoder_create(decoder *d, model *m, int64_t capacity)
{
    const model_config *c = &m->config;
    const int64_t shape[4] = {1, capacity, c->kv_heads, c->dim / c->heads};
    const gd_dtype dtype = gd_tensor_dtype(m->embedding);
    *d = (decoder){.m = m, .layers = c->layers};
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
    return gd_error_status(m->ctx);
}

void decoder_free(decoder *d)
{
    for (int64_t i = 0; i < d->layers; i++) {
        if (d->keys) gd_tensor_free(d->keys[i]);
        if (d->values) gd_tensor_free(d->values[i]);
    }
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

/* Attention, causal, of the tokens that are being read, on all so far; stores their keys
 * and values. */
static gd_tensor *attend(void *user, int64_t layer, gd_tensor *qkv)
{
    const decoder *d = user;
    const model_config *c = &d->m->config;
    const gd_attention_options causal = {.causal = true};
    const gd_rope_options rope = {.base = c->rope_base, .position = d->length};
    gd_tensor *q, *k, *v;
    gd_rope_qkv(qkv, c->kv_heads, &rope, &q, &k, &v);
    gd_tensor_free(qkv);
    k = append(d->keys[layer], d->length, k);
    v = append(d->values[layer], d->length, v);
    gd_tensor *y = gd_attention(q, k, v, &causal);
    gd_tensor_free(q), gd_tensor_free(k), gd_tensor_free(v);
    return y;
}

gd_status decode_read(decoder *d, const int32_t *tokens, int64_t count, float *logits)
{
    model *m = d->m;
    const int64_t shape[2] = {1, count};
    gd_tensor *all = gd_tensor_from(m->ctx, GD_INT32, 2, shape, tokens);
    m->attend = attend, m->attend_user = d;
    gd_tensor *h = model_hidden(m, all);
    m->attend = NULL;
    h = model_last_use(h, gd_slice(h, 1, count - 1, count));
    gd_tensor *last = gd_cast(gd_linear(h, m->output, NULL), GD_FLOAT32);
    gd_tensor_read(last, logits, (size_t)m->config.vocab * sizeof *logits);
    gd_step_end(m->ctx);
    gd_tensor_free(all);
    d->length += count;
    return gd_error_status(m->ctx);
}
