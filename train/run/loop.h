/* loop.h - the training loop. */
#ifndef GRADUS_TRAIN_LOOP_H
#define GRADUS_TRAIN_LOOP_H

#include "checkpoint.h"
#include "data.h"
#include "log.h"
#include "model.h"
#include "train_options.h"

/* Trains as the options say, with a line on stdout and in the log every so often, from where the
 * checkpoint stands. Returns when the steps or the time are over, when a signal asked for it
 * (stop.h), or with the context's error: a loss or a gradient that is not finite is one, and stops
 * before the update. With --out a checkpoint is saved every so often and at the end. One that
 * cannot be saved midway is what --on-save-error says; at the end it is an error. *val gets the
 * validation loss at the end, NaN where no step was made or a signal came. */
gd_status loop_train(model *m, const dataset *data, const train_options *options, run_log *log,
                     const checkpoint *from, double *val);

/* One forward and backward without an update, to see what memory they take. */
gd_status loop_try(model *m, const dataset *data, const train_options *options);

#endif
