/* layer_norm_cpu.c - the CPU kernels of layer_norm. */
#include "layer_norm/formula.h"
#include "layer_norm/layer_norm.h"
#include "loops.h"

/* x [M, N]; mean and rstd [M], NULL in a forward without a backward. */
typedef struct norm_work {
    const REAL *x, *w, *b, *dy;
    REAL *y, *dx;
    double *mean, *rstd;
    gd_columns columns; /* its dw and db are NULL if they are not wanted */
    int64_t n;
    double eps;
    bool add;
} norm_work;

static void forward_task(const void *work, int64_t r)
{
    const norm_work *v = work;
    const int64_t n = v->n;
    const REAL *x = v->x + r * n, *w = v->w, *b = v->b;
    REAL *y = v->y + r * n;
    double mean, rstd;
    gd_row_statistics(x, n, v->eps, &mean, &rstd);
    for (int64_t i = 0; i < n; i++) {
        double xhat = layer_norm_xhat((double)x[i] - mean, rstd);
        y[i] = (REAL)(xhat * (w ? (double)w[i] : 1) + (b ? (double)b[i] : 0));
    }
    if (v->mean) v->mean[r] = mean, v->rstd[r] = rstd;
}

/* One row. dx may be dy. */
static void row_backward(REAL *dx, double *dw, double *db, const REAL *x, const REAL *w,
                         const REAL *dy, double mean, double rstd, int64_t n, bool add)
{
    double sum_h = 0, sum_hx = 0;
#pragma omp simd reduction(+ : sum_h, sum_hx)
    for (int64_t i = 0; i < n; i++) {
        double h = layer_norm_h(dy[i], w ? (double)w[i] : 1);
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
        double h = layer_norm_h(d, w ? (double)w[i] : 1);
        GD_STEP("xhat", xhat);
        GD_STEP("h", h);
        if (dw) dw[i] += layer_norm_dw(d, xhat);
        if (db) db[i] += d; /* [db] */
        if (dx) {
            double value = layer_norm_dx(h, mean_h, xhat, mean_hx, rstd);
            dx[i] = (REAL)(add ? (double)dx[i] + value : value);
        }
    }
}

static void backward_piece(const void *work, int64_t p)
{
    const norm_work *v = work;
    const gd_columns *c = &v->columns;
    const int64_t n = v->n, end = gd_columns_row(c, p + 1);
    for (int64_t r = gd_columns_row(c, p); r < end; r++) {
        row_backward(v->dx ? v->dx + r * n : NULL, c->dw ? c->dw + p * n : NULL,
                     c->db ? c->db + p * n : NULL, v->x + r * n, v->w, v->dy + r * n, v->mean[r],
                     v->rstd[r], n, v->add);
    }
}

static norm_work work_of(const gd_call *call)
{
    return (norm_work){.x = gd_data(call->input[0]),
                       .w = gd_data(call->input[1]),
                       .b = gd_data(call->input[2]),
                       .dy = gd_dy(call, 0),
                       .y = gd_data(call->output[0]),
                       .dx = gd_dx(call, 0),
                       .mean = gd_data(call->save[0]),
                       .rstd = gd_data(call->save[1]),
                       .n = gd_last_dim(call->input[0]),
                       .eps = ((const gd_layer_norm_args *)call->args)->eps,
                       .add = gd_adds(call, 0)};
}

gd_status GD_REAL_NAME(layer_norm_forward)(const gd_call *call)
{
    const norm_work v = work_of(call);
    const int64_t rows = gd_row_count(call->input[0]);
    return v.n > 0 ? gd_each_piece(call, rows * v.n, rows, forward_task, &v) : GD_OK;
}

gd_status GD_REAL_NAME(layer_norm_backward)(const gd_call *call)
{
    norm_work v = work_of(call);
    const int64_t rows = gd_row_count(call->input[0]);
    const bool sums = call->dinput[1] || call->dinput[2];
    if (!gd_columns_begin(call, rows, sums ? v.n : 0, &v.columns)) return GD_ERROR_MEMORY;
    const gd_columns c = v.columns;
    if (!call->dinput[1]) v.columns.dw = NULL;
    if (!call->dinput[2]) v.columns.db = NULL;
    gd_each_piece(call, rows * v.n, c.pieces, backward_piece, &v);
    gd_columns_store(gd_dx(call, 1), c.dw, c.pieces, v.n, gd_adds(call, 1));
    gd_columns_store(gd_dx(call, 2), c.db, c.pieces, v.n, gd_adds(call, 2));
    return GD_OK;
}
