/* data.h - a text as numbers. The vocabulary is the set of bytes that occur in it; the first nine
 * tenths are for training, the rest for validation. */
#ifndef GRADUS_TRAIN_DATA_H
#define GRADUS_TRAIN_DATA_H

#include "gradus/gradus.h"

typedef struct text_data {
    uint8_t *ids; /* [length], each below vocab */
    int64_t length, train_length;
    int64_t vocab;
    unsigned char symbol[256]; /* the byte of each id */
} text_data;

/* Reads a file. False after a message on stderr: no such file, no memory, or too short for windows
 * of `context` + 1 in both parts. */
bool data_load(text_data *data, const char *path, int64_t context);
void data_free(text_data *data);

/* Fills tokens and targets, both GD_INT32 [B, T], with windows of the training part that begin
 * at random places; the targets are the tokens that follow. Draws from the context's stream. */
gd_status data_draw(const text_data *data, gd_tensor *tokens, gd_tensor *targets);

/* The number of windows of `context` tokens in the validation part, side by side. */
int64_t data_validation_windows(const text_data *data, int64_t context);

/* Fills tokens and targets [B, T] with validation windows `first` to `first` + B - 1. */
gd_status data_validation(const text_data *data, int64_t first, gd_tensor *tokens,
                          gd_tensor *targets);

#endif
