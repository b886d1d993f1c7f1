/* bpe.h - byte-level byte-pair encoding: text as ids of frequent pieces.
 *
 * Gage 1994; Sennrich et al. 2016 (arXiv:1508.07909); on bytes as in Radford et al. 2019. Tokens 0
 * to 255 are the bytes themselves, so any sequence of bytes can be encoded, and is decoded without
 * change. Each further token is a pair of earlier ones: training repeatedly merges the most
 * frequent pair of neighbours.
 *
 * Pairs are not merged across words. A word is a run of letters (all characters from U+0080 on
 * count as letters), of digits (at most 3), of blanks, or of other characters; a single space
 * belongs to the letters, digits or other characters after it. Words are cut after 64 characters,
 * which bounds the work; a byte that is not valid UTF-8 counts as a character.
 */
#ifndef GRADUS_TRAIN_BPE_H
#define GRADUS_TRAIN_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pair_map { /* from a pair of tokens to a number; open addressing */
    uint64_t *key;        /* 0: free */
    int64_t *value;
    size_t capacity, used; /* a power of two, or 0 */
} pair_map;

typedef struct bpe {
    int32_t vocab;       /* 256 + merges */
    int32_t capacity;    /* tokens that there is room for */
    int32_t (*merge)[2]; /* token 256 + i is merge[i][0], then merge[i][1] */
    uint8_t **bytes;     /* [vocab] what each token stands for */
    int32_t *length;     /* [vocab] in bytes */
    pair_map token_of;   /* from a pair to its token */
    int32_t *by_bytes;   /* [slots] 1 + token, found by its bytes; 0: free */
    uint32_t slots;      /* a power of two */
} bpe;

/* Learns at most `vocab` tokens (at least 256) from a text; fewer where no pair occurs twice. Among
 * equals the pair that is first in (left, right) is taken. False, with *b empty, if there is no
 * memory. */
bool bpe_train(bpe *b, const uint8_t *text, int64_t length, int32_t vocab);

/* An encoder of the 256 bytes, with room for `vocab` tokens. False, with *b empty, if there is no
 * memory. */
bool bpe_begin(bpe *b, int32_t vocab);

/* Adds the token `left`, then `right`. False if they are not tokens, the result is longer than a
 * word or has the bytes of another token, or there is neither room nor memory for it. */
bool bpe_add(bpe *b, int32_t left, int32_t right);

/* The token of these bytes; -1: none. */
int32_t bpe_find(const bpe *b, const uint8_t *bytes, int32_t length);

/* Encodes a text into ids, which the caller frees. NULL if there is no memory. The earliest merge
 * that applies in a word is applied first. */
int32_t *bpe_encode(const bpe *b, const uint8_t *text, int64_t length, int64_t *count);

void bpe_free(bpe *b);

/* The length in bytes of the first word of a text that is not empty. */
int64_t bpe_word(const uint8_t *text, int64_t length);

enum { BPE_LONGEST = 1 + 64 * 4 }; /* bytes of a word, and of a token */

#endif
