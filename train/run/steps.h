/* steps.h - the steps of a training run: the host queues them ahead of the device and reads their
 * outcomes later (gradus/optim.h). So a step is first submitted, then collected; as many as the
 * optimizer allows are in flight. */
#ifndef GRADUS_TRAIN_STEPS_H
#define GRADUS_TRAIN_STEPS_H

#include "data.h"
#include "model.h"
#include "train_options.h"

enum { STEPS_IN_FLIGHT = 16 };

typedef struct run_steps {
    model *m;
    const dataset *data;
    const train_options *options;
    gd_optimizer *optimizer;
    int64_t submitted, done; /* of the run; reports arrive in this order */
    int64_t skipped;         /* of these */
    gd_graph *graph;
    gd_schedule schedule;
    gd_tensor *tokens, *targets;                /* [B, T] */
    int32_t *ids;                               /* this rank's batches of one step */
    int64_t read;                               /* which step; -1: none */
    gd_random_state random_at[STEPS_IN_FLIGHT]; /* where submitted steps start */
    uint64_t words; /* random numbers of a batch; set with several ranks */
} run_steps;

/* Makes what steps need, of m, data, options and done; to be ended, also after an error. */
gd_status steps_begin(run_steps *s);
void steps_end(run_steps *s);

/* Reads the batches of the next step. */
gd_status steps_read(run_steps *s);

/* Submits the next step, whose batches were read: forward and backward of each batch,
 * clip, update. */
void steps_submit(run_steps *s);

/* Takes the next finished step; false if none is finished yet or, with `wait`, if none is in
 * flight. A step whose loss or gradient is not finite is skipped or an error; those submitted after
 * it have to be submitted again. */
bool steps_collect(run_steps *s, bool wait, gd_update_report *report);

/* One forward and backward without an update, to measure their memory. */
gd_status steps_try(model *m, const dataset *data, const train_options *options);

#endif
