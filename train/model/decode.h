/* decode.h - generating text: reading tokens, and the logits of the next one. The keys and values
 * of the tokens read so far are cached, so that the next token costs one row and not as many as
 * there are tokens.
 *
 * Causal attention never looks ahead, so a token's keys and values do not depend on later tokens.
 * Keys are stored after the rotation by their positions.
 */
#ifndef GRADUS_TRAIN_DECODE_H
#define GRADUS_TRAIN_DECODE_H

#include "model.h"

typedef struct decoder {
    model *m;
    gd_tensor **keys, **values; /* per layer: [1, capacity, KV, D] */
    int64_t layers, length;     /* `length` tokens have been read */
} decoder;

/* Allocates memory for `capacity` tokens. On error the context has the message; free it in any
 * case. */
gd_status decoder_create(decoder *d, model *m, int64_t capacity);
void decoder_free(decoder *d);

/* Reads `count` >= 1 more tokens, fills logits [V], of the token after them, and ends the step. To
 * start over, set `length` to 0. Call it without a tape. */
gd_status decode_read(decoder *d, const int32_t *tokens, int64_t count, float *logits);

#endif
