/* cache.c - see cache.h. */
#include "cache.h"

#include <stdlib.h>

gd_status cache_create(model_cache *cache, const model *m, int64_t room)
{
    const model_config *c = &m->config;
    const int64_t shape[4] = {1, room, c->kv_heads, c->dim / c->heads};
    const gd_dtype dtype = gd_tensor_dtype(m->embedding);
    *cache = (model_cache){.layers = c->layers, .room = room};
    cache->keys = calloc((size_t)c->layers, sizeof *cache->keys);
    cache->values = calloc((size_t)c->layers, sizeof *cache->values);
    if (!cache->keys || !cache->values) {
        return gd_fail(m->ctx, GD_ERROR_MEMORY, "no memory for the keys and values of %lld layers",
                       (long long)c->layers);
    }
    for (int64_t i = 0; i < c->layers; i++) {
        cache->keys[i] = gd_tensor_create(m->ctx, dtype, 4, shape);
        cache->values[i] = gd_tensor_create(m->ctx, dtype, 4, shape);
    }
    return gd_error_status(m->ctx);
}

void cache_free(model_cache *cache)
{
    for (int64_t i = 0; i < cache->layers; i++) {
        if (cache->keys) gd_tensor_free(cache->keys[i]);
        if (cache->values) gd_tensor_free(cache->values[i]);
    }
    free(cache->keys);
    free(cache->values);
    *cache = (model_cache){0};
}

/* Appends the rows [1, T, KV, D] to those in `all`, and returns a view of all rows so far. */
static gd_tensor *append(gd_tensor *all, int64_t length, gd_tensor *rows)
{
    int64_t end = length + gd_tensor_dim(rows, 1);
    gd_tensor_copy(gd_slice(all, 1, length, end), rows);
    gd_tensor_free(rows);
    return gd_slice(all, 1, 0, end);
}

void cache_extend(model_cache *cache, int64_t layer, gd_tensor **k, gd_tensor **v)
{
    *k = append(cache->keys[layer], cache->length, *k);
    *v = append(cache->values[layer], cache->length, *v);
}

gd_tensor *cache_logits(model_cache *cache, model *m, gd_tensor *tokens)
{
    m->cache = cache;
    gd_tensor *logits = model_logits(m, tokens);
    m->cache = NULL;
    cache->length += gd_tensor_dim(tokens, 1);
    return logits;
}
