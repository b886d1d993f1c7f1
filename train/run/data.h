/* data.h - training and validation data: windows of tokens, in an order that can be resumed at any
 * step.
 *
 * The training tokens are cut into windows of `context` + 1 (neighbours share one token), and each
 * epoch takes every window once, in an order of its own. The window at position p of the whole run
 * is a function of p and the seed alone: there is no state, and a run resumed at any step reads the
 * same windows as one that was not interrupted.
 */
#ifndef GRADUS_TRAIN_DATA_H
#define GRADUS_TRAIN_DATA_H

#include "gradus/gradus.h"
#include "paths.h"
#include "tokenizer.h"
#include "tokens.h"

/* Which part of a text or of token files to load. */
typedef enum data_part {
    DATA_BOTH,  /* training and validation */
    DATA_TENTH, /* the last tenth of the text, for validation */
    DATA_WHOLE  /* all of `text` or `tokens`, for validation */
} data_part;

typedef struct data_options {
    const char *text;       /* text files (paths.h), or NULL: */
    const char *tokens;     /* token files (tokens.h) */
    const char *option;     /* the option that named it, for messages */
    const char *validation; /* the same for validation; NULL: the last tenth of the text */
    int64_t vocab;          /* a text's: 0, its bytes, or BPE tokens; tokens': the number of ids */
    int token_bytes;        /* of an id in token files without a header; 0: unknown (tokens.h) */
    int64_t context;
    uint64_t seed;
    const tokenizer *tokenizer; /* to encode a text; the dataset takes over its memory. NULL: one is
                                 * made from the text, as `vocab` says */
    data_part part;
    bool compare; /* fingerprint token files */
} data_options;

typedef struct dataset {
    data_options options;
    tokenizer tokenizer;
    token_source train, validation;
    int64_t windows, validation_windows; /* in one epoch; in all */
    /* Fingerprints of what is read for training and for validation; 0: there are none, or of token
     * files without `compare`. */
    uint64_t files[2];
    bool seen;      /* the validation text, or a token file of it, is part of what is trained on */
    paths texts[2]; /* the files of a text, for training and for validation, */
    int64_t *ends[2]; /* and where each ends in it */
} dataset;

/* The bytes of all predicted tokens of the validation windows; 0 if unknown. */
int64_t data_validation_bytes(const dataset *data);

/* Reads the files. False after a message on stderr: no such file, no memory, or too short for a
 * window. */
bool data_load(dataset *data, const data_options *options);
void data_free(dataset *data);

/* Checks that ids from token files are in the vocabulary: the first 2^28 for validation and for
 * training. A later one is found when its batch is read. */
gd_status data_check_ids(gd_context *ctx, const dataset *data);

/* Reads the training windows at positions `position` to `position` + B - 1: ids [2, B, T], of which
 * the second half are the targets, the tokens that follow. */
gd_status data_read_batch(gd_context *ctx, const dataset *data, int64_t position, int64_t batch,
                          int32_t *ids);

/* Fills tokens and targets, both GD_INT32 [B, T], with such ids. */
gd_status data_write_batch(const int32_t *ids, gd_tensor *tokens, gd_tensor *targets);

/* Fills them with validation windows `first` to `first` + B - 1. */
gd_status data_validation(const dataset *data, int64_t first, gd_tensor *tokens,
                          gd_tensor *targets);

#endif
