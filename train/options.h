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
    double weight_decay, beta2, clip;
    bool recompute; /* keep one tensor a layer, and compute the rest again in the backward */

    int64_t eval_every, log_every, sample_every, sample_length;
    const char *log; /* a file for JSON lines */
    double temperature;

    gd_dtype dtype;
    gd_device device;
    int64_t threads, seed;
} train_options;

typedef enum options_outcome {
    OPTIONS_RUN,  /* go on */
    OPTIONS_DONE, /* --help or --version was answered: exit with 0 */
    OPTIONS_BAD   /* a message was printed: exit with 2 */
} options_outcome;

/* Reads the command line over the configuration file, if one is named, over the defaults, and
 * checks that the parts fit together. Free it whatever the outcome. */
options_outcome options_read(train_options *options, int argc, char **argv);
void options_free(train_options *options);

/* Writes all options as the members of a JSON object, without its braces. */
void options_print_json(const train_options *options, FILE *file);

/* Writes a text as a JSON string, quotes included. */
void json_print_string(const char *text, FILE *file);

#endif
