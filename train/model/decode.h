/* decode.h - generating text: reading tokens, and drawing the next one. The keys and values of the
 * tokens read so far are cached, so that the next token costs one row and not as many as there are
 * tokens.
 *
 * Causal attention never looks ahead, so a token's keys and values do not depend on later tokens.
 * Keys are stored after the rotation by their positions.
 *
 * A single token is read by the same kernels with the same arguments at any position: the token and
 * its position are in the device's memory. So on a GPU it is one graph (gradus/graph.h).
 */
#ifndef GRADUS_TRAIN_DECODE_H
#define GRADUS_TRAIN_DECODE_H

#include "model.h"

typedef struct decoder {
    model *m;
    gd_tensor **keys, **values;       /* per layer: [1, capacity, KV, D] */
    int64_t layers, capacity, length; /* `length` tokens have been read */
    gd_tensor *logits;                /* float32 [V]: of the token after them */
    gd_tensor *next;                  /* int32 [2]: a token to read, and its position */
    gd_tensor *ids;                   /* int32 [capacity]: drawn after the token at a position */
    /* For decode_sample, and set before its first call. Draws are among ids 0 ... drawn - 1. */
    double temperature;
    int64_t drawn;
    gd_graph *graph; /* of a single token */
} decoder;

/* Allocates memory for `capacity` tokens. On error the context has the message; free it in any
 * case. */
gd_status decoder_create(decoder *d, model *m, int64_t capacity);
void decoder_free(decoder *d);

/* Reads `count` >= 1 more tokens, fills d->logits, and ends the step. To start over, set `length` to
 * 0. Call it without a tape. */
gd_status decode_read(decoder *d, const int32_t *tokens, int64_t count);

/* Reads `count` >= 1 more tokens and draws the next one on the device, reads that and draws, and so
 * on; fills ids [draws]. The host waits once for all of them. Returns how many were drawn; fewer
 * than `draws`: the logits of the next one are not finite, or there is an error. There must be
 * capacity for `count + draws - 1` more tokens; `length` grows by those that were read. */
int64_t decode_sample(decoder *d, const int32_t *tokens, int64_t count, int64_t draws,
                      int32_t *ids);

#endif
