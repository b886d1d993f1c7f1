/* log.h - the run as lines of JSON, one object each, for programs to read (scripts/plot).
 *
 * The first line holds the configuration: {"program": "gradus-train", "version": ..., "device":
 * ..., "text_hash": ..., "parameters": ..., "first_step": ..., "options": {..., "seed": ...}}. Then
 * one line a report: {"step": ..., "loss": ..., "mean_loss": ..., "val": ... (null between
 * validations), "norm": ..., "lr": ..., "ms": ..., "tokens_per_second": ..., "seconds": ...}.
 * "loss" is that of the step's batches, "mean_loss" the mean over the steps since the last line,
 * which is what the line on stdout shows. A line that is there only because the run was stopped
 * does not count as the last one: a resumed run logs the same means as one that was not stopped.
 *
 * A run resumed at step S keeps the lines up to S (log_keep.h) and adds a first line of its own. If
 * a signal had ended the validation of step S, a line {"step": S, ...} follows in which only "val"
 * is not null. Lines that it does not keep, its own or those of another run, are appended to
 * "<log>.old". Each line is written whole or not at all. In --out neither file may be a link; --log
 * may name one.
 */
#ifndef GRADUS_TRAIN_LOG_H
#define GRADUS_TRAIN_LOG_H

#include "data.h"
#include "folder.h"
#include "model.h"
#include "train_options.h"

#include <stdio.h>

typedef struct run_log {
    bool open; /* false: nothing is logged */
    int file;
    FILE *old;    /* the file, as it was read at the beginning; NULL: it was not */
    int64_t size; /* of all whole lines */
    bool failed;
    char path[FOLDER_PATH];
} run_log;

/* NaN: not measured. */
typedef struct log_line {
    int64_t step;
    double loss;      /* of the step's batches */
    double mean_loss; /* of the steps since the last line */
    double val, norm, lr;
    double ms, tokens_per_second, seconds;
} log_line;

/* Begins a log at --log, else in the folder --out, else none. If the file cannot be written, is not
 * a log, or is being written by another run, that is an error of the model's context. */
gd_status log_open(run_log *log, const train_options *options, const dataset *data, const model *m,
                   int64_t first_step);

/* An error in writing is reported once, and does not stop the training. */
void log_write(run_log *log, const log_line *line);
void log_close(run_log *log);

#endif
