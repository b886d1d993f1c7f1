/* dropout.h - dropout on the weights of attention: which of them are kept.
 *
 * Nothing is stored: a weight's 16 random bits follow from its position, so that the backward draws
 * them again. Weights are taken in tiles of 16 queries and 16 keys, and a tile has 32 blocks of
 * Philox, four words each: block 4 (t mod 8) + (s mod 8) / 2 has the words of (t, s), (t, s + 8),
 * (t + 8, s) and (t + 8, s + 8), for t and s below 8, of which an even s has the low half and s + 1
 * the high one. On a tensor core these eight are in one lane's registers if queries are the rows,
 * and in those of two lanes if keys are. */
#ifndef GRADUS_ATTENTION_DROPOUT_H
#define GRADUS_ATTENTION_DROPOUT_H

#include "attention/attention.h"
#include "dropout/dropout.h"
#include "gradus/random.h"

#ifdef __CUDACC__
#define ATTENTION_BOTH __host__ __device__ static inline
#else
#define ATTENTION_BOTH static inline
#endif

typedef struct attention_dropout {
    uint32_t threshold;    /* gd_dropout_threshold */
    float scale_f32;       /* gd_dropout_scale */
    double scale;          /* the same */
    gd_random_state drawn; /* where the call's random words begin, unless `base` is given: */
    /* then its seed counts, and offsets from its own; gd_call says why */
    const gd_random_state *base;
    int64_t query_tiles, key_tiles; /* of a head */
} attention_dropout;

/* Random words of a call: those of its blocks. */
static inline uint64_t attention_dropout_words(const attention_args *args, const attention_sizes *z)
{
    if (!gd_dropout_threshold(args->dropout)) return 0;
    return (uint64_t)(z->B * z->H * gd_divide_up(z->T, 16) * gd_divide_up(z->S, 16)) * 128;
}

/* The seed, and the call's first block of Philox as the offset: on a GPU in device code only. */
ATTENTION_BOTH gd_random_state attention_dropout_start(const attention_dropout *dropout)
{
    gd_random_state start = dropout->drawn;
    if (dropout->base) {
        start.seed = dropout->base->seed;
        start.offset += dropout->base->offset;
    }
    start.offset /= 4;
    return start;
}

/* The block of Philox for query t and key s of head `head`, counted over the batch. */
ATTENTION_BOTH uint64_t attention_dropout_block(const attention_dropout *dropout,
                                                gd_random_state start, int64_t head, int64_t t,
                                                int64_t s)
{
    const int64_t tile = (head * dropout->query_tiles + t / 16) * dropout->key_tiles + s / 16;
    return start.offset + (uint64_t)(tile * 32 + t % 8 * 4 + s % 8 / 2);
}

static inline attention_dropout attention_dropout_of(const gd_call *call, const attention_sizes *z)
{
    attention_dropout dropout;
    dropout.threshold = gd_dropout_threshold(((const attention_args *)call->args)->dropout);
    dropout.scale = gd_dropout_scale(dropout.threshold);
    dropout.scale_f32 = (float)dropout.scale;
    dropout.drawn.seed = call->seed;
    dropout.drawn.offset = call->random_offset;
    dropout.base = call->random_base;
    dropout.query_tiles = (z->T + 15) / 16;
    dropout.key_tiles = (z->S + 15) / 16;
    return dropout;
}

#endif
