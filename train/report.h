/* report.h - what the training program says. */
#ifndef GRADUS_TRAIN_REPORT_H
#define GRADUS_TRAIN_REPORT_H

#include "data.h"
#include "log.h"
#include "model.h"
#include "train_options.h"

/* Seconds from some fixed moment. */
double report_now(void);

/* Time spent in steps, and nothing else. */
typedef struct report_clock {
    int64_t first, steps, tokens_per_step; /* the run goes from step `first` to `steps` */
    double seconds;                        /* in all steps */
    double since_report;                   /* in those since the last line */
    int64_t steps_since;
    double last; /* when the clock was last read */
} report_clock;

report_clock report_clock_start(int64_t first, int64_t steps, int64_t tokens_per_step);
void report_clock_step(report_clock *clock);   /* a step is over */
void report_clock_resume(report_clock *clock); /* what was done meanwhile does not count */

/* The configuration: model, parameters, operations per token, text, machine. */
void report_configuration(const model *m, const dataset *data, const train_options *options);

/* step 120/2000 | loss 2.3114 | val 2.4012 | norm 0.83 | lr 3.0e-04 | 12.4 ms | 41.3k tok/s | mem
 * 212 MiB | eta 0:23; val only where it is not NaN. ms and tok/s are means since the line before.
 * The same goes to the log. */
void report_step(report_clock *clock, run_log *log, const gd_context *ctx, int64_t step,
                 double loss, double val, double norm, double lr);

/* Peak memory by class. */
void report_memory(const gd_context *ctx);

/* A fingerprint of all weights: two runs that end with the same one agree in every bit. */
gd_status report_weights(const model *m);

#endif
