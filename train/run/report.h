/* report.h - what the training program prints. */
#ifndef GRADUS_TRAIN_REPORT_H
#define GRADUS_TRAIN_REPORT_H

#include "data.h"
#include "log.h"
#include "model.h"
#include "train_options.h"

/* Measures the time in steps only. Reports of steps arrive late, and several at once, so the
 * device's own clock says how long each took. */
typedef struct report_clock {
    int64_t first, steps, tokens_per_step; /* the run goes from step `first` to `steps` */
    double max_seconds;                    /* or until these have passed; 0: no limit */
    double peak_rate;                      /* tokens a second at the device's peak; 0: unknown */
    double seconds;                        /* in the steps reported so far */
    double first_took;                     /* of these, in the first one, which also sets up */
    double since_report;                   /* in those since the last line */
    int64_t steps_since;
    double start;       /* of the clock */
    double read;        /* when the last report was read */
    double device;      /* that step's time on the device's clock; NaN: there was none */
    double paused;      /* in all pauses since the start */
    double paused_then; /* the same before the last step */
} report_clock;

/* Floating-point operations a second of dense matrix products, as the manufacturer states them; 0
 * if unknown. `device` comes from gd_context_device_name. */
double report_peak_flops(const char *device, gd_dtype dtype, bool tf32);

report_clock report_clock_start(const model *m, const train_options *options, int64_t first);

/* The next step is over, at `device` on the device's clock. The host must wait for the
 * first one. */
void report_clock_step(report_clock *clock, double device);

/* The time since the last step, which the host has waited for, does not count. */
void report_clock_resume(report_clock *clock);

/* The time in steps, including the current ones. */
double report_clock_seconds(const report_clock *clock);

/* The configuration: model, parameters, operations per token, text, machine. */
void report_configuration(const model *m, const dataset *data, const train_options *options);

/* step 120/2000 | loss 2.3114 | val 2.4012 | eta 0:23 | 12.4 ms | 41.3k tok/s | norm 0.83 | lr
 * 3.0e-04 | mfu 31.0% | mem 212 MiB; a terminal gets as many of these as fit. val only after a
 * validation. loss, ms and tok/s are means since the last line. mfu is the rate of the model's
 * operations over the device's peak (Chowdhery et al. 2022), if the peak is known. The same goes to
 * the log. The times of `values` need not be set. */
void report_step(report_clock *clock, run_log *log, const gd_context *ctx, const log_line *values);

/* step 120/2000 | val 2.4012, for a validation that was left out before the run was resumed. */
void report_validation(run_log *log, int64_t step, int64_t steps, double val);

/* Draws the line of a step as a live line (console.h). */
void report_progress(const report_clock *clock, const gd_context *ctx, const log_line *values);

/* memory 12.8 MiB at most: parameters 0.9, gradients 4.3; `when` is "at most". */
void report_memory_sizes(size_t total, const size_t bytes[GD_MEMORY_CLASS_COUNT], const char *when);

/* The memory in use by class, before the first step. */
void report_memory_at_rest(const gd_context *ctx);

/* Peak memory by class. */
void report_memory(const gd_context *ctx);

/* Prints a sample; `after`, in the line before it, says when it was made. */
gd_status report_sample(model *m, const dataset *data, const train_options *options,
                        const char *after);

/* A fingerprint of all weights: two runs that end with the same one agree in every bit. */
gd_status report_weights(const model *m);

#endif
