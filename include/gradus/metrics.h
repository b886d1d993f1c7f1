/* metrics.h - the numbers of a run: lines of JSON, which scripts/plot and pandas read, and a line
 * of progress.
 *
 *     const gd_metrics_options options = {.steps = steps, .every = 10};
 *     gd_metrics *log = gd_metrics_open(ctx, "run.jsonl", &options);
 *     for (int64_t step = 1; step <= steps && !gd_error(ctx); step++) {
 *         ...
 *         GD_METRICS(log, step, {"loss", gd_item(loss)}, {"lr", rate});
 *     }
 *     gd_metrics_close(log);
 *
 * The first line is {"program": "gd_metrics", "version": "0.2.0", "device": "cpu, 2 threads"}, each
 * other {"step": 10, "loss": 0.25, "lr": 0.001, "ms": 1.2, "seconds": 0.02}: the numbers given, the
 * milliseconds of a step since the line before, the seconds since the first step. Numbers that are
 * not finite are null.
 *
 *     pandas.read_json("run.jsonl", lines=True)[1:].set_index("step")["loss"].plot()
 */
#ifndef GRADUS_METRICS_H
#define GRADUS_METRICS_H

#include "gradus/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_metrics gd_metrics;

typedef struct gd_metrics_options {
    int64_t steps; /* of the run, for the time that is left; 0: unknown */
    int64_t every; /* the file has step 1 and the multiples of this; unset: every step */
    bool quiet;    /* without the line that shows the last step, on stderr if that is a terminal */
} gd_metrics_options;

typedef struct gd_metrics_number {
    const char *name; /* without quotes, backslashes and control characters */
    double value;
} gd_metrics_number;

/* Begins a log, or goes on with one that is there. NULL for path: progress alone. NULL on error: a
 * file that cannot be written, or is no log. */
GD_API gd_metrics *gd_metrics_open(gd_context *ctx, const char *path,
                                   const gd_metrics_options *options);

/* If a line cannot be written, that is a notice, once, and the run goes on; gd_metrics_close
 * returns the error. NULL for log is fine. */
GD_API gd_status gd_metrics_write(gd_metrics *log, int64_t step, const gd_metrics_number *numbers,
                                  int count);
GD_API gd_status gd_metrics_close(gd_metrics *log);

#define GD_METRICS(log, step, ...)                           \
    gd_metrics_write(                                        \
        log, step, (const gd_metrics_number[]){__VA_ARGS__}, \
        (int)(sizeof((const gd_metrics_number[]){__VA_ARGS__}) / sizeof(gd_metrics_number)))

#ifdef __cplusplus
}
#endif
#endif
