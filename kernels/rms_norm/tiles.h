/* tiles.h - the tensors of a problem for the CPU kernels: where a row lies, and how some columns of
 * it are read and written as REAL, whatever their dtype. */
#ifndef GRADUS_RMS_NORM_TILES_H
#define GRADUS_RMS_NORM_TILES_H

#include "copy/convert.h"
#include "rms_norm/formula.h"
#include "rms_norm/rms_norm.h"
#include "stream.h"

enum {
    TILE = 256,    /* columns; so that some tiles fit into the first level cache together */
    STRETCH = 512, /* columns summed up at a time */
    REAL_DTYPE = sizeof(REAL) == sizeof(double) ? GD_FLOAT64 : GD_FLOAT32
};

/* A tensor [M, N], or [1, N] or [H, N] with stride 0: row i of M. */
typedef struct rms_matrix {
    char *data; /* NULL: absent */
    gd_dtype dtype;
    int64_t size;                /* bytes of an element */
    int64_t stride, heads, cols; /* as in kernels.h */
    bool add;                    /* results are added to what is there, or ... */
    bool past_caches;            /* ... stored past the caches (stream.h) */
} rms_matrix;

typedef struct rms_forward {
    const gd_rms_norm_problem *p;
    rms_matrix x, residual, sum, y, weight, bias;
    rms_matrix normalised; /* x, or the sum */
    REAL *rstd;
    int threads;
} rms_forward;

typedef struct rms_backward {
    const gd_rms_norm_problem *p;
    rms_matrix x, dy, dsum, weight, dx, dbranch, dweight, dbias;
    const REAL *rstd;
    double *partial; /* [pieces, 2, sums]: of dweight, and of dbias */
    int64_t pieces, sums;
} rms_backward;

/* What is read is not written. */
static inline rms_matrix rms_matrix_of(const gd_rms_norm_problem *p, const void *data,
                                       gd_dtype dtype, int64_t stride, int64_t heads)
{
    const bool even = stride == heads * p->cols; /* then no division is needed */
    return (rms_matrix){.data = (char *)(uintptr_t)data,
                        .dtype = dtype,
                        .size = (int64_t)gd_dtype_size(dtype),
                        .stride = even ? p->cols : stride,
                        .heads = even ? 1 : heads,
                        .cols = p->cols};
}

/* One that is written; in_place: over what was just read. */
static inline rms_matrix rms_result_of(const gd_rms_norm_problem *p, void *data, gd_dtype dtype,
                                       int64_t stride, bool add, bool in_place)
{
    rms_matrix y = rms_matrix_of(p, data, dtype, stride, rms_norm_heads(p));
    y.add = add;
    y.past_caches = !add && !in_place && p->rows * p->cols * y.size >= GD_STREAM_FROM;
    return y;
}

static inline rms_forward rms_forward_of(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                         int threads)
{
    const int64_t heads = rms_norm_heads(p), of_weight = rms_norm_weight_rows(p);
    rms_forward f = {
        .p = p,
        .x = rms_matrix_of(p, v->x, v->residual ? p->y_dtype : p->dtype, v->x_stride, heads),
        .residual = rms_matrix_of(p, v->residual, p->dtype, v->residual_stride, heads),
        .sum = rms_matrix_of(p, v->residual ? v->sum : NULL, p->dtype, v->sum_stride, heads),
        .y = rms_result_of(p, v->y, p->y_dtype, v->y_stride, false, v->y == v->x),
        .weight = rms_matrix_of(p, v->weight, p->weight_dtype, 0, of_weight),
        .bias = rms_matrix_of(p, v->bias, p->weight_dtype, 0, of_weight),
        .rstd = v->rstd,
        .threads = gd_threads_for(threads, p->rows * p->cols)};
    f.normalised = v->residual ? f.sum : f.x;
    return f;
}

