/* cache.h - the keys and values of tokens that a model has read, so that the next token costs one
 * row of the model and not as many as came before.
 *
 * Causal attention never looks ahead: what a token is turned into does not change with those that
 * follow. Keys are kept as they are after the rotation by their positions.
 */
#ifndef GRADUS_TRAIN_CACHE_H
#define GRADUS_TRAIN_CACHE_H

#include "model.h"

typedef struct model_cache {
    gd_tensor **keys, **values;   /* a layer each: [1, room, KV, D] */
    int64_t layers, room, length; /* `length` tokens have been read */
} model_cache;

/* Room for so many tokens. On error the context says why; free it whatever comes. */
gd_status cache_create(model_cache *cache, const model *m, int64_t room);
void cache_free(model_cache *cache);

/* Reads T more tokens and keeps them: tokens GD_INT32 [1, T] -> logits [1, 1, V] of the token that
 * follows. To begin anew, set `length` to 0. Not for training: call it without a tape. */
gd_tensor *cache_logits(model_cache *cache, model *m, gd_tensor *tokens);

/* For the model: takes over the keys and values [1, T, KV, D] of a layer, and replaces them by
 * those of all tokens, [1, length + T, KV, D]. */
void cache_extend(model_cache *cache, int64_t layer, gd_tensor **k, gd_tensor **v);

#endif
