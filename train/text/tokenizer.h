/* tokenizer.h - from text to ids and back. */
#ifndef GRADUS_TRAIN_TOKENIZER_H
#define GRADUS_TRAIN_TOKENIZER_H

#include "bpe.h"

typedef enum tokenizer_kind {
    TOKENIZER_NONE,  /* the ids come from a token file; their texts are unknown */
    TOKENIZER_BYTES, /* one id for each byte that occurs in the text */
    TOKENIZER_BPE    /* bpe.h */
} tokenizer_kind;

typedef struct tokenizer {
    tokenizer_kind kind;
    int64_t vocab;
    /* TOKENIZER_BYTES */
    unsigned char symbol[256]; /* the byte of each id */
    int16_t id_of[256];        /* the id of each byte; -1: none */
    bpe bpe;                   /* TOKENIZER_BPE */
} tokenizer;

/* The bytes that occur in a text, in their order. */
void tokenizer_use_bytes(tokenizer *t, const uint8_t *text, int64_t length);

/* Merges learned from a text; `vocab` of them with the bytes, or fewer. False: no memory. */
bool tokenizer_train(tokenizer *t, const uint8_t *text, int64_t length, int32_t vocab);

void tokenizer_free(tokenizer *t);

/* Encodes a text. Returns ids of *width bytes each (1, 2 or 4, little-endian), allocated here; NULL
 * if there is no memory, and *unknown is -1, or if the byte at *unknown has no id. */
void *tokenizer_encode(const tokenizer *t, const uint8_t *text, int64_t length, int *width,
                       int64_t *count, int64_t *unknown);

enum { TOKENIZER_ID_TEXT = 16 };

/* The bytes of an id, *length of them; if unknown, the id itself and a space, written to `room`. */
const void *tokenizer_text_of(const tokenizer *t, int32_t id, char room[TOKENIZER_ID_TEXT],
                              size_t *length);

/* The number of bytes of an id; 0 if unknown. */
int64_t tokenizer_bytes(const tokenizer *t, int32_t id);

/* An id to begin a text with: a line break if there is one, else 0. */
int32_t tokenizer_first(const tokenizer *t);

#endif
