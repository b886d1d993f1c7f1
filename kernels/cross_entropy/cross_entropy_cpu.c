/* cross_entropy_cpu.c - the CPU kernels of cross_entropy. */
#include "cross_entropy/formula.h"
#include "cross_entropy/targets.h"
#include "softmax/sum_exp.h"

/* plain_cpu.c */
gd_status GD_REAL_NAME(cross_entropy_plain_forward)(const gd_call *call);
gd_status GD_REAL_NAME(cross_entropy_plain_backward)(const gd_call *call);

/* The rows of a loss. */
typedef struct loss_rows {
    const gd_cross_entropy_args *args;
    const REAL *x;
    const int32_t *targets;
    int64_t vocab;
    REAL *max, *log_of_sum; /* NULL: not saved */
    double *losses;
} loss_rows;

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
    const gd_cross_entropy_args *args = call->args;
    if (!cross_entropy_is_short(call)) return GD_REAL_NAME(cross_entropy_plain_forward)(call);
    const REAL *x = gd_data(call->input[0]);
    const int32_t *targets = gd_data(call->input[1]);
    REAL *factor_out = gd_data(call->save[2]);
    int64_t rows = gd_tensor_count(call->input[1]), vocab = gd_last_dim(call->input[0]), counting;
    gd_status status = check_targets(call, targets, rows, vocab, &counting);
    if (status) return status;
    double *losses = gd_call_scratch(call, (size_t)rows * sizeof *losses);
    if (!losses) return GD_ERROR_MEMORY;
    const loss_rows w = {args,  x, targets, vocab, gd_data(call->save[0]), gd_data(call->save[1]),
                         losses};
    gd_for_each(gd_threads_for(call->threads, 4 * rows * vocab), rows, row_loss, &w);
    double sum = 0, factor = target_factor(args, counting);
    for (int64_t i = 0; i < rows; i++) sum += losses[i];
    if (factor_out) *factor_out = (REAL)(counting ? factor : 0);
    *(REAL *)gd_data(call->output[0]) = (REAL)(sum * factor); /* no rows: 0 * inf = NaN */
    return GD_OK;
}

typedef struct gradient_rows {
    const gd_cross_entropy_args *args;
    REAL *dx;
    const REAL *x, *max, *log_of_sum;
    const int32_t *targets;
    int64_t vocab;
    REAL scale;
    bool add;
} gradient_rows;

static void row_gradient(const void *work, int64_t i)
{
    const gradient_rows *w = work;
    const int32_t *targets = w->targets;
    const int64_t vocab = w->vocab;
    const REAL *from = w->x + i * vocab;
    REAL *to = w->dx + i * vocab, m = w->max[i], l = w->log_of_sum[i], scale = w->scale;
    if (!target_counts(w->args, targets[i])) {
        if (!w->add) memset(to, 0, (size_t)vocab * sizeof *to);
        return;
    }
    if (w->add) {
#pragma omp simd
        for (int64_t j = 0; j < vocab; j++) to[j] += cross_entropy_dx(from[j], m, l, scale);
    } else {
#pragma omp simd
        for (int64_t j = 0; j < vocab; j++) to[j] = cross_entropy_dx(from[j], m, l, scale);
    }
    to[targets[i]] = cross_entropy_dx_target(to[targets[i]], scale);
}

/* dx[i, j] = dloss * factor * (softmax(x[i])[j] - [j = t_i]); dx may be x. */
gd_status GD_REAL_NAME(cross_entropy_backward)(const gd_call *call)
{
    const gd_cross_entropy_args *args = call->args;
    if (!cross_entropy_is_short(call)) return GD_REAL_NAME(cross_entropy_plain_backward)(call);
    if (!call->dinput[0] || gd_tensor_count(call->dinput[0]) == 0) return GD_OK;
    REAL scale = *(const REAL *)gd_data(call->doutput[0]) * *(const REAL *)gd_data(call->save[2]);
    const gradient_rows w = {.args = args,
                             .dx = gd_data(call->dinput[0]),
                             .x = gd_data(call->input[0]),
                             .max = gd_data(call->save[0]),
                             .log_of_sum = gd_data(call->save[1]),
                             .targets = gd_data(call->input[1]),
                             .vocab = gd_last_dim(call->input[0]),
                             .scale = scale,
                             .add = call->accumulate[0]};
    const int64_t rows = gd_tensor_count(call->input[1]);
    gd_for_each(gd_threads_for(call->threads, 4 * rows * w.vocab), rows, row_gradient, &w);
    return GD_OK;
}
