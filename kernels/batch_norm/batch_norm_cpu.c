/* batch_norm_cpu.c - the CPU kernels of batch_norm, by strips of channels. */
#include "batch_norm/batch_norm.h"
#include "batch_norm/formula.h"
#include "norms.h"

typedef struct norm_work {
    gd_norm_rows v; /* mean and rstd [C] */
    gd_channels s;
    REAL *running_mean, *running_var; /* NULL: not to be updated */
    double *dw, *db;                  /* [C] */
    double momentum;
    bool fixed; /* mean and rstd are no functions of x */
} norm_work;

/* mean and rstd of a strip's channels: the variance is taken around the mean in a second pass. */
static void strip_statistics(const norm_work *w, gd_strip strip)
{
    const gd_channels s = w->s;
    const REAL *x = w->v.x;
    const int64_t n = s.B * s.S;
    double sum[GD_STRIP] = {0}, squares[GD_STRIP] = {0}, *mean = w->v.mean + strip.first;
    GD_EACH_EXAMPLE(at, s, strip) GD_CHANNEL_SUM(i, c, sum, s.S, strip, (double)x[at + i]);
    for (int64_t c = 0; c < strip.count; c++) mean[c] = sum[c] / (double)n;
    GD_EACH_EXAMPLE(at, s, strip)
    GD_CHANNEL_SUM(i, c, squares, s.S, strip,
                   ((double)x[at + i] - mean[c]) * ((double)x[at + i] - mean[c]));
    for (int64_t c = 0; c < strip.count; c++) {
        const double variance = squares[c] / (double)n, m = w->momentum;
        w->v.rstd[strip.first + c] = 1 / sqrt(variance + w->v.eps);
        if (!w->running_mean || n == 0) continue;
        REAL *old_mean = w->running_mean + strip.first + c,
             *old_var = w->running_var + strip.first + c;
        const REAL new_mean = (REAL)((1 - m) * (double)*old_mean + m * mean[c]);
        const REAL new_var = (REAL)((1 - m) * (double)*old_var + m * gd_unbiased(variance, n));
        if (!isfinite(new_mean) || !isfinite(new_var)) continue;
        *old_mean = new_mean, *old_var = new_var;
    }
}

static void forward_strip(const void *work, int64_t index)
{
    const norm_work *w = work;
    const gd_norm_rows *v = &w->v;
    const gd_channels s = w->s;
    const gd_strip strip = gd_strip_from(s.C, s.S, index * gd_strip_width(s.S));
    const REAL *x = v->x;
    REAL *y = v->y;
    double mean[GD_STRIP], scale[GD_STRIP], bias[GD_STRIP];
    if (!w->fixed) strip_statistics(w, strip);
    for (int64_t k = 0, c = strip.first; k < strip.count; k++, c++) {
        mean[k] = v->mean[c], bias[k] = gd_or(v->bias, c, 0);
        scale[k] = v->rstd[c] * gd_or(v->weight, c, 1);
    }
    GD_EACH_EXAMPLE(at, s, strip)
    GD_CHANNEL_EACH(i, c, s.S, strip,
                    y[at + i] = (REAL)(((double)x[at + i] - mean[c]) * scale[c] + bias[c]));
}

