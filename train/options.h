/* options.h - what the training program can be told. */
#ifndef GRADUS_TRAIN_OPTIONS_H
#define GRADUS_TRAIN_OPTIONS_H

#include "gradus/gradus.h"

typedef struct train_options {
    const char *data; /* a text file */

    int64_t layers, dim, heads, kv_heads, ffn; /* kv_heads 0: heads; ffn 0: 8/3 dim, rounded up */
    int64_t context, batch;
    double dropout;
    bool tied; /* the output projection is the embedding */

    int64_t steps;
    double max_seconds; /* 0: no limit */
    double lr, min_lr;  /* min_lr below 0: a tenth of lr */
    int64_t warmup;
    double weight_decay, beta2, clip;
    bool recompute; /* keep one tensor a layer, and compute the rest again in the backward */

    int64_t eval_every, log_every, sample_length;
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

/* Reads the command line over the defaults, and checks that the parts fit together. */
options_outcome options_read(train_options *options, int argc, char **argv);

#endif
