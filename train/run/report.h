/* report.h - what the training program says. */
#ifndef GRADUS_TRAIN_REPORT_H
#define GRADUS_TRAIN_REPORT_H

#include "data.h"
#include "log.h"
#include "model.h"
#include "train_options.h"

/* Time spent in steps, and nothing else. */
typedef struct report_clock {
    int64_t first, steps, tokens_per_step; /* the run goes from step `first` to `steps` */
    double max_seconds;                    /* or until so many have passed; 0: no limit */
    double peak_rate;                      /* tokens a second at the device's peak; 0: unknown */
    double seconds;                        /* in all steps */
    double since_report;                   /* in those since the last line */
    int64_t steps_since;
    double last;  /* when the clock was last read */
    double drawn; /* when the live line was last drawn */
} report_clock;

report_clock report_clock_start(const model *m, const train_options *options, int64_t first);
void report_clock_step(report_clock *clock);   /* a step is over */
void report_clock_resume(report_clock *clock); /* what was done meanwhile does not count */

/* The time in steps, with that of those which are not over yet. */
double report_clock_seconds(const report_clock *clock);

/* The configuration: model, parameters, operations per token, text, machine. */
void report_configuration(const model *m, const dataset *data, const train_options *options);

typedef struct report_values {
    int64_t step;
    double loss, val, norm, lr; /* val NaN: there is none */
} report_values;

/* step 120/2000 | loss 2.3114 | val 2.4012 | norm 0.83 | lr 3.0e-04 | 12.4 ms | 41.3k tok/s | mfu
 * 31.0% | mem 212 MiB | eta 0:23; val only where there is one. ms and tok/s are means since the
 * line before; mfu is the part of the device's peak that the model's operations make up (Chowdhery
 * et al. 2022), where the peak is known. The same goes to the log. */
void report_step(report_clock *clock, run_log *log, const gd_context *ctx,
                 const report_values *values);

/* Draws the same as a live line (console.h), ten times a second at most. */
void report_progress(report_clock *clock, const gd_context *ctx, const report_values *values);

/* The memory in use by class, before the first step. */
void report_memory_at_rest(const gd_context *ctx);

/* Peak memory by class. */
void report_memory(const gd_context *ctx);

/* A fingerprint of all weights: two runs that end with the same one agree in every bit. */
gd_status report_weights(const model *m);

#endif
