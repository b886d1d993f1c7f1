/* cross_entropy_cpu.c - the CPU kernels of cross_entropy. */
#include "cross_entropy/targets.h"
#include "softmax/sum_exp.h"

/* cross_entropy_soft_cpu.c */
gd_status GD_REAL_NAME(cross_entropy_soft_forward)(const gd_call *call);
gd_status GD_REAL_NAME(cross_entropy_soft_backward)(const gd_call *call);

/* loss = factor * sum_i (logsumexp_i - x[i, t_i]), factor = 1 or 1 / (rows that count) */
gd_status GD_REAL_NAME(cross_entropy_forward)(const gd_call *call)
{
    const gd_cross_entropy_args *args = call->args;
    if (!cross_entropy_plain(call)) return GD_REAL_NAME(cross_entropy_soft_forward)(call);
    const REAL *x = gd_data(call->input[0]);
    const int32_t *targets = gd_data(call->input[1]);
    REAL *max_out = gd_data(call->save[0]), *log_out = gd_data(call->save[1]);
    REAL *factor_out = gd_data(call->save[2]);
    int64_t rows = gd_tensor_count(call->input[1]), vocab = gd_last_dim(call->input[0]), counting;
    gd_status status = check_targets(call, targets, rows, vocab, &counting);
    if (status) return status;
    double *losses = gd_call_scratch(call, (size_t)rows * sizeof *losses);
    if (!losses) return GD_ERROR_MEMORY;
    int threads = gd_threads_for(call->threads, 4 * rows * vocab);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        bool counted = target_counts(args, targets[i]);
        REAL max = 0;
        double log_of_sum = counted ? log(gd_sum_exp(x + i * vocab, vocab, &max)) : 0;
        double target = counted ? (double)x[i * vocab + targets[i]] : 0;
        losses[i] = log_of_sum - (target - (double)max);
        if (max_out) max_out[i] = max;
        if (log_out) log_out[i] = (REAL)log_of_sum;
    }
    double sum = 0, factor = target_factor(args, counting);
    for (int64_t i = 0; i < rows; i++) sum += losses[i];
    if (factor_out) *factor_out = (REAL)(counting ? factor : 0);
    *(REAL *)gd_data(call->output[0]) = (REAL)(sum * factor); /* no rows: 0 * inf = NaN */
    return GD_OK;
}

/* dx[i, j] = dloss * factor * (softmax(x[i])[j] - [j = t_i]); dx may be x. */
gd_status GD_REAL_NAME(cross_entropy_backward)(const gd_call *call)
{
    const gd_cross_entropy_args *args = call->args;
    if (!cross_entropy_plain(call)) return GD_REAL_NAME(cross_entropy_soft_backward)(call);
    if (!call->dinput[0] || gd_tensor_count(call->dinput[0]) == 0) return GD_OK;
    const REAL *x = gd_data(call->input[0]);
    const REAL *max = gd_data(call->save[0]), *log_of_sum = gd_data(call->save[1]);
    const int32_t *targets = gd_data(call->input[1]);
    REAL scale = *(const REAL *)gd_data(call->doutput[0]) * *(const REAL *)gd_data(call->save[2]);
    REAL *dx = gd_data(call->dinput[0]);
    int64_t rows = gd_tensor_count(call->input[1]), vocab = gd_last_dim(call->input[0]);
    int threads = gd_threads_for(call->threads, 4 * rows * vocab);
    bool add = call->accumulate[0];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const REAL *from = x + i * vocab;
        REAL *to = dx + i * vocab, m = max[i], l = log_of_sum[i];
        if (!target_counts(args, targets[i])) {
            if (!add) memset(to, 0, (size_t)vocab * sizeof *to);
            continue;
        }
        if (add) {
#pragma omp simd
            for (int64_t j = 0; j < vocab; j++) to[j] += GD_MATH(exp)(from[j] - m - l) * scale;
        } else {
#pragma omp simd
            /* [dx] */
            for (int64_t j = 0; j < vocab; j++) to[j] = GD_MATH(exp)(from[j] - m - l) * scale;
        }
        to[targets[i]] -= scale; /* [dx target] */
    }
    return GD_OK;
}
