/* cross_entropy_cpu.c - the CPU kernels of cross_entropy. */
#include "cross_entropy/rows_cpu.h"
#include "softmax/sum_exp.h"

/* plain_cpu.c */
gd_status GD_REAL_NAME(cross_entropy_plain_forward)(const gd_call *call);
gd_status GD_REAL_NAME(cross_entropy_plain_backward)(const gd_call *call);

static void row_loss(const void *work, int64_t i)
{
    const loss_rows *w = work;
    const REAL *x = w->x + i * w->vocab;
    const bool counted = row_counts(w, i);
    REAL max = 0;
    double log_of_sum = counted ? log(gd_sum_exp(x, w->vocab, &max)) : 0;
    double target = counted ? (double)x[w->targets[i]] : 0;
    w->losses[i] = log_of_sum - (target - (double)max);
    if (w->max) w->max[i] = max;
    if (w->log_of_sum) w->log_of_sum[i] = (REAL)log_of_sum;
}

static double factor_of(const loss_rows *w, int64_t counting)
{
    return target_factor(w->args, counting);
}

/* loss = factor * sum_i (logsumexp_i - x[i, t_i]), factor = 1 or 1 / (rows that count) */
gd_status GD_REAL_NAME(cross_entropy_forward)(const gd_call *call)
{
    if (!cross_entropy_is_short(call)) return GD_REAL_NAME(cross_entropy_plain_forward)(call);
    return loss_of_rows(call, row_loss, factor_of);
}

static void row_gradient(const void *work, int64_t i)
{
    const loss_rows *w = work;
    const int32_t target = w->targets[i];
    const int64_t vocab = w->vocab;
    const REAL *x = w->x + i * vocab;
    REAL *dx = w->dx + i * vocab, m = w->max[i], l = w->log_of_sum[i], scale = w->scale;
    if (!row_counts(w, i)) {
        if (!w->add_dx) memset(dx, 0, (size_t)vocab * sizeof *dx);
        return;
    }
    if (w->add_dx)
        GD_EACH(j, vocab) dx[j] += cross_entropy_dx(x[j], m, l, scale);
    else
        GD_EACH(j, vocab) dx[j] = cross_entropy_dx(x[j], m, l, scale);
    dx[target] = cross_entropy_dx_target(dx[target], scale);
}

/* dx[i, j] = dloss * factor * (softmax(x[i])[j] - [j = t_i]); dx may be x. */
gd_status GD_REAL_NAME(cross_entropy_backward)(const gd_call *call)
{
    if (!cross_entropy_is_short(call)) return GD_REAL_NAME(cross_entropy_plain_backward)(call);
    loss_rows w = loss_rows_of(call);
    if (!w.dx) return GD_OK;
    w.scale = *w.dloss * *w.factor;
    return gd_each_piece(call, 4 * w.rows * w.vocab, w.rows, row_gradient, &w);
}
