/* train_options.h - the options of gradus-train. */
#ifndef GRADUS_TRAIN_TRAIN_OPTIONS_H
#define GRADUS_TRAIN_TRAIN_OPTIONS_H

#include "gradus/gradus.h"
#include "programs/options.h"

/* What to do when a checkpoint before the last cannot be saved. */
typedef enum save_error { SAVE_ERROR_CONTINUE, SAVE_ERROR_STOP } save_error;

/* The kinds are in the order of --optimizer's help. */
typedef enum optimizer_kind {
    OPTIMIZER_ADAMW,
    OPTIMIZER_ADAM,
    OPTIMIZER_SGD,
    OPTIMIZER_RMSPROP,
    OPTIMIZER_ADAGRAD,
    OPTIMIZER_LION,
    OPTIMIZER_MUON
} optimizer_kind;

typedef struct train_options {
    options base;
    const char *data;     /* a text file, or */
    const char *tokens;   /* token files */
    const char *val_data; /* the same for validation */
    int64_t vocab;        /* as in data_options */
    int token_bytes;      /* a choice, for tokens_width */

    int64_t layers, dim, heads, kv_heads, ffn; /* kv_heads 0: heads; ffn 0: 8/3 dim, rounded up */
    int64_t context, batch;
    double dropout;
    bool tied; /* the output projection is the embedding */

    int64_t accumulate; /* batches to a step, on all ranks together; below 0: one on each */
    int64_t steps;
    double epochs;      /* above 0: instead of steps */
    int64_t patience;   /* validations without a better one; 0: no limit */
    double max_seconds; /* 0: no limit */
    gd_schedule_kind schedule;
    optimizer_kind optimizer;
    double lr, min_lr; /* below 0: the optimizer's; a tenth of lr */
    int64_t warmup;    /* below 0: a tenth of the steps, 100 at most */
    bool overfit_one_batch, dry_run;
    bool no_graph;                 /* launch every kernel of every step from the host */
    int64_t skip_nonfinite;        /* how many steps may be skipped */
    double weight_decay, momentum; /* below 0: the optimizer's */
    double beta2, clip;
    double average; /* the decay of the weights' average; 0: there is none */
    bool recompute; /* save one tensor a layer, and compute the rest again in the backward */

    int64_t eval_every, log_every, sample_every, sample_length;
    int64_t eval_batches; /* in a validation; 0: all */
    const char *log;      /* a file for JSON lines; NULL: log.jsonl in `out`, if there is one */
    double temperature;

    const char *out; /* folder of checkpoints; NULL: none are saved */
    const char *init, *resume;
    int64_t checkpoint_every, keep, keep_every;
    bool keep_best; /* and the checkpoint of the best validation */
    save_error on_save_error;

    gd_dtype dtype;
    int64_t seed;

    int64_t gpus, processes; /* to start; 0: none but this one */
    double timeout;
    gd_group_options member; /* this process's rank among them */
    gd_group *group;         /* of the processes of the run; NULL: there is one */
} train_options;

/* options_read (options.h), and a check of --resume and --init. */
options_outcome train_options_read(train_options *o, char **argv);

/* Sets the options that depend on others, and checks that all fit together. False after a
 * message. */
bool train_options_check(train_options *o);

/* Makes steps of --epochs, where an epoch has `windows` sequences; and the warm-up, unless it
 * is given. */
void train_options_count_steps(train_options *o, int64_t windows);

#endif
