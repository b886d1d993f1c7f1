/* options.h - what the training program can be told. */
#ifndef GRADUS_TRAIN_OPTIONS_H
#define GRADUS_TRAIN_OPTIONS_H

#include <stdio.h>

#include "gradus/gradus.h"

typedef struct train_options {
    const char *config;   /* a file of options */
    char *config_text;    /* what was read from it; texts among the options point into it */
    const char *data;     /* a text file, or */
    const char *tokens;   /* token files */
    const char *val_data; /* the like for validation */
    int64_t vocab;        /* 0: the characters of the text */

    int64_t layers, dim, heads, kv_heads, ffn; /* kv_heads 0: heads; ffn 0: 8/3 dim, rounded up */
    int64_t context, batch;
    double dropout;
    bool tied; /* the output projection is the embedding */

    int64_t accumulate; /* batches to a step */
    int64_t steps;
    double max_seconds; /* 0: no limit */
    gd_schedule_kind schedule;
    double lr, min_lr; /* min_lr below 0: a tenth of lr */
    int64_t warmup;
    bool overfit_one_batch, dry_run;
    int64_t skip_nonfinite; /* how many steps may be left out */
    double weight_decay, beta2, clip;
    bool recompute; /* keep one tensor a layer, and compute the rest again in the backward */

    int64_t eval_every, log_every, sample_every, sample_length;
    const char *log; /* a file for JSON lines */
    double temperature;

    const char *out; /* folder of checkpoints; NULL: none are saved */
    const char *init, *resume;
    int64_t checkpoint_every, keep, keep_every;

    gd_dtype dtype;
    gd_device device;
    int64_t threads, seed;

    uint64_t given; /* a bit for each option that the command line or the file named */
} train_options;

typedef enum options_outcome {
    OPTIONS_RUN,  /* go on */
    OPTIONS_DONE, /* --help or --version was answered: exit with 0 */
    OPTIONS_BAD   /* a message was printed: exit with 2 */
} options_outcome;

/* Reads the command line over the configuration file, if one is named, over the defaults. Free it
 * whatever the outcome. */
options_outcome options_read(train_options *options, int argc, char **argv);
void options_free(train_options *options);

/* Fills in what follows from other options, and checks that all fit together. False after a
 * message. */
bool options_check(train_options *options);

/* ---- As texts, for checkpoints ------------------------------------------------------------ */

enum { OPTIONS_MOST = 64 };

typedef struct options_item {
    const char *name; /* "layers" */
    char key[40];     /* "option.layers" */
    char number[32];
    const char *text; /* the value, as in a file of options; NULL: it has none */
} options_item;

/* The i-th option that a run keeps when it is resumed: not where it begins and ends, nor the
 * machine. False past the end. */
bool options_saved(const train_options *options, int i, options_item *item);

/* Sets an option to such a text, unless it was given; then, if they must agree, a different value
 * is a fault. False after a message. The options keep a pointer to the text. */
bool options_restore(train_options *options, const char *name, const char *text, bool must_agree);

/* ---- As JSON ------------------------------------------------------------------------------ */

/* Writes all options as the members of a JSON object, without its braces. */
void options_print_json(const train_options *options, FILE *file);

/* Writes a text as a JSON string, quotes included. */
void json_print_string(const char *text, FILE *file);

#endif
