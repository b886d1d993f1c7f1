/* cache.c - see cache.h. */
#include "cache.h"

#include <stdlib.h>

/* ---- Making and freeing ------------------------------------------------------------------- */

gd_status cache_create(model_cache *cache, model *m, int64_t room)
{
    const model_config *c = &m->config;
    const int64_t shape[4] = {1, room, c->kv_heads, c->dim / c->heads}, two = 2;
    const gd_dtype dtype = gd_tensor_dtype(m->embedding);
    *cache = (model_cache){.m = m, .layers = c->layers, .room = room};
    cache->keys = calloc((size_t)c->layers, sizeof *cache->keys);
    cache->values = calloc((size_t)c->layers, sizeof *cache->values);
    if (!cache->keys || !cache->values) {
        return gd_fail(m->ctx, GD_ERROR_MEMORY, "out of memory: the keys and values of %lld layers",
                       (long long)c->layers);
    }
    for (int64_t i = 0; i < c->layers; i++) {
        cache->keys[i] = gd_tensor_create(m->ctx, dtype, 4, shape);
        cache->values[i] = gd_tensor_create(m->ctx, dtype, 4, shape);
    }
    cache->logits = gd_tensor_create(m->ctx, GD_FLOAT32, 1, &c->vocab);
    cache->next = gd_tensor_create(m->ctx, GD_INT32, 1, &two);
    cache->ids = gd_tensor_create(m->ctx, GD_INT32, 1, &room);
    cache->graph = gd_graph_create(m->ctx, NULL);
    return gd_error_status(m->ctx);
}

void cache_free(model_cache *cache)
{
    for (int64_t i = 0; i < cache->layers; i++) {
        if (cache->keys) gd_tensor_free(cache->keys[i]);
        if (cache->values) gd_tensor_free(cache->values[i]);
    }
    gd_graph_free(cache->graph);
    gd_tensor_free(cache->logits);
    gd_tensor_free(cache->next);
    gd_tensor_free(cache->ids);
    free(cache->keys);
    free(cache->values);
    *cache = (model_cache){0};
}

/* ---- Attention ---------------------------------------------------------------------------- */

/* Appends the rows [1, T, KV, D] to those in `all`, and returns a view of all rows so far. */
static gd_tensor *append(gd_tensor *all, int64_t length, gd_tensor *rows)
{
    int64_t end = length + gd_tensor_dim(rows, 1);
    gd_tensor_copy(gd_slice(all, 1, length, end), rows);
    gd_tensor_free(rows);
    return gd_slice(all, 1, 0, end);
}

gd_tensor *cache_attention(model_cache *cache, int64_t layer, gd_tensor *qkv)
{
    const model_config *c = &cache->m->config;
    const gd_attention_options causal = {.causal = true};
    gd_rope_options rope = {.base = c->rope_base};
    gd_tensor *keys = cache->keys[layer], *values = cache->values[layer], *q, *k, *v, *y;
    if (cache->position) {
        y = gd_attention_decode(qkv, keys, values, cache->position, &rope);
        gd_tensor_free(qkv);
        return y;
    }
    rope.position = cache->length;
    gd_rope_qkv(qkv, c->kv_heads, &rope, &q, &k, &v);
    gd_tensor_free(qkv);
    k = append(keys, cache->length, k);
    v = append(values, cache->length, v);
    y = gd_attention(q, k, v, &causal);
    gd_tensor_free(q), gd_tensor_free(k), gd_tensor_free(v);
    return y;
}

/* ---- Reading ------------------------------------------------------------------------------ */

/* tokens GD_INT32 [1, T] -> logits [1, 1, V] of the token after them */
static gd_tensor *read_tokens(model_cache *cache, gd_tensor *tokens)
{
    cache->m->cache = cache;
    gd_tensor *logits = model_logits(cache->m, tokens);
    cache->m->cache = NULL;
    return logits;
}

/* Reads the token in `next`. */
static gd_tensor *read_next(model_cache *cache)
{
    const int64_t shape[2] = {1, 1};
    cache->position = gd_slice(cache->next, 0, 1, 2);
    gd_tensor *logits = read_tokens(cache, gd_reshape(gd_slice(cache->next, 0, 0, 1), 2, shape));
    cache->position = NULL;
    return logits;
}

static gd_status keep_logits(model_cache *cache, gd_tensor *logits)
{
    return gd_tensor_copy(cache->logits, gd_reshape(logits, 1, &cache->m->config.vocab));
}

static gd_status draw_from(model_cache *cache, gd_tensor *logits)
{
    gd_sample_token(gd_slice(logits, -1, 0, cache->drawn), cache->next, cache->ids,
                    cache->temperature);
    return gd_error_status(cache->m->ctx);
}

/* The functions of the graph. */
static gd_status read_step(void *cache)
{
    return keep_logits(cache, read_next(cache));
}
static gd_status sample_token(void *cache)
{
    return draw_from(cache, read_next(cache));
}

/* Reads the tokens and passes the logits on, by `step` or, if it is not a single one, `rest`. */
static gd_status read_all(model_cache *cache, const int32_t *tokens, int64_t count,
                          gd_graph_function step, gd_status (*rest)(model_cache *, gd_tensor *))
{
    gd_context *ctx = cache->m->ctx;
    const int32_t next[2] = {tokens[count - 1], (int32_t)(cache->length + count - 1)};
    const int64_t shape[2] = {1, count};
    gd_tensor_write(cache->next, next, sizeof next);
    if (count == 1) {
        gd_graph_run(cache->graph, step, cache);
    } else {
        gd_tensor *all = gd_tensor_from(ctx, GD_INT32, 2, shape, tokens);
        rest(cache, read_tokens(cache, all));
        gd_step_end(ctx);
        gd_tensor_free(all);
    }
    cache->length += count;
    return gd_error_status(ctx);
}

gd_status cache_read(model_cache *cache, const int32_t *tokens, int64_t count)
{
    return read_all(cache, tokens, count, read_step, keep_logits);
}

int64_t cache_draw(model_cache *cache, const int32_t *tokens, int64_t count, int64_t draws,
                   int32_t *ids)
{
    const int64_t begin = cache->length + count - 1;
    int64_t good = 0;
    read_all(cache, tokens, count, sample_token, draw_from);
    for (int64_t i = 1; i < draws; i++) gd_graph_run(cache->graph, sample_token, cache);
    gd_tensor_read(gd_slice(cache->ids, 0, begin, begin + draws), ids, (size_t)draws * sizeof *ids);
    gd_step_end(cache->m->ctx);
    if (gd_error(cache->m->ctx)) return 0;
    while (good < draws && ids[good] >= 0) good++;
    if (good > 0) cache->length += good - 1; /* the last one is to be read */
    return good;
}
