/* loop.h - the training loop. */
#ifndef GRADUS_TRAIN_LOOP_H
#define GRADUS_TRAIN_LOOP_H

#include "checkpoint.h"
#include "data.h"
#include "log.h"
#include "model.h"
#include "train_options.h"

/* Trains as the options say, from the step of the checkpoint, with lines on stdout and in the log,
 * and with --out checkpoints. Returns after the last step, when the time is over, after a signal
 * (stop.h), or with the context's error: a loss or a gradient that is not finite is one, and stops
 * before the update. Failing to save a checkpoint before the last is handled as --on-save-error
 * says; the last is an error. *val gets the final validation loss, NaN if there was no step or
 * after a signal. */
gd_status loop_train(model *m, const dataset *data, const train_options *options, run_log *log,
                     checkpoint *from, double *val);

#endif
