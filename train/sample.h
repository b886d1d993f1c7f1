/* sample.h - text from a trained model. */
#ifndef GRADUS_TRAIN_SAMPLE_H
#define GRADUS_TRAIN_SAMPLE_H

#include <stdio.h>

#include "model.h"
#include "tokenizer.h"

/* Writes `length` tokens, one after the other: each is drawn from softmax(logits / temperature)
 * given the `context` before it (temperature 0: the likeliest). Begins after a line break if the
 * vocabulary has one. */
gd_status sample_text(model *m, const tokenizer *t, int64_t context, int64_t length,
                      double temperature, FILE *file);

#endif
