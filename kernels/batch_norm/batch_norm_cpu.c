/* batch_norm_cpu.c - the CPU kernels of batch_norm.
 *
 * A task is a strip of channels: one, or, where a channel has a single place in an example, 32, so
 * that memory is read in lines. The inner loop goes along memory: over the places of a channel, or
 * over the channels of the strip. */
#include "batch_norm/batch_norm.h"
#include "batch_norm/formula.h"
#include "kernel.h"

enum { STRIP = 32 };

typedef struct norm_work {
    gd_channels shape;
    const REAL *x, *weight, *bias, *dy;
    REAL *y, *dx;
    REAL *running_mean, *running_var; /* NULL: not to be updated */
    double *mean, *rstd;              /* [C] */
    double *dw, *db;                  /* [C] */
    double momentum, eps;
    bool fixed, add; /* mean and rstd are no functions of x; into dx */
} norm_work;

/* The sums below are over S places of one channel, or one place of several channels. */
static void add_values(double *sum, const REAL *x, int64_t channels, int64_t S)
{
    double total = 0;
    for (int64_t c = 0; S == 1 && c < channels; c++) sum[c] += (double)x[c];
    if (S == 1) return;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < S; i++) total += (double)x[i];
    *sum += total;
}

static void add_products(double *sum, const REAL *dy, const REAL *x, const double *mean,
                         int64_t channels, int64_t S)
{
    double total = 0;
    for (int64_t c = 0; S == 1 && c < channels; c++)
        sum[c] += (double)dy[c] * ((double)x[c] - mean[c]);
    if (S == 1) return;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < S; i++) total += (double)dy[i] * ((double)x[i] - *mean);
    *sum += total;
}

static void add_squares(double *sum, const REAL *x, const double *mean, int64_t channels, int64_t S)
{
    double total = 0;
    for (int64_t c = 0; S == 1 && c < channels; c++)
        sum[c] += ((double)x[c] - mean[c]) * ((double)x[c] - mean[c]);
    if (S == 1) return;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < S; i++) total += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *sum += total;
}

/* mean and rstd of a strip's channels: the variance is taken around the mean in a second pass. */
static void strip_statistics(const norm_work *w, int64_t first, int64_t channels)
{
    const gd_channels s = w->shape;
    const int64_t n = s.B * s.S;
    double sum[STRIP] = {0}, squares[STRIP] = {0}, *mean = w->mean + first;
    for (int64_t b = 0; b < s.B; b++) {
        const REAL *x = w->x + (b * s.C + first) * s.S;
        add_values(sum, x, channels, s.S);
    }
    for (int64_t c = 0; c < channels; c++) mean[c] = sum[c] / (double)n;
    for (int64_t b = 0; b < s.B; b++) {
        const REAL *x = w->x + (b * s.C + first) * s.S;
        add_squares(squares, x, mean, channels, s.S);
    }
    for (int64_t c = 0; c < channels; c++) {
        const double variance = squares[c] / (double)n, m = w->momentum;
        w->rstd[first + c] = 1 / sqrt(variance + w->eps);
        if (!w->running_mean || n == 0) continue;
        REAL *old_mean = w->running_mean + first + c, *old_var = w->running_var + first + c;
        const REAL new_mean = (REAL)((1 - m) * (double)*old_mean + m * mean[c]);
        const REAL new_var = (REAL)((1 - m) * (double)*old_var + m * gd_unbiased(variance, n));
        if (!isfinite(new_mean) || !isfinite(new_var)) continue;
        *old_mean = new_mean, *old_var = new_var;
    }
}

static void forward_strip(const void *work, int64_t strip)
{
    const norm_work *w = work;
    const gd_channels s = w->shape;
    const int64_t width = s.S == 1 ? STRIP : 1, first = strip * width;
    const int64_t channels = gd_min64(width, s.C - first);
    if (!w->fixed) strip_statistics(w, first, channels);
    for (int64_t b = 0; b < s.B; b++) {
        for (int64_t c = first; c < first + channels; c++) {
            const REAL *x = w->x + (b * s.C + c) * s.S;
            REAL *y = w->y + (b * s.C + c) * s.S;
            const double mean = w->mean[c], bias = w->bias ? (double)w->bias[c] : 0;
            const double scale = w->rstd[c] * (w->weight ? (double)w->weight[c] : 1);
            for (int64_t i = 0; i < s.S; i++) y[i] = (REAL)(((double)x[i] - mean) * scale + bias);
        }
    }
}

