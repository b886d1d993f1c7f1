/* linear_cross_entropy_cpu.c - the CPU kernels: products (kernels/matmul/gemm.h) around a pass over
 * the logits. */
#include "cross_entropy/targets.h"
#include "linear_cross_entropy/linear_cross_entropy.h"
#include "matmul/gemm.h"
#include "softmax/sum_exp.h"

/* c [M, N] = a b, with its own temporary memory. */
static gd_status product(const gd_call *call, REAL *c, gemm_matrix a, gemm_matrix b, int64_t M,
                         int64_t N, int64_t K)
{
    int threads = gemm_threads(call->threads, M, N, K);
    void *scratch = gd_call_scratch(call, gemm_scratch(M, N, K, threads));
    if (!scratch) return gd_error_status(call->context);
    gemm(c, N, a, b, M, N, K, false, scratch, threads);
    return GD_OK;
}

/* ---- Forward ------------------------------------------------------------------------------ */

/* The loss of a row of logits; stores softmax(x) - [j = target] in x if needed. */
static double row_loss(REAL *x, int64_t vocab, int32_t target, bool residual)
{
    REAL max = 0;
    const double at_target = (double)x[target];
    if (!residual) {
        const double sum = gd_sum_exp(x, vocab, &max);
        return log(sum) - (at_target - (double)max);
    }
    REAL largest = -(REAL)INFINITY;
    double sum = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < vocab; j++) largest = x[j] > largest ? x[j] : largest;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < vocab; j++) {
        x[j] = GD_MATH(exp)(x[j] - largest);
        sum += (double)x[j];
    }
    const REAL scale = (REAL)(1 / sum);
#pragma omp simd
    for (int64_t j = 0; j < vocab; j++) x[j] *= scale;
    x[target] -= 1; /* [d] */
    return log(sum) - (at_target - (double)largest);
}

/* `rows` rows from `first` on: their logits, their losses, and in place of the logits the data for
 * their gradient, if needed. */
static gd_status run_rows(const gd_call *call, REAL *logits, double *losses, int64_t first,
                          int64_t rows, bool residual)
{
    const gd_cross_entropy_args *args = call->args;
    const head_sizes s = head_sizes_of(call);
    const REAL *x = (const REAL *)gd_data(call->input[0]) + first * s.K;
    const REAL *weight = gd_data(call->input[1]);
    const int32_t *targets = (const int32_t *)gd_data(call->input[2]) + first;
    gd_status status = product(call, logits, (gemm_matrix){x, s.K, 1},
                               (gemm_matrix){weight, 1, s.K}, rows, s.V, s.K);
    if (status) return status;
    int threads = gd_threads_for(call->threads, 4 * rows * s.V);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        REAL *row = logits + i * s.V;
        const bool counts = target_counts(args, targets[i]);
        losses[first + i] = counts ? row_loss(row, s.V, targets[i], residual) : 0;
        if (!counts && residual) memset(row, 0, (size_t)s.V * sizeof *row);
    }
    return GD_OK;
}

gd_status GD_REAL_NAME(linear_cross_entropy_forward)(const gd_call *call)
{
    const head_sizes s = head_sizes_of(call);
    REAL *residual = gd_data(call->save[0]), *logits = residual;
    REAL *factor_out = gd_data(call->save[1]);
    const int64_t piece = residual ? gd_max64(s.M, 1) : head_piece(&s, sizeof *logits);
    int64_t counting;
    gd_status status = check_targets(call, gd_data(call->input[2]), s.M, s.V, &counting);
    if (status) return status;
    double *losses = gd_call_scratch(call, (size_t)s.M * sizeof *losses);
    if (!call->save[0]) {
        logits = gd_call_scratch(call, (size_t)(gd_min64(piece, s.M) * s.V) * sizeof *logits);
        if (!logits) return GD_ERROR_MEMORY;
    }
    if (!losses) return GD_ERROR_MEMORY;
    for (int64_t first = 0; first < s.M; first += piece) {
        const int64_t rows = gd_min64(piece, s.M - first);
        status = run_rows(call, logits, losses, first, rows, residual);
        if (status) return status;
    }
    double sum = 0, factor = target_factor(call->args, counting);
    for (int64_t i = 0; i < s.M; i++) sum += losses[i];
    if (factor_out) *factor_out = (REAL)(counting ? factor : 0);
    *(REAL *)gd_data(call->output[0]) = (REAL)(sum * factor); /* no rows: 0 * inf = NaN */
    return GD_OK;
}

/* ---- Backward ----------------------------------------------------------------------------- */

/* out (+)= alpha a b, out [M, N] */
static gd_status scaled_product(const gd_call *call, REAL *out, bool add, REAL alpha, gemm_matrix a,
                                gemm_matrix b, int64_t M, int64_t N, int64_t K)
{
    const int64_t n = M * N;
    REAL *c = add ? gd_call_scratch(call, (size_t)n * sizeof *c) : out;
    if (!c && n > 0) return gd_error_status(call->context);
    gd_status status = product(call, c, a, b, M, N, K);
    if (status) return status;
#pragma omp parallel for simd num_threads(gd_threads_for(call->threads, n)) schedule(static)
    for (int64_t i = 0; i < n; i++) out[i] = add ? out[i] + alpha * c[i] : alpha * c[i];
    return GD_OK;
}

/* With d = softmax(logits) - [j = target] and alpha = dloss * factor:
 * dx = alpha d weight,  dweight = alpha d^T x */
gd_status GD_REAL_NAME(linear_cross_entropy_backward)(const gd_call *call)
{
    const head_sizes s = head_sizes_of(call);
    REAL *dx = gd_data(call->dinput[0]), *dweight = gd_data(call->dinput[1]);
    const gemm_matrix d = {gd_data(call->save[0]), s.V, 1};
    const gemm_matrix x = {gd_data(call->input[0]), s.K, 1};
    const gemm_matrix weight = {gd_data(call->input[1]), s.K, 1};
    const REAL alpha =
        /* [alpha] */
        *(const REAL *)gd_data(call->doutput[0]) * *(const REAL *)gd_data(call->save[1]);
    gd_status status = GD_OK;
    if (dx) {
        /* [dx] */
        status = scaled_product(call, dx, call->accumulate[0], alpha, d, weight, s.M, s.K, s.V);
    }
    if (dweight && !status) {
        /* [dw] */
        status = scaled_product(call, dweight, call->accumulate[1], alpha, gemm_transposed(d), x,
                                s.V, s.K, s.M);
    }
    return status;
}
