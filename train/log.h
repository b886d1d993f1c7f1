/* log.h - the run as lines of JSON, one object each, for programs to read.
 *
 * The first line holds the configuration: {"version": ..., "device": ..., "text_hash": ...,
 * "parameters": ..., "options": {...}}. Then one line a report: {"step": ..., "loss": ..., "val": ...
 * (null between validations), "norm": ..., "lr": ..., "ms": ..., "tokens_per_second": ...,
 * "seconds": ...}. Each is written whole and flushed.
 */
#ifndef GRADUS_TRAIN_LOG_H
#define GRADUS_TRAIN_LOG_H

#include <stdio.h>

#include "data.h"
#include "model.h"
#include "train_options.h"

typedef struct run_log {
    FILE *file; /* NULL: nothing is logged */
    bool failed;
} run_log;

typedef struct log_line {
    int64_t step;
    double loss, val, norm, lr; /* val NaN: there is none */
    double ms, tokens_per_second, seconds;
} log_line;

/* Begins a log at options->log; appends where the run goes on from a step after 0. False after a
 * message: the file cannot be written. */
bool log_open(run_log *log, const train_options *options, const dataset *data, const model *m,
              int64_t first_step);
/* Trouble with the file is told once, and does not stop the training. */
void log_write(run_log *log, const log_line *line);
void log_close(run_log *log);

#endif