/* The sums over a channel, which are db and dw, and then dx, which may be dy. */
static void backward_strip(const void *work, int64_t strip)
{
    const norm_work *w = work;
    const gd_channels s = w->shape;
    const int64_t width = s.S == 1 ? STRIP : 1, first = strip * width;
    const int64_t channels = gd_min64(width, s.C - first);
    const double n = (double)(s.B * s.S), *mean = w->mean + first;
    double sum_d[STRIP] = {0}, sum_dx[STRIP] = {0};
    for (int64_t b = 0; b < s.B; b++) {
        const REAL *x = w->x + (b * s.C + first) * s.S, *dy = w->dy + (b * s.C + first) * s.S;
        add_values(sum_d, dy, channels, s.S);
        add_products(sum_dx, dy, x, mean, channels, s.S);
    }
    for (int64_t c = 0; c < channels; c++) {
        w->db[first + c] = sum_d[c]; /* [db] */
        w->dw[first + c] = batch_norm_dw(sum_dx[c], w->rstd[first + c], n);
    }
    for (int64_t b = 0; b < s.B && w->dx; b++) {
        for (int64_t c = 0; c < channels; c++) {
            const int64_t at = (b * s.C + first + c) * s.S;
            const double rstd = w->rstd[first + c];
            const double scale = rstd * (w->weight ? (double)w->weight[first + c] : 1);
            const double mean_d = batch_norm_mean(w->db[first + c], n, w->fixed);
            const double mean_dx = batch_norm_mean(w->dw[first + c], n, w->fixed);
            for (int64_t i = at; i < at + s.S; i++) {
                const double xhat = norm_xhat((double)w->x[i] - mean[c], rstd);
                const double value = norm_dx(scale, w->dy[i], mean_d, xhat, mean_dx);
                w->dx[i] = (REAL)(w->add ? (double)w->dx[i] + value : value);
            }
        }
    }
}

/* ---- Calls -------------------------------------------------------------------------------- */

static gd_status by_strips(const gd_call *call, const norm_work *w, gd_task *task)
{
    const gd_channels s = w->shape;
    const int threads = gd_threads_for(call->threads, s.B * s.C * s.S);
    gd_for_each(threads, gd_divide_up(s.C, s.S == 1 ? STRIP : 1), task, w);
    return GD_OK;
}

/* mean and rstd from the inputs, for batch_norm_fixed. */
static void fixed_statistics(const gd_call *call, norm_work *w)
{
    const REAL *mean = gd_data(call->input[BATCH_MEAN]), *var = gd_data(call->input[BATCH_VAR]);
    for (int64_t c = 0; c < w->shape.C; c++) {
        w->mean[c] = (double)mean[c];
        w->rstd[c] = 1 / sqrt((double)var[c] + w->eps);
    }
    w->fixed = true;
}

static gd_status norm_forward(const gd_call *call, bool fixed)
{
    const gd_batch_norm_args *args = call->args;
    norm_work w = {.shape = gd_channels_of(call->input[BATCH_X]),
                   .x = gd_data(call->input[BATCH_X]),
                   .weight = gd_data(call->input[BATCH_WEIGHT]),
                   .bias = gd_data(call->input[BATCH_BIAS]),
                   .y = gd_data(call->output[0]),
                   .eps = args->eps,
                   .momentum = args->momentum};
    const bool saves = !fixed && call->save[0];
    double *own = saves ? NULL : gd_call_scratch(call, (size_t)w.shape.C * 2 * sizeof *own);
    if (!saves && !own) return gd_error_status(call->context);
    w.mean = saves ? gd_data(call->save[0]) : own;
    w.rstd = saves ? gd_data(call->save[1]) : own + w.shape.C;
    if (fixed) {
        fixed_statistics(call, &w);
    } else if (!call->repeated) {
        w.running_mean = gd_data(call->input[BATCH_MEAN]);
        w.running_var = gd_data(call->input[BATCH_VAR]);
    }
    return by_strips(call, &w, forward_strip);
}

/* dw or db [C], rounded once. */
static void store_sums(const gd_call *call, int input, const double *sum, int64_t count)
{
    REAL *to = gd_data(call->dinput[input]);
    const bool add = call->accumulate[input];
    for (int64_t c = 0; to && c < count; c++) to[c] = (REAL)(add ? (double)to[c] + sum[c] : sum[c]);
}

static gd_status norm_backward(const gd_call *call, bool fixed)
{
    const gd_batch_norm_args *args = call->args;
    norm_work w = {.shape = gd_channels_of(call->input[BATCH_X]),
                   .x = gd_data(call->input[BATCH_X]),
                   .weight = gd_data(call->input[BATCH_WEIGHT]),
                   .dy = gd_data(call->doutput[0]),
                   .dx = gd_data(call->dinput[BATCH_X]),
                   .eps = args->eps,
                   .add = call->accumulate[BATCH_X]};
    const int64_t C = w.shape.C;
    double *scratch = gd_call_scratch(call, (size_t)C * 4 * sizeof *scratch);
    if (!scratch) return gd_error_status(call->context);
    w.dw = scratch, w.db = scratch + C;
    w.mean = fixed ? scratch + 2 * C : gd_data(call->save[0]);
    w.rstd = fixed ? scratch + 3 * C : gd_data(call->save[1]);
    if (fixed) fixed_statistics(call, &w);
    by_strips(call, &w, backward_strip);
    store_sums(call, BATCH_WEIGHT, w.dw, C);
    store_sums(call, BATCH_BIAS, w.db, C);
    return GD_OK;
}

gd_status GD_REAL_NAME(batch_norm_forward)(const gd_call *call)
{
    return norm_forward(call, false);
}

gd_status GD_REAL_NAME(batch_norm_backward)(const gd_call *call)
{
    return norm_backward(call, false);
}

gd_status GD_REAL_NAME(batch_norm_fixed_forward)(const gd_call *call)
{
    return norm_forward(call, true);
}

gd_status GD_REAL_NAME(batch_norm_fixed_backward)(const gd_call *call)
{
    return norm_backward(call, true);
}
