/* tokenizer.c - see tokenizer.h. */
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

void tokenizer_use_bytes(tokenizer *t, const uint8_t *text, int64_t length)
{
    bool seen[256] = {false};
    *t = (tokenizer){.kind = TOKENIZER_BYTES};
    for (int64_t i = 0; i < length; i++) seen[text[i]] = true;
    for (int byte = 0; byte < 256; byte++) {
        t->id_of[byte] = -1;
        if (!seen[byte]) continue;
        t->id_of[byte] = (int16_t)t->vocab;
        t->symbol[t->vocab++] = (unsigned char)byte;
    }
}

bool tokenizer_train(tokenizer *t, const uint8_t *text, int64_t length, int32_t vocab)
{
    *t = (tokenizer){.kind = TOKENIZER_BPE};
    if (!bpe_train(&t->bpe, text, length, vocab)) return false;
    t->vocab = t->bpe.vocab;
    return true;
}

void tokenizer_free(tokenizer *t)
{
    bpe_free(&t->bpe);
    *t = (tokenizer){0};
}

static uint8_t *encode_bytes(const tokenizer *t, const uint8_t *text, int64_t length,
                             int64_t *unknown)
{
    uint8_t *ids = malloc((size_t)length + 1);
    for (int64_t i = 0; ids && i < length; i++) {
        int16_t id = t->id_of[text[i]];
        if (id < 0) {
            *unknown = i;
            free(ids);
            return NULL;
        }
        ids[i] = (uint8_t)id;
    }
    return ids;
}

/* Two bytes are enough for most vocabularies: half the memory. */
static void *encode_pieces(const tokenizer *t, const uint8_t *text, int64_t length, int *width,
                           int64_t *count)
{
    int32_t *ids = bpe_encode(&t->bpe, text, length, count);
    *width = t->vocab <= 65536 ? 2 : 4;
    unsigned char *packed = (unsigned char *)ids;
    for (int64_t i = 0; ids && i < *count; i++) { /* never ahead of the read of ids[i] */
        uint32_t id = (uint32_t)ids[i];
        for (int k = 0; k < *width; k++) packed[i * *width + k] = (unsigned char)(id >> 8 * k);
    }
    return ids;
}

void *tokenizer_encode(const tokenizer *t, const uint8_t *text, int64_t length, int *width,
                       int64_t *count, int64_t *unknown)
{
    *unknown = -1;
    *count = length;
    *width = 1;
    if (t->kind == TOKENIZER_BYTES) return encode_bytes(t, text, length, unknown);
    return encode_pieces(t, text, length, width, count);
}

const void *tokenizer_text_of(const tokenizer *t, int32_t id, char room[TOKENIZER_ID_TEXT],
                              size_t *length)
{
    switch (t->kind) {
    case TOKENIZER_BYTES:
        *length = 1;
        return &t->symbol[id];
    case TOKENIZER_BPE:
        *length = (size_t)t->bpe.length[id];
        return t->bpe.bytes[id];
    case TOKENIZER_NONE:
        break;
    }
    *length = (size_t)snprintf(room, TOKENIZER_ID_TEXT, "%d ", (int)id);
    return room;
}

int64_t tokenizer_bytes(const tokenizer *t, int32_t id)
{
    return t->kind == TOKENIZER_BPE ? t->bpe.length[id] : t->kind == TOKENIZER_BYTES;
}

int32_t tokenizer_first(const tokenizer *t)
{
    if (t->kind == TOKENIZER_BPE) return '\n';
    if (t->kind == TOKENIZER_BYTES && t->id_of['\n'] >= 0) return t->id_of['\n'];
    return 0;
}