static inline rms_backward rms_backward_of(const gd_rms_norm_problem *p,
                                           const gd_rms_norm_gradients *g)
{
    const int64_t heads = rms_norm_heads(p), of_weight = rms_norm_weight_rows(p);
    const bool in_place = g->dx == g->dy || g->dx == g->dsum;
    rms_backward b = {
        .p = p,
        .x = rms_matrix_of(p, g->x, p->dtype, g->x_stride, heads),
        .dy = rms_matrix_of(p, g->dy, p->y_dtype, g->dy_stride, heads),
        .dsum = rms_matrix_of(p, g->dsum, p->dtype, g->dsum_stride, heads),
        .weight = rms_matrix_of(p, g->weight, p->weight_dtype, 0, of_weight),
        .dx = rms_result_of(p, g->dx, p->dtype, g->dx_stride, g->accumulate_dx, in_place),
        .dbranch = rms_result_of(p, g->dbranch, p->y_dtype, g->dbranch_stride,
                                 g->accumulate_dbranch, g->dbranch == g->dy),
        .dweight = rms_matrix_of(p, g->dweight, p->dweight_dtype, 0, of_weight),
        .dbias = rms_matrix_of(p, g->dbias, p->dweight_dtype, 0, of_weight),
        .rstd = g->rstd,
        .partial = g->workspace,
        .pieces = gd_divide_up(p->rows, rms_norm_piece_rows(p)),
        .sums = of_weight * p->cols};
    b.dweight.add = g->accumulate_dweight;
    b.dbias.add = g->accumulate_dbias;
    return b;
}

/* Element j of a row. */
static inline void *rms_at(const rms_matrix *t, int64_t row, int64_t j)
{
    const int64_t at =
        t->heads == 1 ? row * t->stride : row / t->heads * t->stride + row % t->heads * t->cols;
    return t->data + (at + j) * t->size;
}

/* Numbers j to j + n of a row: where they are, or widened into `buffer`. */
static inline const REAL *rms_row_in(const rms_matrix *t, int64_t row, int64_t j, int64_t n,
                                     REAL *buffer)
{
    if (t->dtype == (gd_dtype)REAL_DTYPE) return rms_at(t, row, j);
    gd_find_converter((gd_dtype)REAL_DTYPE, t->dtype)(buffer, 1, rms_at(t, row, j), 1, n);
    return buffer;
}

/* The same of the factor w: offset + weight, or ones without a weight. */
static inline const REAL *rms_factor_in(const rms_matrix *weight, double offset, int64_t row,
                                        int64_t j, int64_t n, REAL *buffer)
{
    const REAL *w = weight->data ? rms_row_in(weight, row, j, n, buffer) : NULL;
    if (w && offset == 0) return w;
    for (int64_t k = 0; k < n; k++) buffer[k] = w ? (REAL)offset + w[k] : 1;
    return buffer;
}

/* At most TILE results go to their row. */
static inline void rms_row_out(const rms_matrix *to, int64_t row, int64_t j, const REAL *tile,
                               int64_t n)
{
    REAL sum[TILE];
    double narrow[TILE]; /* of any dtype */
    void *at = rms_at(to, row, j);
    const void *from = tile;
    if (to->add) {
        const REAL *before = rms_row_in(to, row, j, n, sum);
        for (int64_t k = 0; k < n; k++) sum[k] = before[k] + tile[k];
        from = sum;
    }
    if (to->dtype != (gd_dtype)REAL_DTYPE) {
        gd_find_converter(to->dtype, (gd_dtype)REAL_DTYPE)(narrow, 1, from, 1, n);
        from = narrow;
    }
    if (to->past_caches)
        gd_stream(at, from, n * to->size);
    else
        memcpy(at, from, (size_t)(n * to->size));
}

/* Whether xhat is rounded to y's dtype before it is multiplied by the weight. */
static inline bool rms_rounds(const gd_rms_norm_problem *p)
{
    return p->round_before_weight && p->y_dtype != (gd_dtype)REAL_DTYPE;
}

/* xhat of at most TILE numbers x, rounded. */
static inline void rms_rounded_xhat(REAL *xhat, const REAL *x, REAL rstd, gd_dtype dtype, int64_t n)
{
    double narrow[TILE]; /* of any dtype */
    for (int64_t k = 0; k < n; k++) xhat[k] = rms_norm_xhat(x[k], rstd);
    gd_find_converter(dtype, (gd_dtype)REAL_DTYPE)(narrow, 1, xhat, 1, n);
    gd_find_converter((gd_dtype)REAL_DTYPE, dtype)(xhat, 1, narrow, 1, n);
}

#endif
