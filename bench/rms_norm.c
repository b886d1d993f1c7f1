/* rms_norm.c - rms_norm forward and backward, x [rows, cols] and a weight, all gradients wanted.
 *
 * Bytes that must move: forward x in and y out, backward x and dy in and dx out; the weight, rstd
 * and the partial sums of dw are not counted, their time is. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { FORWARD, BACKWARD, COPY };
static const double EPS = 1e-5;

typedef struct setup {
    gd_context *ctx;
    gd_tensor *x, *weight, *dy, *from, *to; /* from, to: for the copies */
    double seconds[2];                      /* of the latest FORWARD and BACKWARD */
} setup;

/* The time of a call's kernels, with that of temporary memory and of the reduction of partial sums,
 * but not of the allocation of results and of the tape itself. */
static void time_call(void *user, const gd_call *call, bool backward, bool begins)
{
    setup *s = user;
    const double now = bench_now();
    (void)call;
    s->seconds[backward] = begins ? now : now - s->seconds[backward];
}

/* ---- The problem ---------------------------------------------------------------------------- */

static gd_tensor *random_tensor(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                                double mean)
{
    gd_tensor *t = gd_tensor_create(ctx, dtype, ndim, shape);
    gd_random_normal(t, mean, 1);
    return t;
}

static setup prepare(const bench_options *o)
{
    gd_context *ctx = bench_context(o);
    const int64_t shape[] = {o->rows, o->cols};
    setup s = {.ctx = ctx};
    s.x = random_tensor(ctx, o->dtype, 2, shape, 0);
    s.dy = random_tensor(ctx, o->dtype, 2, shape, 0);
    s.from = random_tensor(ctx, o->dtype, 2, shape, 0);
    s.to = random_tensor(ctx, o->dtype, 2, shape, 0);
    s.weight = random_tensor(ctx, o->dtype, 1, shape + 1, 1);
    gd_tensor_set_requires_grad(s.x, true);
    gd_tensor_set_requires_grad(s.weight, true);
    return s;
}

/* Each piece of work is repeated by itself, so that every one finds in the last level cache what
 * the one before left there. */
enum { WARM_UP = 2 };

static void run_forward(setup *s, bench_series *series)
{
    for (int i = -WARM_UP; i < series->count && !gd_error(s->ctx); i++) {
        gd_rms_norm(s->x, s->weight, EPS);
        series->seconds[i < 0 ? 0 : i] = s->seconds[FORWARD];
        gd_step_end(s->ctx);
    }
}

static void run_backward(setup *s, bench_series *series)
{
    gd_tensor *y = gd_rms_norm(s->x, s->weight, EPS);
    const gd_backward_options again = {.cotangents = &s->dy, .keep_tape = true};
    for (int i = -WARM_UP; i < series->count && !gd_error(s->ctx); i++) {
        gd_backward_from(&y, 1, &again);
        series->seconds[i < 0 ? 0 : i] = s->seconds[BACKWARD];
        gd_grad_clear(s->x);
        gd_grad_clear(s->weight);
    }
    gd_step_end(s->ctx);
}

static void run_copy(setup *s, int which, bench_series *series)
{
    for (int i = -WARM_UP; i < series->count && !gd_error(s->ctx); i++) {
        series->seconds[i < 0 ? 0 : i] =
            bench_copy(which, gd_tensor_data(s->to), gd_tensor_data(s->from),
                       (int64_t)(series->bytes / 2), gd_context_threads(s->ctx));
    }
}

/* The fastest of the copies. */
static const bench_series *best_copy(bench_series *series)
{
    bench_series *best = NULL;
    for (bench_series *s = series + COPY; s < series + COPY + bench_copy_count(); s++)
        if (!best || bench_median(s->seconds, s->count) < bench_median(best->seconds, best->count))
            best = s;
    return best;
}

static void print_head(const bench_options *o, gd_context *ctx)
{
    printf("rms_norm %s, x [%lld, %lld], weight [%lld], %s, median of %d\n",
           gd_dtype_name(o->dtype), (long long)o->rows, (long long)o->cols, (long long)o->cols,
           gd_context_device_name(ctx), o->repeats);
}

static int report(const bench_options *o, gd_context *ctx, bench_series *series)
{
    bench_series ceiling = *best_copy(series);
    if (!o->json) {
        print_head(o, ctx);
        bench_print(series, COPY + bench_copy_count(), &ceiling, false);
    } else {
        ceiling.name = "copy";
        bench_print(series, COPY, &ceiling, true);
        bench_print(&ceiling, 1, &ceiling, true);
    }
    return EXIT_SUCCESS;
}

int bench_rms_norm(const bench_options *o)
{
    enum { MOST = 16 };
    setup s = prepare(o);
    bench_series series[MOST] = {{.name = "rms_norm_forward"}, {.name = "rms_norm_backward"}};
    double bytes = (double)o->rows * (double)o->cols * (double)gd_dtype_size(o->dtype);
    int count = COPY + bench_copy_count(), status = EXIT_SUCCESS;
    double *seconds = calloc((size_t)(count * o->repeats), sizeof *seconds);
    if (!seconds || gd_error(s.ctx)) {
        free(seconds);
        return bench_fail(s.ctx);
    }
    for (int i = 0; i < count; i++) {
        series[i].seconds = seconds + i * o->repeats;
        series[i].count = o->repeats;
        series[i].bytes = i == BACKWARD ? 3 * bytes : 2 * bytes;
        if (i >= COPY) series[i].name = bench_copy_name(i - COPY);
    }
    gd_watch_ops(s.ctx, time_call, &s);
    run_forward(&s, &series[FORWARD]);
    run_backward(&s, &series[BACKWARD]);
    for (int i = COPY; i < count; i++) run_copy(&s, i - COPY, &series[i]);
    bool failed = gd_error(s.ctx) != NULL;
    if (!failed) status = report(o, s.ctx, series);
    free(seconds);
    if (failed) return bench_fail(s.ctx);
    gd_context_free(s.ctx);
    return status;
}
