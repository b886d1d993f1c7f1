/* cache.h - the keys and values of the tokens read so far, so that the next token costs one row and
 * not as many as there are tokens.
 *
 * Causal attention never looks ahead, so a token's keys and values do not depend on later tokens.
 * Keys are stored after the rotation by their positions.
 */
#ifndef GRADUS_TRAIN_CACHE_H
#define GRADUS_TRAIN_CACHE_H

#include "model.h"

typedef struct model_cache {
    gd_tensor **keys, **values;   /* per layer: [1, room, KV, D] */
    int64_t layers, room, length; /* `length` tokens have been read */
} model_cache;

/* Allocates room for so many tokens. On error the context has the message; free it in any case. */
gd_status cache_create(model_cache *cache, const model *m, int64_t room);
void cache_free(model_cache *cache);

/* Reads T more tokens: tokens GD_INT32 [1, T] -> logits [1, 1, V] of the next token. To start over,
 * set `length` to 0. Not for training: call it without a tape. */
gd_tensor *cache_logits(model_cache *cache, model *m, gd_tensor *tokens);

/* For the model: takes ownership of the keys and values [1, T, KV, D] of a layer, and replaces them
 * by those of all tokens, [1, length + T, KV, D]. */
void cache_extend(model_cache *cache, int64_t layer, gd_tensor **k, gd_tensor **v);

#endif
