/* rows_cpu.h - the rows of cross_entropy and nll_loss as their CPU kernels see them, and the
 * forward, which all of them have in common but for the loss of a row. */
#ifndef GRADUS_CROSS_ENTROPY_ROWS_CPU_H
#define GRADUS_CROSS_ENTROPY_ROWS_CPU_H

#include "cross_entropy/cross_entropy.h"
#include "cross_entropy/formula.h"
#include "kernel_cpu.h"

typedef struct loss_rows {
    const gd_cross_entropy_args *args;
    const REAL *x, *weight, *dloss; /* weight NULL: ones */
    const REAL *given;              /* the probabilities; NULL: one target a row */
    const int32_t *targets;
    int64_t rows, vocab;
    double on, off;                  /* a target's part, and what smoothing spreads: eps / V */
    REAL *max, *log_of_sum, *factor; /* saved, the first two by cross_entropy; NULL: not saved */
    double *losses;
    REAL *dx, *dq, *dw, scale; /* scale: of the gradient of a row */
    bool add_dx, add_dq, add_dw;
} loss_rows;

static inline loss_rows loss_rows_of(const gd_call *call)
{
    const gd_cross_entropy_args *args = call->args;
    const bool numbers = gd_tensor_dtype(call->input[1]) == GD_INT32, softmax = call->saves > 1;
    const int64_t vocab = gd_last_dim(call->input[0]);
    return (loss_rows){.args = args,
                       .x = gd_data(call->input[0]),
                       .weight = gd_data(call->input[2]),
                       .dloss = gd_dy(call, 0),
                       .given = numbers ? NULL : gd_data(call->input[1]),
                       .targets = numbers ? gd_data(call->input[1]) : NULL,
                       .rows = gd_row_count(call->input[0]),
                       .vocab = vocab,
                       .on = 1 - args->smoothing,
                       .off = args->smoothing / (double)gd_max64(vocab, 1),
                       .max = softmax ? gd_data(call->save[0]) : NULL,
                       .log_of_sum = softmax ? gd_data(call->save[1]) : NULL,
                       .factor = gd_data(call->save[call->saves - 1]),
                       .dx = gd_dx(call, 0),
                       .dq = gd_dx(call, 1),
                       .dw = gd_dx(call, 2),
                       .add_dx = gd_adds(call, 0),
                       .add_dq = gd_adds(call, 1),
                       .add_dw = gd_adds(call, 2)};
}

static inline bool row_counts(const loss_rows *w, int64_t i)
{
    return !w->targets || target_counts(w->args, w->targets[i]);
}

static inline double weight_of(const loss_rows *w, int64_t j)
{
    return gd_or(w->weight, j, 1);
}

/* The losses of rows, and their sum times the factor, which is saved: 0 if no row counts. */
static inline gd_status loss_of_rows(const gd_call *call, gd_task *row_loss,
                                     double (*factor_of)(const loss_rows *w, int64_t counting))
{
    loss_rows w = loss_rows_of(call);
    REAL *out = gd_data(call->output[0]);
    const bool none = w.args->reduction == GD_NONE;
    int64_t counting = w.rows;
    gd_status status = GD_OK;
    if (w.targets) status = targets_counting(call, w.targets, w.rows, w.vocab, &counting);
    if (status) return status;
    w.losses = gd_call_scratch(call, (size_t)w.rows * sizeof *w.losses);
    if (!w.losses) return GD_ERROR_MEMORY;
    gd_each_piece(call, 4 * w.rows * w.vocab, w.rows, row_loss, &w);
    const double factor = factor_of(&w, counting);
    if (w.factor) *w.factor = (REAL)(counting ? factor : 0);
    double sum = 0;
    for (int64_t i = 0; i < w.rows; i++) {
        sum += w.losses[i];
        if (none) out[i] = (REAL)w.losses[i];
    }
    if (!none) *out = (REAL)(sum * factor); /* no rows: 0 * inf = NaN */
    return GD_OK;
}

#endif
