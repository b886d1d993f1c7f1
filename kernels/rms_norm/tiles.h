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

/* The tensors of a call. x is what is normalised: with a residual the sum, of that and `branch`. */
typedef struct rms_work {
    const gd_rms_norm_problem *p;
    rms_matrix x, branch, residual, y, weight, bias, dy, dsum, dx, dbranch, dweight, dbias;
    REAL *rstd;
    double *partial;      /* [pieces, 2, sums]: of dweight, and of dbias */
    int64_t pieces, sums; /* of the rows; of dweight, its columns */
} rms_work;

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

/* Rows of v; and weight and bias, or their gradients. */
#define RMS_ROWS(name, dtype) rms_matrix_of(p, v->name, dtype, v->name##_stride, rms_norm_heads(p))
#define RMS_PARAM(name, dtype) rms_matrix_of(p, v->name, dtype, 0, rms_norm_weight_rows(p))

/* One that is written; in_place: over what was just read. */
static inline rms_matrix rms_result(const gd_rms_norm_problem *p, rms_matrix y, bool add,
                                    bool in_place)
{
    y.add = add;
    y.past_caches = !add && !in_place && p->rows * p->cols * y.size >= GD_STREAM_FROM;
    return y;
}

static inline rms_work rms_forward_of(const gd_rms_norm_problem *p, const gd_rms_norm_values *v)
{
    const rms_matrix branch = RMS_ROWS(x, v->residual ? p->y_dtype : p->dtype);
    return (rms_work){.p = p,
                      .x = v->residual ? RMS_ROWS(sum, p->dtype) : branch,
                      .branch = branch,
                      .residual = RMS_ROWS(residual, p->dtype),
                      .y = rms_result(p, RMS_ROWS(y, p->y_dtype), false, v->y == v->x),
                      .weight = RMS_PARAM(weight, p->weight_dtype),
                      .bias = RMS_PARAM(bias, p->weight_dtype),
                      .rstd = v->rstd};
}

static inline rms_work rms_backward_of(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *v)
{
    const bool over = v->dx == v->dy || v->dx == v->dsum;
    rms_work b = {.p = p,
                  .x = RMS_ROWS(x, p->dtype),
                  .dy = RMS_ROWS(dy, p->y_dtype),
                  .dsum = RMS_ROWS(dsum, p->dtype),
                  .weight = RMS_PARAM(weight, p->weight_dtype),
                  .dx = rms_result(p, RMS_ROWS(dx, p->dtype), v->accumulate_dx, over),
                  .dbranch = rms_result(p, RMS_ROWS(dbranch, p->y_dtype), v->accumulate_dbranch,
                                        v->dbranch == v->dy),
                  .dweight = RMS_PARAM(dweight, p->dweight_dtype),
                  .dbias = RMS_PARAM(dbias, p->dweight_dtype),
                  .rstd = (REAL *)(uintptr_t)v->rstd,
                  .partial = v->workspace,
                  .pieces = gd_divide_up(p->rows, rms_norm_piece_rows(p)),
                  .sums = rms_norm_weight_rows(p) * p->cols};
    b.dweight.add = v->accumulate_dweight;
    b.dbias.add = v->accumulate_dbias;
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
static inline const REAL *rms_w_in(const rms_work *v, int64_t row, int64_t j, int64_t n,
                                   REAL *buffer)
{
    const REAL *w = v->weight.data ? rms_row_in(&v->weight, row, j, n, buffer) : NULL;
    const REAL offset = (REAL)v->p->offset;
    if (w && offset == 0) return w;
    for (int64_t k = 0; k < n; k++) buffer[k] = w ? offset + w[k] : 1;
    return buffer;
}

/* At most TILE results go to their row. */
static inline void rms_row_out(const rms_matrix *to, int64_t row, int64_t j, const REAL *tile,
                               int64_t n)
{
    REAL sum[TILE];
    double narrow[TILE]; /* of any dtype */
    void *at = rms_at(to, row, j);
    const REAL *before = to->add ? rms_row_in(to, row, j, n, sum) : NULL;
    for (int64_t k = 0; before && k < n; k++) sum[k] = before[k] + tile[k];
    const void *from = before ? sum : tile;
    if (to->dtype != (gd_dtype)REAL_DTYPE) {
        gd_find_converter(to->dtype, (gd_dtype)REAL_DTYPE)(narrow, 1, from, 1, n);
        from = narrow;
    }
    if (to->past_caches)
        gd_stream(at, from, n * to->size);
    else
        memcpy(at, from, (size_t)(n * to->size));
}

/* At most TILE numbers whose product with rstd is xhat: x; or if xhat is rounded to y's dtype
 * before the weight, that, with 1 for rstd. */
static inline const REAL *rms_rounded(const gd_rms_norm_problem *p, const REAL *x, REAL *rstd,
                                      REAL *buffer, int64_t n)
{
    double narrow[TILE]; /* of any dtype */
    if (!p->round_before_weight || p->y_dtype == (gd_dtype)REAL_DTYPE) return x;
    for (int64_t k = 0; k < n; k++) buffer[k] = rms_norm_xhat(x[k], *rstd);
    gd_find_converter(p->y_dtype, (gd_dtype)REAL_DTYPE)(narrow, 1, buffer, 1, n);
    gd_find_converter((gd_dtype)REAL_DTYPE, p->y_dtype)(buffer, 1, narrow, 1, n);
    *rstd = 1;
    return buffer;
}

#endif
