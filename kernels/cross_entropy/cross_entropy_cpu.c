/* cross_entropy_cpu.c - the CPU kernels of cross_entropy. */
#include "cross_entropy/formula.h"
#include "cross_entropy/cross_entropy.h"
#include "softmax/sum_exp.h"

/* plain_cpu.c */
gd_status GD_REAL_NAME(cross_entropy_plain_forward)(const gd_call *call);
gd_status GD_REAL_NAME(cross_entropy_plain_backward)(const gd_call *call);

/* The rows of a loss. */
typedef struct loss_rows {
    const gd_cross_entropy_args *args;
    const REAL *x;
    const int32_t *targets;
    int64_t rows, vocab;
    REAL *max, *log_of_sum; /* NULL: not saved */
    double *losses;
    REAL *dx, scale;
    bool add;
} loss_rows;

static loss_rows rows_of(const gd_call *call)
{
    return (loss_rows){.args = call->args,
                       .x = gd_data(call->input[0]),
                       .targets = gd_data(call->input[1]),
                       .rows = gd_tensor_count(call->input[1]),
                       .vocab = gd_last_dim(call->input[0]),
                       .max = gd_data(call->save[0]),
                       .log_of_sum = gd_data(call->save[1]),
                       .dx = call->dinput ? gd_data(call->dinput[0]) : NULL,
                       .add = call->accumulate && call->accumulate[0]};
}

static void each_row(const gd_call *call, const loss_rows *w, gd_task *task)
{
    gd_for_each(gd_threads_for(call->threads, 4 * w->rows * w->vocab), w->rows, task, w);
}

static void row_loss(const void *work, int64_t i)
{
    const loss_rows *w = work;
    const REAL *x = w->x + i * w->vocab;
    const bool counted = target_counts(w->args, w->targets[i]);
    REAL max = 0;
    double log_of_sum = counted ? log(gd_sum_exp(x, w->vocab, &max)) : 0;
    double target = counted ? (double)x[w->targets[i]] : 0;
    w->losses[i] = log_of_sum - (target - (double)max);
    if (w->max) w->max[i] = max;
    if (w->log_of_sum) w->log_of_sum[i] = (REAL)log_of_sum;
}

/* loss = factor * sum_i (logsumexp_i - x[i, t_i]), factor = 1 or 1 / (rows that count) */
gd_status GD_REAL_NAME(cross_entropy_forward)(const gd_call *call)
{
    if (!cross_entropy_is_short(call)) return GD_REAL_NAME(cross_entropy_plain_forward)(call);
    loss_rows w = rows_of(call);
    REAL *factor_out = gd_data(call->save[2]);
    int64_t counting;
    if (targets_counting(call, w.targets, w.rows, w.vocab, &counting)) return GD_ERROR_ARGUMENT;
    w.losses = gd_call_scratch(call, (size_t)w.rows * sizeof *w.losses);
    if (!w.losses) return GD_ERROR_MEMORY;
    each_row(call, &w, row_loss);
    double sum = 0, factor = target_factor(w.args, counting);
    for (int64_t i = 0; i < w.rows; i++) sum += w.losses[i];
    if (factor_out) *factor_out = (REAL)(counting ? factor : 0);
    *(REAL *)gd_data(call->output[0]) = (REAL)(sum * factor); /* no rows: 0 * inf = NaN */
    return GD_OK;
}

static void row_gradient(const void *work, int64_t i)
{
    const loss_rows *w = work;
    const int32_t target = w->targets[i];
    const int64_t vocab = w->vocab;
    const REAL *x = w->x + i * vocab;
    REAL *dx = w->dx + i * vocab, m = w->max[i], l = w->log_of_sum[i], scale = w->scale;
    if (!target_counts(w->args, target)) {
        if (!w->add) memset(dx, 0, (size_t)vocab * sizeof *dx);
        return;
    }
    if (w->add) {
#pragma omp simd
        for (int64_t j = 0; j < vocab; j++) dx[j] += cross_entropy_dx(x[j], m, l, scale);
    } else {
#pragma omp simd
        for (int64_t j = 0; j < vocab; j++) dx[j] = cross_entropy_dx(x[j], m, l, scale);
    }
    dx[target] = cross_entropy_dx_target(dx[target], scale);
}

/* dx[i, j] = dloss * factor * (softmax(x[i])[j] - [j = t_i]); dx may be x. */
gd_status GD_REAL_NAME(cross_entropy_backward)(const gd_call *call)
{
    if (!cross_entropy_is_short(call)) return GD_REAL_NAME(cross_entropy_plain_backward)(call);
    loss_rows w = rows_of(call);
    if (!w.dx) return GD_OK;
    w.scale = *(const REAL *)gd_data(call->doutput[0]) * *(const REAL *)gd_data(call->save[2]);
    each_row(call, &w, row_gradient);
    return GD_OK;
}
