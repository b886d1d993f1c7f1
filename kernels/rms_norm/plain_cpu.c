/* plain_cpu.c - RMSNorm as README.md derives it: one loop for one formula, for every dtype, stride
 * and option. It runs where rms_norm_cpu.c does not; kernels/rms_norm/test_rms_norm_kernels.c compares both with
 * the same formulas in double. One row of N numbers:
 *
 *     forward                                   backward
 *     rstd = 1 / sqrt(mean(x[k]^2) + eps)       m = mean(dy[k] * factor[k] * xhat[k])
 *     xhat[k] = x[k] * rstd                     dx[k] = rstd * (dy[k] * factor[k] - xhat[k] * m)
 *     y[k] = xhat[k] * factor[k] + bias[k]      dw[k] += dy[k] * xhat[k],   db[k] += dy[k]
 *
 * with factor = offset + weight. A tensor of the problem is written x(i, k): row i, column k.
 */
#include "copy/convert.h"
#include "kernel.h"
#include "rms_norm/rms_norm.h"

/* ---- Single numbers of any real dtype, rounded once where they are stored ------------------- */

static double load(const void *data, gd_dtype dtype, int64_t at)
{
    if (dtype == GD_FLOAT64) return ((const double *)data)[at];
    if (dtype == GD_BFLOAT16) return (double)gd_bf16_to_f32(((const uint16_t *)data)[at]);
    if (dtype == GD_FLOAT16) return (double)gd_f16_to_f32(((const uint16_t *)data)[at]);
    return (double)((const float *)data)[at];
}

/* (+)= value */
static void store(void *data, gd_dtype dtype, int64_t at, bool add, double value)
{
    if (add) value += load(data, dtype, at);
    if (dtype == GD_FLOAT64)
        ((double *)data)[at] = value;
    else if (dtype == GD_BFLOAT16)
        ((uint16_t *)data)[at] = gd_f64_to_bf16(value);
    else if (dtype == GD_FLOAT16)
        ((uint16_t *)data)[at] = gd_f64_to_f16(value);
    else
        ((float *)data)[at] = (float)value;
}

/* Where row i, column k lies in a tensor [M, N]. */
static int64_t place(const gd_rms_norm_problem *p, int64_t stride, int64_t i, int64_t k)
{
    const int64_t heads = rms_norm_heads(p);
    return i / heads * stride + i % heads * p->cols + k;
}

/* Column k of the weight or bias that row i uses. */
static REAL parameter(const gd_rms_norm_problem *p, const void *data, int64_t i, int64_t k)
{
    return (REAL)load(data, p->weight_dtype, i % rms_norm_weight_rows(p) * p->cols + k);
}

static REAL factor_of(const gd_rms_norm_problem *p, const void *weight, int64_t i, int64_t k)
{
    return weight ? (REAL)p->offset + parameter(p, weight, i, k) : 1;
}

static REAL xhat_of(const gd_rms_norm_problem *p, REAL x, REAL rstd)
{
    REAL xhat = x * rstd; /* [xhat] */
    if (!p->round_before_weight) return xhat;
    double rounded;
    store(&rounded, p->y_dtype, 0, false, (double)xhat);
    return (REAL)load(&rounded, p->y_dtype, 0);
}

/* ---- Forward -------------------------------------------------------------------------------- */

