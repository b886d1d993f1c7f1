/* sample.h - text from a trained model. */
#ifndef GRADUS_TRAIN_SAMPLE_H
#define GRADUS_TRAIN_SAMPLE_H

#include <stdio.h>

#include "model.h"
#include "tokenizer.h"

typedef struct sample_options {
    const int32_t *prompt; /* what the text goes on from; its last `context` tokens are read */
    int64_t prompt_length; /* 0: it begins after a line break, if the vocabulary has one */
    int64_t length;        /* tokens */
    int64_t context;       /* tokens seen at once */
    double temperature;    /* 0: always the likeliest */
    int64_t top_k;         /* only from so many of the likeliest; 0: from all */
    double top_p;          /* only from the likeliest that make up this probability; 0 or 1: all */
    const char *stop;      /* the text ends before this one; NULL: it does not */
} sample_options;

/* Writes tokens, one after the other, as they come: each is drawn from softmax(logits /
 * temperature) given those before it. Where the context is full, the oldest eighth of it is
 * forgotten, and the rest read again from position 0. Ends early where a signal comes (stop.h).
 * *count, if not NULL, gets how many tokens there were. Logits that are not finite are an error
 * (GD_ERROR_STATE). */
gd_status sample_text(model *m, const tokenizer *t, const sample_options *options, FILE *file,
                      int64_t *count);

#endif
