/* nll_loss_cpu.c - the CPU kernels of nll_loss. */
#include "cross_entropy/formula.h"
#include "cross_entropy/cross_entropy.h"

typedef struct nll_rows {
    const gd_cross_entropy_args *args;
    const int32_t *targets;
    const REAL *weight; /* NULL: ones */
    int64_t rows, vocab;
    REAL factor, *dx;
    const REAL *dloss;
    bool add;
} nll_rows;

static nll_rows nll_rows_of(const gd_call *call, const gd_tensor *log_probs)
{
    return (nll_rows){.args = call->args,
                      .targets = gd_data(call->input[1]),
                      .weight = gd_data(call->input[2]),
                      .rows = gd_tensor_count(call->input[1]),
                      .vocab = gd_last_dim(log_probs)};
}

/* Of a row that counts. */
static REAL target_weight(const nll_rows *w, int64_t i)
{
    return w->weight ? w->weight[w->targets[i]] : 1;
}

/* A weight of 0 has no part of an infinite loss. */
gd_status GD_REAL_NAME(nll_loss_forward)(const gd_call *call)
{
    const nll_rows w = nll_rows_of(call, call->input[0]);
    const REAL *x = gd_data(call->input[0]);
    REAL *out = gd_data(call->output[0]), *factor = gd_data(call->save[0]);
    int64_t counting;
    const gd_status status = targets_counting(call, w.targets, w.rows, w.vocab, &counting);
    if (status) return status;
    double sum = 0, divisor = 0;
    for (int64_t i = 0; i < w.rows; i++) {
        const double weight =
            target_counts(w.args, w.targets[i]) ? (double)target_weight(&w, i) : 0;
        const double loss = weight == 0 ? 0 : -weight * (double)x[i * w.vocab + w.targets[i]];
        if (w.args->reduction == GD_NONE) out[i] = (REAL)loss;
        sum += loss;
        divisor += weight;
    }
    GD_STEP("W", divisor);
    const double by = w.args->reduction == GD_MEAN ? 1 / divisor : 1;
    if (w.args->reduction != GD_NONE)
        *out = (REAL)(w.args->reduction == GD_MEAN ? sum / divisor : sum);
    if (factor) *factor = (REAL)(counting ? by : 0);
    return GD_OK;
}

static REAL row_factor(const nll_rows *w, int64_t i)
{
    return w->factor * w->dloss[w->args->reduction == GD_NONE ? i : 0];
}

static void nll_row_gradient(const void *work, int64_t i)
{
    const nll_rows *w = work;
    REAL *dx = w->dx + i * w->vocab;
    if (!w->add) memset(dx, 0, (size_t)w->vocab * sizeof *dx);
    if (!target_counts(w->args, w->targets[i])) return;
    dx[w->targets[i]] += nll_loss_dx(target_weight(w, i), row_factor(w, i));
}

gd_status GD_REAL_NAME(nll_loss_backward)(const gd_call *call)
{
    if (!call->dinput[0] || gd_tensor_count(call->dinput[0]) == 0) return GD_OK;
    nll_rows w = nll_rows_of(call, call->dinput[0]);
    w.factor = *(const REAL *)gd_data(call->save[0]);
    w.dloss = gd_data(call->doutput[0]);
    w.dx = gd_data(call->dinput[0]);
    w.add = call->accumulate[0];
    gd_for_each(gd_threads_for(call->threads, w.rows * w.vocab), w.rows, nll_row_gradient, &w);
    return GD_OK;
}