/* The sums over a channel, which are db and dw, and then dx, which may be dy. */
static void backward_strip(const void *work, int64_t index)
{
    const norm_work *w = work;
    const gd_norm_rows *v = &w->v;
    const gd_channels s = w->s;
    const gd_strip strip = gd_strip_from(s.C, s.S, index * gd_strip_width(s.S));
    const REAL *x = v->x, *dy = v->dy;
    REAL *dx = v->dx;
    const double n = (double)(s.B * s.S);
    double mean[GD_STRIP], rstd[GD_STRIP], scale[GD_STRIP];
    double sum_d[GD_STRIP] = {0}, sum_dx[GD_STRIP] = {0};
    for (int64_t k = 0, c = strip.first; k < strip.count; k++, c++) {
        mean[k] = v->mean[c], rstd[k] = v->rstd[c];
        scale[k] = rstd[k] * gd_or(v->weight, c, 1);
    }
    GD_EACH_EXAMPLE(at, s, strip)
    GD_CHANNEL_SUMS(i, c, sum_d, sum_dx, s.S, strip, (double)dy[at + i],
                    (double)dy[at + i] * ((double)x[at + i] - mean[c]));
    for (int64_t k = 0; k < strip.count; k++) {
        w->db[strip.first + k] = sum_d[k]; /* [db] */
        w->dw[strip.first + k] = sum_dx[k] = batch_norm_dw(sum_dx[k], rstd[k], n);
        sum_d[k] = batch_norm_mean(sum_d[k], n, w->fixed);
        sum_dx[k] = batch_norm_mean(sum_dx[k], n, w->fixed);
    }
    if (!dx) return;
    GD_EACH_EXAMPLE(at, s, strip)
    GD_CHANNEL_EACH(i, c, s.S, strip,
                    gd_store(dx, at + i,
                             norm_dx(scale[c], dy[at + i], sum_d[c],
                                     norm_xhat((double)x[at + i] - mean[c], rstd[c]), sum_dx[c]),
                             v->add));
}

/* ---- Calls -------------------------------------------------------------------------------- */

static gd_status by_strips(const gd_call *call, const norm_work *w, gd_task *task)
{
    const gd_channels s = w->s;
    return gd_each_piece(call, s.B * s.C * s.S, gd_divide_up(s.C, gd_strip_width(s.S)), task, w);
}

/* With mean and rstd from the inputs for batch_norm_fixed. `own` [2, C] is for those that are
 * not saved. */
static norm_work work_of(const gd_call *call, bool fixed, double *own)
{
    const gd_batch_norm_args *args = call->args;
    const REAL *mean = gd_data(call->input[BATCH_MEAN]), *var = gd_data(call->input[BATCH_VAR]);
    const gd_channels s = gd_channels_of(call->input[BATCH_X]);
    norm_work w = {.v = gd_norm_rows_of(call, s.C, s.B * s.S, args->eps),
                   .s = s,
                   .momentum = args->momentum,
                   .fixed = fixed};
    if (fixed || !w.v.mean) w.v.mean = own, w.v.rstd = own + s.C;
    for (int64_t c = 0; c < s.C && fixed; c++) {
        w.v.mean[c] = (double)mean[c];
        w.v.rstd[c] = 1 / sqrt((double)var[c] + args->eps);
    }
    return w;
}

static gd_status norm_forward(const gd_call *call, bool fixed)
{
    const bool saves = !fixed && call->save[0];
    const size_t C = (size_t)gd_tensor_dim(call->input[BATCH_X], 1);
    double *own = saves ? NULL : gd_call_scratch(call, 2 * C * sizeof *own);
    if (!saves && !own) return gd_error_status(call->context);
    norm_work w = work_of(call, fixed, own);
    if (!fixed && !call->repeated) {
        w.running_mean = gd_data(call->input[BATCH_MEAN]);
        w.running_var = gd_data(call->input[BATCH_VAR]);
    }
    return by_strips(call, &w, forward_strip);
}

static gd_status norm_backward(const gd_call *call, bool fixed)
{
    const int64_t C = gd_tensor_dim(call->input[BATCH_X], 1);
    double *own = gd_call_scratch(call, (size_t)C * 4 * sizeof *own);
    if (!own) return gd_error_status(call->context);
    norm_work w = work_of(call, fixed, own);
    w.dw = own + 2 * C, w.db = own + 3 * C;
    by_strips(call, &w, backward_strip);
    gd_columns_store(gd_dx(call, BATCH_WEIGHT), w.dw, 1, C, gd_adds(call, BATCH_WEIGHT));
    gd_columns_store(gd_dx(call, BATCH_BIAS), w.db, 1, C, gd_adds(call, BATCH_BIAS));
    return GD_OK;
}

GD_KERNELS_OF_REAL(batch_norm, norm_forward(call, false), norm_backward(call, false))
GD_KERNELS_OF_REAL(batch_norm_fixed, norm_forward(call, true), norm_backward(call, true))
