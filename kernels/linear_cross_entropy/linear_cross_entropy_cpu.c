/* linear_cross_entropy_cpu.c - the CPU kernels: products (kernels/matmul/gemm.h) around a pass over
 * the logits. */
#include "cross_entropy/cross_entropy.h"
#include "linear_cross_entropy/linear_cross_entropy.h"
#include "loops.h"
#include "matmul/gemm.h"
#include "softmax/sum_exp.h"

/* With d [rows, V] of `rows` rows from `first` on: c (+)= d weight, only these rows of it (gradient
 * 0, dx), or c (+)= d^T x (gradient 1, dweight): [dx] and [dw] in plain_cpu.c. */
static gd_status gradient_product(const gd_call *call, int gradient, REAL *c, const REAL *residual,
                                  int64_t first, int64_t rows, bool add, gemm_memory *memory)
{
    const head_sizes s = head_sizes_of(call);
    const gemm_matrix x = {(const REAL *)gd_data(call->input[0]) + first * s.K, s.K, 1};
    const gemm_matrix weight = {gd_data(call->input[1]), s.K, 1}, d = {residual, s.V, 1};
    if (gradient == 0) {
        c += first * s.K;
        return gemm_of_call(call, c, d, weight, rows, s.K, s.V, add, memory);
    }
    return gemm_of_call(call, c, gemm_transposed(d), x, s.V, s.K, rows, add, memory);
}

/* ---- Forward ------------------------------------------------------------------------------ */

/* The loss of a row of logits; stores softmax(x) - [j = target] in x if needed ([d] in
 * plain_cpu.c). */
static double row_loss(REAL *x, int64_t vocab, int32_t target, bool residual)
{
    REAL max = 0;
    const double at_target = (double)x[target];
    if (!residual) {
        const double sum = gd_sum_exp(x, vocab, &max);
        return log(sum) - (at_target - (double)max);
    }
    const REAL largest = gd_row_max(x, vocab);
    GD_SUM(sum, j, vocab, (double)(x[j] = GD_MATH(exp)(x[j] - largest)));
    const REAL scale = (REAL)(1 / sum);
    GD_EACH(j, vocab) x[j] *= scale;
    x[target] -= 1;
    return log(sum) - (at_target - (double)largest);
}

typedef struct loss_rows {
    const gd_cross_entropy_args *args;
    const int32_t *targets;
    REAL *logits;
    double *losses;
    int64_t vocab;
    bool residual; /* leave d in place of the logits */
} loss_rows;

static void loss_of_row(const void *work, int64_t i)
{
    const loss_rows *w = work;
    REAL *row = w->logits + i * w->vocab;
    const bool counts = target_counts(w->args, w->targets[i]);
    w->losses[i] = counts ? row_loss(row, w->vocab, w->targets[i], w->residual) : 0;
    if (!counts && w->residual) memset(row, 0, (size_t)w->vocab * sizeof *row);
}

/* `rows` rows from `first` on: their logits, their losses, and in place of the logits d, if needed;
 * in pieces their part of the gradients. */
static gd_status run_rows(const gd_call *call, REAL *logits, double *losses, int64_t first,
                          int64_t rows, gemm_memory *memory)
{
    const gd_cross_entropy_args *args = call->args;
    const head_sizes s = head_sizes_of(call);
    const REAL *x = (const REAL *)gd_data(call->input[0]) + first * s.K;
    const REAL *weight = gd_data(call->input[1]);
    const int32_t *targets = (const int32_t *)gd_data(call->input[2]) + first;
    gd_status status = gemm_of_call(call, logits, (gemm_matrix){x, s.K, 1},
                                    (gemm_matrix){weight, 1, s.K}, rows, s.V, s.K, false, memory);
    if (status) return status;
    const loss_rows w = {args, targets, logits, losses + first, s.V, call->save[SAVE_FACTOR]};
    status = gd_each_piece(call, 4 * rows * s.V, rows, loss_of_row, &w);
    for (int i = 0; i < 2 && !status; i++) {
        const gd_tensor *saved = call->save[SAVE_DX + i];
        if (!saved) continue;
        const bool add = i == 1 && first > 0;
        status = gradient_product(call, i, gd_data(saved), logits, first, rows, add, memory);
    }
    return status;
}

gd_status GD_REAL_NAME(linear_cross_entropy_forward)(const gd_call *call)
{
    const head_sizes s = head_sizes_of(call);
    REAL *logits = gd_data(call->save[SAVE_D]), *factor_out = gd_data(call->save[SAVE_FACTOR]);
    const int64_t piece = head_piece(call, sizeof *logits);
    int64_t counting;
    gd_status status = targets_counting(call, gd_data(call->input[2]), s.M, s.V, &counting);
    if (status) return status;
    double *losses = gd_call_scratch(call, (size_t)s.M * sizeof *losses);
    if (!call->save[SAVE_D]) {
        logits = gd_call_scratch(call, (size_t)(gd_min64(piece, s.M) * s.V) * sizeof *logits);
        if (!logits) return GD_ERROR_MEMORY;
    }
    if (!losses) return GD_ERROR_MEMORY;
    gemm_memory memory = {0};
    for (int64_t first = 0; first < s.M; first += piece) {
        const int64_t rows = gd_min64(piece, s.M - first);
        status = run_rows(call, logits, losses, first, rows, &memory);
        if (status) return status;
    }
    double sum = 0, factor = target_factor(call->args, counting);
    for (int64_t i = 0; i < s.M; i++) sum += losses[i];
    if (factor_out) *factor_out = (REAL)(counting ? factor : 0);
    *(REAL *)gd_data(call->output[0]) = (REAL)(sum * factor); /* no rows: 0 * inf = NaN */
    return GD_OK;
}

/* ---- Backward ----------------------------------------------------------------------------- */

GD_MAP_ROW(scaled_row, c, c1, c2, c3, p, q, p *c)
GD_GRADIENT_ROW(added_row, c, c1, c2, c3, p, q, p *c)

/* dinput[i] (+)= alpha times its product, which the forward has saved or which is computed now. */
static gd_status scaled_product(const gd_call *call, int i, REAL alpha)
{
    const int64_t n = gd_tensor_count(call->input[i]);
    const bool add = call->accumulate[i];
    REAL *out = gd_data(call->dinput[i]), *c = gd_data(call->save[SAVE_DX + i]);
    if (!call->dinput[i]) return GD_OK;
    if (call->save[SAVE_D]) {
        gemm_memory memory = {0};
        c = add ? gd_call_scratch(call, (size_t)n * sizeof *c) : out;
        if (!c && n > 0) return gd_error_status(call->context);
        gd_status status = gradient_product(call, i, c, gd_data(call->save[SAVE_D]), 0,
                                            head_sizes_of(call).M, false, &memory);
        if (status) return status;
    }
    return gd_map_elements(
        call, &(gd_map){.out = out,
                        .in = {c, c},
                        .n = n,
                        .row = {.function = add ? added_row : scaled_row, .p = alpha, .add = add}});
}

/* With d = softmax(logits) - [j = target] and alpha = dloss * factor:
 * dx = alpha d weight,  dweight = alpha d^T x */
gd_status GD_REAL_NAME(linear_cross_entropy_backward)(const gd_call *call)
{
    const REAL dloss = *(const REAL *)gd_data(call->doutput[0]);
    const REAL alpha = dloss * *(const REAL *)gd_data(call->save[SAVE_FACTOR]);
    gd_status status = scaled_product(call, 0, alpha);
    return status ? status : scaled_product(call, 1, alpha);
}
