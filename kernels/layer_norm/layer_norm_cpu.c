/* layer_norm_cpu.c - the CPU kernels of layer_norm. */
#include "layer_norm/formula.h"
#include "layer_norm/layer_norm.h"
#include "norms.h"

static void forward_row(const void *work, int64_t r)
{
    const gd_norm_rows *v = work;
    const int64_t n = v->n;
    const REAL *x = v->x + r * n, *w = v->weight, *b = v->bias;
    REAL *y = v->y + r * n;
    double mean, rstd;
    gd_row_statistics(v, r, &mean, &rstd);
    for (int64_t i = 0; i < n; i++) {
        double xhat = layer_norm_xhat((double)x[i] - mean, rstd);
        y[i] = (REAL)(xhat * gd_or(w, i, 1) + gd_or(b, i, 0));
    }
}

/* dx may be dy. */
static void backward_row(const void *work, int64_t r, double *dw, double *db)
{
    const gd_norm_rows *v = work;
    const int64_t n = v->n;
    const REAL *x = v->x + r * n, *w = v->weight, *dy = v->dy + r * n;
    REAL *dx = v->dx ? v->dx + r * n : NULL;
    const double mean = v->mean[r], rstd = v->rstd[r];
    const bool add = v->add;
    double sum_h = 0, sum_hx = 0;
#pragma omp simd reduction(+ : sum_h, sum_hx)
    for (int64_t i = 0; i < n; i++) {
        double h = layer_norm_h(dy[i], gd_or(w, i, 1));
        sum_h += h;
        sum_hx += h * ((double)x[i] - mean);
    }
    const double mean_h = layer_norm_mean(sum_h, (double)n);
    const double mean_hx = layer_norm_mean(sum_hx, (double)n) * rstd;
    GD_STEP("mean", mean);
    GD_STEP("rstd", rstd);
    GD_STEP("mean_h", mean_h);
    GD_STEP("mean_hx", mean_hx);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)dy[i], xhat = layer_norm_xhat((double)x[i] - mean, rstd);
        double h = layer_norm_h(d, gd_or(w, i, 1));
        GD_STEP("xhat", xhat);
        GD_STEP("h", h);
        if (dw) dw[i] += layer_norm_dw(d, xhat);
        if (db) db[i] += d; /* [db] */
        if (dx) gd_store(dx, i, layer_norm_dx(h, mean_h, xhat, mean_hx, rstd), add);
    }
}

GD_COLUMNS_TASK(backward_piece, backward_row)

static gd_norm_rows norm_of(const gd_call *call)
{
    const gd_tensor *x = call->input[0];
    return gd_norm_rows_of(call, gd_row_count(x), gd_last_dim(x),
                           ((const gd_layer_norm_args *)call->args)->eps);
}

gd_status GD_REAL_NAME(layer_norm_forward)(const gd_call *call)
{
    const gd_norm_rows v = norm_of(call);
    return v.n > 0 ? gd_each_piece(call, v.rows * v.n, v.rows, forward_row, &v) : GD_OK;
}

gd_status GD_REAL_NAME(layer_norm_backward)(const gd_call *call)
{
    const gd_norm_rows v = norm_of(call);
    return gd_each_row(call, v.rows * v.n, v.rows, v.n, backward_piece, &v);
}
