/* cache.h - the keys and values of the tokens read so far, so that the next token costs one row and
 * not as many as there are tokens.
 *
 * Causal attention never looks ahead, so a token's keys and values do not depend on later tokens.
 * Keys are stored after the rotation by their positions.
 *
 * A single token is read by the same kernels with the same arguments at any position: the token and
 * its position are in the device's memory. So on a GPU it is one graph (gradus/graph.h).
 */
#ifndef GRADUS_TRAIN_CACHE_H
#define GRADUS_TRAIN_CACHE_H

#include "model.h"

typedef struct model_cache {
    model *m;
    gd_tensor **keys, **values;   /* per layer: [1, room, KV, D] */
    int64_t layers, room, length; /* `length` tokens have been read */
    gd_tensor *logits;            /* float32 [V]: of the token after them */
    gd_tensor *next;              /* int32 [2]: a token to read, and its position */
    gd_tensor *ids;               /* int32 [room]: what was drawn after the token at a position */
    /* Set both before cache_draw. `drawn`: sample among ids 0 ... drawn - 1. */
    double temperature;
    int64_t drawn;
    gd_graph *graph;
    gd_tensor *position; /* of the token, while the model reads a single one; else NULL */
} model_cache;

/* Allocates room for so many tokens. On error the context has the message; free it in any case. */
gd_status cache_create(model_cache *cache, model *m, int64_t room);
void cache_free(model_cache *cache);

/* Reads `count` >= 1 more tokens, fills cache->logits, and ends the step. To start over, set
 * `length` to 0. Not for training: call it without a tape. */
gd_status cache_read(model_cache *cache, const int32_t *tokens, int64_t count);

/* Reads `count` >= 1 more tokens and draws the next one on the device, reads that and draws, and so
 * on; fills ids [draws]. The host waits once for all of them. Returns how many were drawn; fewer
 * than `draws`: the logits of the next one are not finite, or there is an error. Room for
 * `count + draws - 1` more tokens is needed; `length` grows by those that were read. */
int64_t cache_draw(model_cache *cache, const int32_t *tokens, int64_t count, int64_t draws,
                   int32_t *ids);

/* For the model: attention of the tokens that are being read, causal, on all so far, of one layer;
 * stores their keys and values. Takes over qkv [1, T, H + 2 KV, D] -> [1, T, H, D]. */
gd_tensor *cache_attention(model_cache *cache, int64_t layer, gd_tensor *qkv);

#endif
