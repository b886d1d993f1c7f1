/* draw.h - which token comes next: a draw from softmax(logits / temperature). */
#ifndef GRADUS_TRAIN_DRAW_H
#define GRADUS_TRAIN_DRAW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct draw_options {
    double temperature; /* 0: always the likeliest */
    int64_t top_k;      /* only from the top_k likeliest; 0: from all */
    double top_p;       /* only from the likeliest that add up to this probability; 0 or 1: all */
} draw_options;

typedef struct draw_candidate {
    double weight; /* its probability over that of the likeliest */
    int32_t id;
} draw_candidate;

/* Memory of the draws from `vocab` tokens. */
typedef struct draw_scratch {
    int64_t vocab;
    double *weights;            /* [vocab] */
    float *highest;             /* [blocks of the vocabulary]: the largest logit */
    draw_candidate *candidates; /* [vocab] */
} draw_scratch;

/* False: there is no memory. Free it in any case. */
bool draw_scratch_create(draw_scratch *scratch, int64_t vocab);
void draw_scratch_free(draw_scratch *scratch);

/* The id drawn from finite logits [vocab], with u uniform in [0, 1). Where tokens are left out, the
 * others are ordered by their probability, and equal ones by their id; otherwise all by their id.
 * The id is the first whose cumulative probability exceeds u. */
int32_t draw_token(const draw_scratch *scratch, const draw_options *o, const float *logits,
                   double u);

/* The first of the logits [count] that is not finite; -1: there is none. */
int64_t draw_find_nonfinite(const float *logits, int64_t count);

#endif
