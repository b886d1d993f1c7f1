/* sample.h - sampling text from a model. */
#ifndef GRADUS_TRAIN_SAMPLE_H
#define GRADUS_TRAIN_SAMPLE_H

#include <stdio.h>

#include "draw.h"
#include "model.h"
#include "tokenizer.h"

typedef struct sample_options {
    const int32_t *prompt; /* the beginning of the text; its last `context` tokens are read */
    int64_t prompt_length; /* 0: it begins after a line break, if the vocabulary has one */
    int64_t length;        /* tokens */
    int64_t context;       /* tokens the model sees */
    draw_options draw;
    const char *stop;        /* sampling ends before this text; NULL: none */
    const int32_t *stop_ids; /* and before any of these ids */
    int64_t stop_id_count;
    /* written before the sample, which may complete its last character; NULL: nothing */
    const char *begin;
    size_t begin_bytes;
} sample_options;

/* Draws tokens (draw.h) and writes each at once; a GPU that draws from all tokens makes a few
 * before they are written. When the context is full, its oldest eighth is dropped, and the rest is
 * read again from position 0. Ends early after a signal (stop.h). *count, if not NULL, gets the
 * number of tokens. Logits that are not finite are an error (GD_ERROR_STATE). */
gd_status sample_text(model *m, const tokenizer *t, const sample_options *options, FILE *file,
                      int64_t *count);

#endif
