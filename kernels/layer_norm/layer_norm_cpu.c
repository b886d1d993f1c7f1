/* layer_norm_cpu.c - the CPU kernels of layer_norm. */
#include "layer_norm/formula.h"
#include "layer_norm/layer_norm.h"

/* One row. The variance is taken around the mean in a second pass over the row, which is in cache:
 * mean(x^2) - mean(x)^2 would lose all digits where x is far from zero. */
static void row_forward(REAL *y, const REAL *x, const REAL *w, const REAL *b, int64_t n, double eps,
                        double *mean_out, double *rstd_out)
{
    double sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    double mean = sum / (double)n;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    double rstd = 1 / sqrt(squares / (double)n + eps);
    for (int64_t i = 0; i < n; i++) {
        double xhat = layer_norm_xhat((double)x[i] - mean, rstd);
        y[i] = (REAL)(xhat * (w ? (double)w[i] : 1) + (b ? (double)b[i] : 0));
    }
    if (mean_out) *mean_out = mean;
    if (rstd_out) *rstd_out = rstd;
}

typedef struct forward_work {
    REAL *y;
    const REAL *x, *w, *b;
    int64_t n;
    double eps, *mean, *rstd;
} forward_work;

static void forward_task(const void *work, int64_t r)
{
    const forward_work *f = work;
    row_forward(f->y + r * f->n, f->x + r * f->n, f->w, f->b, f->n, f->eps,
                f->mean ? f->mean + r : NULL, f->rstd ? f->rstd + r : NULL);
}

/* x [M, N] -> y [M, N]; mean, rstd [M] are stored if there will be a backward. */
gd_status GD_REAL_NAME(layer_norm_forward)(const gd_call *call)
{
    const gd_layer_norm_args *args = call->args;
    const int64_t rows = gd_row_count(call->input[0]);
    const forward_work f = {.y = gd_data(call->output[0]),
                            .x = gd_data(call->input[0]),
                            .w = gd_data(call->input[1]),
                            .b = gd_data(call->input[2]),
                            .n = gd_last_dim(call->input[0]),
                            .eps = args->eps,
                            .mean = gd_data(call->save[0]),
                            .rstd = gd_data(call->save[1])};
    if (rows * f.n == 0) return GD_OK;
    gd_for_each(gd_threads_for(call->threads, rows * f.n), rows, forward_task, &f);
    return GD_OK;
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
    for (int64_t i = 0; i < n; i++) {
        double d = (double)dy[i], xhat = layer_norm_xhat((double)x[i] - mean, rstd);
        double h = layer_norm_h(d, w ? (double)w[i] : 1);
        if (dw) dw[i] += layer_norm_dw(d, xhat);
        if (db) db[i] += d; /* [db] */
        if (dx) {
            double value = layer_norm_dx(h, mean_h, xhat, mean_hx, rstd);
            dx[i] = (REAL)(add ? (double)dx[i] + value : value);
        }
    }
}

typedef struct backward_work {
    const REAL *x, *w, *dy;
    const double *mean, *rstd;
    REAL *dx;
    double *dw, *db; /* [pieces, N], or NULL */
    int64_t rows, n, pieces;
    bool add;
} backward_work;

static void backward_piece(const void *work, int64_t p)
{
    const backward_work *b = work;
    const int64_t n = b->n;
    for (int64_t r = b->rows * p / b->pieces; r < b->rows * (p + 1) / b->pieces; r++) {
        row_backward(b->dx ? b->dx + r * n : NULL, b->dw ? b->dw + p * n : NULL,
                     b->db ? b->db + p * n : NULL, b->x + r * n, b->w, b->dy + r * n, b->mean[r],
                     b->rstd[r], n, b->add);
    }
}

/* dw or db [N] from the partial sums [P, N], added in the order of the pieces. */
static void reduce_pieces(REAL *out, const double *partial, int64_t pieces, int64_t n, bool add)
{
    for (int64_t i = 0; out && i < n; i++) {
        double sum = 0;
        for (int64_t p = 0; p < pieces; p++) sum += partial[p * n + i];
        out[i] = (REAL)(add ? (double)out[i] + sum : sum);
    }
}

/* The rows are divided into P pieces, P a function of M alone; each piece sums its rows' part of dw
 * and db in its own row, and these P rows are then added in order. */
gd_status GD_REAL_NAME(layer_norm_backward)(const gd_call *call)
{
    const REAL *x = gd_data(call->input[0]), *w = gd_data(call->input[1]),
               *dy = gd_data(call->doutput[0]);
    const double *mean = gd_data(call->save[0]), *rstd = gd_data(call->save[1]);
    REAL *dx = gd_data(call->dinput[0]), *dw = gd_data(call->dinput[1]),
         *db = gd_data(call->dinput[2]);
    int64_t rows = gd_row_count(call->input[0]), n = gd_last_dim(call->input[0]);
    enum { PIECES = 16 };
    int64_t pieces = gd_min64(rows, PIECES);
    bool sums = dw || db, add = call->accumulate[0];
    size_t bytes = sums ? 2 * (size_t)(pieces * n) * sizeof(double) : 0;
    double *partial_w = gd_call_scratch(call, bytes), *partial_b = NULL;
    if (!partial_w) return GD_ERROR_MEMORY;
    partial_b = partial_w + (sums ? pieces * n : 0);
    if (sums) memset(partial_w, 0, bytes);
    const backward_work b = {.x = x,
                             .w = w,
                             .dy = dy,
                             .mean = mean,
                             .rstd = rstd,
                             .dx = dx,
                             .dw = dw ? partial_w : NULL,
                             .db = db ? partial_b : NULL,
                             .rows = rows,
                             .n = n,
                             .pieces = pieces,
                             .add = add};
    gd_for_each(gd_threads_for(call->threads, rows * n), pieces, backward_piece, &b);
    reduce_pieces(dw, partial_w, pieces, n, call->accumulate[1]);
    reduce_pieces(db, partial_b, pieces, n, call->accumulate[2]);
    return GD_OK;
}