void GD_REAL_NAME(rms_norm_plain_forward)(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                          int threads)
{
    const int64_t N = p->cols;
    const void *from = v->residual ? v->sum : v->x;
    const int64_t stride = v->residual ? v->sum_stride : v->x_stride;
#pragma omp parallel for num_threads(gd_threads_for(threads, p->rows *N)) schedule(static)
    for (int64_t i = 0; i < p->rows; i++) {
        for (int64_t k = 0; v->residual && k < N; k++) {
            const REAL x = (REAL)load(v->x, p->y_dtype, place(p, v->x_stride, i, k));
            const REAL residual =
                (REAL)load(v->residual, p->dtype, place(p, v->residual_stride, i, k));
            store(v->sum, p->dtype, place(p, stride, i, k), false, (double)(x + residual));
        }
        double squares = 0;
        for (int64_t k = 0; k < N; k++) {
            const double x = load(from, p->dtype, place(p, stride, i, k));
            squares += x * x;
        }
        const REAL rstd = (REAL)(1 / sqrt(squares / (double)N + p->eps)); /* [rstd] */
        if (v->rstd) ((REAL *)v->rstd)[i] = rstd;
        for (int64_t k = 0; k < N; k++) {
            const REAL x = (REAL)load(from, p->dtype, place(p, stride, i, k));
            const REAL bias = v->bias ? parameter(p, v->bias, i, k) : 0;
            const REAL y = xhat_of(p, x, rstd) * factor_of(p, v->weight, i, k) + bias;
            store(v->y, p->y_dtype, place(p, v->y_stride, i, k), false, (double)y);
        }
    }
}

/* ---- Backward ------------------------------------------------------------------------------- */

static REAL dy_of(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g, int64_t i,
                  int64_t k)
{
    return (REAL)load(g->dy, p->y_dtype, place(p, g->dy_stride, i, k));
}

static REAL x_of(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g, int64_t i, int64_t k)
{
    return (REAL)load(g->x, p->dtype, place(p, g->x_stride, i, k));
}

/* dx of row i: also that of the residual, and of the x that was added to it. */
static void dx_row(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g, int64_t i)
{
    const REAL rstd = ((const REAL *)g->rstd)[i];
    double sum = 0;
    for (int64_t k = 0; k < p->cols; k++) {
        const REAL h = dy_of(p, g, i, k) * factor_of(p, g->weight, i, k); /* [h] */
        sum += (double)(h * (x_of(p, g, i, k) * rstd));
    }
    const REAL m = (REAL)(sum / (double)p->cols); /* [m] */
    for (int64_t k = 0; k < p->cols; k++) {
        const REAL h = dy_of(p, g, i, k) * factor_of(p, g->weight, i, k);
        REAL dx = rstd * (h - x_of(p, g, i, k) * rstd * m); /* [dx] */
        if (g->dsum)                                        /* [add_rms_norm] */
            dx += (REAL)load(g->dsum, p->dtype, place(p, g->dsum_stride, i, k));
        if (g->dx)
            store(g->dx, p->dtype, place(p, g->dx_stride, i, k), g->accumulate_dx, (double)dx);
        if (g->dbranch)
            store(g->dbranch, p->y_dtype, place(p, g->dbranch_stride, i, k), g->accumulate_dbranch,
                  (double)dx);
    }
}

/* Column k of dweight and dbias, of the rows first, first + heads, ... */
static void dweight_column(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g,
                           int64_t first, int64_t k)
{
    const int64_t heads = rms_norm_weight_rows(p), at = first * p->cols + k;
    double dw = 0, db = 0;
    for (int64_t i = first; i < p->rows; i += heads) { /* [dw sum] */
        const REAL dy = dy_of(p, g, i, k), rstd = ((const REAL *)g->rstd)[i];
        dw += (double)(dy * xhat_of(p, x_of(p, g, i, k), rstd)); /* [dw] */
        db += (double)dy;                                        /* [db] */
    }
    if (g->dweight) store(g->dweight, p->dweight_dtype, at, g->accumulate_dweight, dw);
    if (g->dbias) store(g->dbias, p->dweight_dtype, at, g->accumulate_dbias, db);
}

void GD_REAL_NAME(rms_norm_plain_backward)(const gd_rms_norm_problem *p,
                                           const gd_rms_norm_gradients *g, int threads)
{
    const int64_t sums = g->dweight || g->dbias ? rms_norm_weight_rows(p) * p->cols : 0;
    threads = gd_threads_for(threads, p->rows * p->cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < sums; at++) /* first, since dx may overwrite dy */
        dweight_column(p, g, at / p->cols, at % p->cols);
    const int64_t rows = g->dx || g->dbranch ? p->rows : 0;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) dx_row(p, g, i);
}
