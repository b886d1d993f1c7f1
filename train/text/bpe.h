/* bpe.h - byte-level byte-pair encoding: text as ids of frequent pieces.
 *
 * Gage 1994; Sennrich et al. 2016 (arXiv:1508.07909); on bytes as in Radford et al. 2019. Tokens 0
 * to 255 are the bytes themselves, so any sequence of bytes can be encoded, and is decoded without
 * change. Each further token is a pair of earlier ones: training repeatedly merges the most
 * frequent pair of neighbours.
 *
 * Pairs are not merged across words. A word is a run of letters (bytes from 128 on count as
 * letters), of digits (at most 3), of blanks, or of other characters; a single space belongs to the
 * letters, digits or other characters after it. Words are cut after 64 bytes, which bounds the
 * work.
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
    int32_t (*merge)[2]; /* token 256 + i is merge[i][0], then merge[i][1] */
    uint8_t **bytes;     /* [vocab] what each token stands for */
    int32_t *length;     /* [vocab] in bytes */
    pair_map token_of;   /* from a pair to its token */
} bpe;

/* Learns at most `vocab` tokens (at least 256) from a text; fewer where no pair occurs twice. Among
 * equals the pair that is first in (left, right) is taken. False, with *b empty, if there is no
 * memory. */
bool bpe_train(bpe *b, const uint8_t *text, int64_t length, int32_t vocab);

/* Makes an encoder from its merges [count], which must name only earlier tokens, no pair twice, and
 * give nothing longer than a word. False, with *b empty, if they do not or there is no memory. */
bool bpe_from_merges(bpe *b, const int32_t (*merge)[2], int32_t count);

/* Encodes a text into ids, which the caller frees. NULL if there is no memory. The earliest merge
 * that applies in a word is applied first. */
int32_t *bpe_encode(const bpe *b, const uint8_t *text, int64_t length, int64_t *count);

void bpe_free(bpe *b);

/* The length in bytes of the first word of a text that is not empty. */
int64_t bpe_word(const uint8_t *text, int64_t length);

#endif
