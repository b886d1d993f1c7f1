/* batch_norm_cpu.c - the CPU kernels of batch_norm.
 *
 * A task is a strip of channels: one, or, where a channel has a single place in an example, 32, so
 * that memory is read in lines. The inner loop goes along memory: over the places of a channel, or
 * over the channels of the strip. */
#include "batch_norm/batch_norm.h"
#include "batch_norm/formula.h"
#include "loops.h"

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

/* sum[c] += the terms of S places i of one channel c, or of one place, c, of several channels. */
#define ADD_TERMS(sum, channels, S, term)              \
    do {                                               \
        if ((S) == 1) {                                \
            for (int64_t c = 0; c < (channels); c++) { \
                const int64_t i = c;                   \
                (sum)[c] += (term);                    \
            }                                          \
        } else {                                       \
            const int64_t c = 0;                       \
            GD_SUM(total, i, S, term);                 \
            (sum)[c] += total;                         \
        }                                              \
    } while (0)

/* mean and rstd of a strip's channels: the variance is taken around the mean in a second pass. */
static void strip_statistics(const norm_work *w, int64_t first, int64_t channels)
{
    const gd_channels s = w->shape;
    const int64_t n = s.B * s.S;
    double sum[STRIP] = {0}, squares[STRIP] = {0}, *mean = w->mean + first;
    for (int64_t b = 0; b < s.B; b++) {
        const REAL *x = w->x + (b * s.C + first) * s.S;
        ADD_TERMS(sum, channels, s.S, (double)x[i]);
    }
    for (int64_t c = 0; c < channels; c++) mean[c] = sum[c] / (double)n;
    for (int64_t b = 0; b < s.B; b++) {
        const REAL *x = w->x + (b * s.C + first) * s.S;
        ADD_TERMS(squares, channels, s.S, ((double)x[i] - mean[c]) * ((double)x[i] - mean[c]));
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
        ADD_TERMS(sum_d, channels, s.S, (double)dy[i]);
        ADD_TERMS(sum_dx, channels, s.S, (double)dy[i] * ((double)x[i] - mean[c]));
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
    return gd_each_piece(call, s.B * s.C * s.S, gd_divide_up(s.C, s.S == 1 ? STRIP : 1), task, w);
}

static norm_work work_of(const gd_call *call)
{
    const gd_batch_norm_args *args = call->args;
    return (norm_work){.shape = gd_channels_of(call->input[BATCH_X]),
                       .x = gd_data(call->input[BATCH_X]),
                       .weight = gd_data(call->input[BATCH_WEIGHT]),
                       .bias = gd_data(call->input[BATCH_BIAS]),
                       .dy = gd_dy(call, 0),
                       .y = gd_data(call->output[0]),
                       .dx = gd_dx(call, BATCH_X),
                       .eps = args->eps,
                       .momentum = args->momentum,
                       .add = gd_adds(call, BATCH_X)};
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
    norm_work w = work_of(call);
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

static gd_status norm_backward(const gd_call *call, bool fixed)
{
    norm_work w = work_of(call);
    const int64_t C = w.shape.C;
    double *scratch = gd_call_scratch(call, (size_t)C * 4 * sizeof *scratch);
    if (!scratch) return gd_error_status(call->context);
    w.dw = scratch, w.db = scratch + C;
    w.mean = fixed ? scratch + 2 * C : gd_data(call->save[0]);
    w.rstd = fixed ? scratch + 3 * C : gd_data(call->save[1]);
    if (fixed) fixed_statistics(call, &w);
    by_strips(call, &w, backward_strip);
    gd_columns_store(gd_dx(call, BATCH_WEIGHT), w.dw, 1, C, gd_adds(call, BATCH_WEIGHT));
    gd_columns_store(gd_dx(call, BATCH_BIAS), w.db, 1, C, gd_adds(call, BATCH_BIAS));
    return GD_OK;
}

#define BATCH_NORM(name, fixed)                                  \
    GD_KERNEL_OF_REAL(name##_forward, norm_forward(call, fixed)) \
    GD_KERNEL_OF_REAL(name##_backward, norm_backward(call, fixed))
BATCH_NORM(batch_norm, false)
BATCH_NORM(batch_norm_fixed, true)
