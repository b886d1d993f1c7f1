/* nll_loss_cpu.c - the CPU kernels of nll_loss. */
#include "cross_entropy/rows_cpu.h"

/* Of a row that counts. */
static REAL target_weight(const loss_rows *w, int64_t i)
{
    return w->weight ? w->weight[w->targets[i]] : 1;
}

/* A weight of 0 has no part of an infinite loss. */
gd_status GD_REAL_NAME(nll_loss_forward)(const gd_call *call)
{
    const loss_rows w = loss_rows_of(call);
    REAL *out = gd_data(call->output[0]);
    int64_t counting;
    const gd_status status = targets_counting(call, w.targets, w.rows, w.vocab, &counting);
    if (status) return status;
    double sum = 0, divisor = 0;
    for (int64_t i = 0; i < w.rows; i++) {
        const double weight =
            target_counts(w.args, w.targets[i]) ? (double)target_weight(&w, i) : 0;
        const double loss = weight == 0 ? 0 : -weight * (double)w.x[i * w.vocab + w.targets[i]];
        if (w.args->reduction == GD_NONE) out[i] = (REAL)loss;
        sum += loss;
        divisor += weight;
    }
    GD_STEP("W", divisor);
    const double by = w.args->reduction == GD_MEAN ? 1 / divisor : 1;
    if (w.args->reduction != GD_NONE)
        *out = (REAL)(w.args->reduction == GD_MEAN ? sum / divisor : sum);
    if (w.factor) *w.factor = (REAL)(counting ? by : 0);
    return GD_OK;
}

static void nll_row_gradient(const void *work, int64_t i)
{
    const loss_rows *w = work;
    REAL *dx = w->dx + i * w->vocab;
    if (!w->add_dx) memset(dx, 0, (size_t)w->vocab * sizeof *dx);
    if (!row_counts(w, i)) return;
    const REAL g = *w->factor * w->dloss[w->args->reduction == GD_NONE ? i : 0];
    dx[w->targets[i]] += nll_loss_dx(target_weight(w, i), g);
}

gd_status GD_REAL_NAME(nll_loss_backward)(const gd_call *call)
{
    if (!call->dinput[0] || gd_tensor_count(call->dinput[0]) == 0) return GD_OK;
    const loss_rows w = loss_rows_of(call);
    return gd_each_piece(call, w.rows * w.vocab, w.rows, nll_row_gradient, &w);
}
