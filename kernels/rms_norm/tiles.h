/* tiles.h - the rows of rms_norm_cpu.c: where they lie, and tiles, some columns of a row as REAL, and
 * how they are read and written. */
#ifndef GRADUS_RMS_NORM_TILES_H
#define GRADUS_RMS_NORM_TILES_H

#include "copy/convert.h"
#include "kernel.h"
#include "rms_norm/rms_norm.h"
#include "stream.h"

enum {
    TILE = 256,    /* columns; so that some tiles fit into the first level cache together */
    STRETCH = 512, /* columns summed up at a time */
    REAL_DTYPE = sizeof(REAL) == sizeof(double) ? GD_FLOAT64 : GD_FLOAT32
};

/* A tensor [M, N] of the problem. */
typedef struct rms_matrix {
    void *data; /* NULL: absent */
    gd_dtype dtype;
    int64_t size;          /* bytes of an element */
    int64_t stride, heads; /* as in kernels.h */
    bool add;              /* results are added to what is there, or ... */
    bool past_caches;      /* ... stored past the caches (stream.h) */
} rms_matrix;

/* What is read is not written. */
static inline rms_matrix matrix_of(const gd_rms_norm_problem *p, const void *data, gd_dtype dtype,
                                   int64_t stride)
{
    const int64_t heads = stride == p->cols * p->heads ? 1 : rms_norm_heads(p);
    return (rms_matrix){.data = (void *)(uintptr_t)data,
                        .dtype = dtype,
                        .size = (int64_t)gd_dtype_size(dtype),
                        .stride = heads > 1 ? stride : stride / rms_norm_heads(p),
                        .heads = heads};
}

/* One that is written; in_place: over what was just read. */
static inline rms_matrix result_of(const gd_rms_norm_problem *p, void *data, gd_dtype dtype,
                                   int64_t stride, bool add, bool in_place)
{
    rms_matrix y = matrix_of(p, data, dtype, stride);
    y.add = add;
    y.past_caches = !add && !in_place && p->rows * p->cols * y.size >= GD_STREAM_FROM;
    return y;
}

/* ---- Where things lie --------------------------------------------------------------------- */

/* Element j of a row. */
static inline void *place(const gd_rms_norm_problem *p, const rms_matrix *x, int64_t row, int64_t j)
{
    const int64_t at =
        x->heads == 1 ? row * x->stride : row / x->heads * x->stride + row % x->heads * p->cols;
    return (char *)x->data + (at + j) * x->size;
}

/* Where the weights of a row begin, in numbers. */
static inline int64_t weight_place(const gd_rms_norm_problem *p, int64_t row)
{
    return p->weight_per_head ? row % rms_norm_heads(p) * p->cols : 0;
}

/* Pass 0 and pass 1 over a row, at column j, each call in a part of one half of another row. */
static inline void prefetch_half(const gd_rms_norm_problem *p, const rms_matrix *x, int64_t row,
                                 int64_t j, int64_t n, int half)
{
    gd_prefetch(place(p, x, row, (half * p->cols + j) / 2), n * x->size / 2);
}

/* ---- Tiles that come ---------------------------------------------------------------------- */

/* n numbers of another dtype, widened into `buffer`; of REAL's, where they lie. */
static inline const REAL *widened(const void *data, gd_dtype dtype, int64_t n, REAL *buffer)
{
    if (dtype == (gd_dtype)REAL_DTYPE) return data;
    gd_find_converter((gd_dtype)REAL_DTYPE, dtype)(buffer, 1, data, 1, n);
    return buffer;
}

static inline const REAL *get_tile(const gd_rms_norm_problem *p, const rms_matrix *x, int64_t row,
                                   int64_t j, int64_t n, REAL *buffer)
{
    return widened(place(p, x, row, j), x->dtype, n, buffer);
}

/* The tile of weight or bias that a row uses. */
static inline const REAL *weight_tile(const gd_rms_norm_problem *p, const void *weight, int64_t row,
                                      int64_t j, int64_t n, REAL *buffer)
{
    const int64_t at = weight_place(p, row) + j;
    return widened((const char *)weight + at * (int64_t)gd_dtype_size(p->weight_dtype),
                   p->weight_dtype, n, buffer);
}

/* offset + weight, the factor of xhat; ones without a weight. */
static inline const REAL *factor_tile(const gd_rms_norm_problem *p, const void *weight, int64_t row,
                                      int64_t j, int64_t n, REAL *buffer)
{
    const REAL *w = weight ? weight_tile(p, weight, row, j, n, buffer) : NULL;
    if (w && p->offset == 0) return w;
    for (int64_t k = 0; k < n; k++) buffer[k] = w ? (REAL)p->offset + w[k] : 1;
    return buffer;
}

/* ---- Tiles that leave --------------------------------------------------------------------- */

/* Whether xhat is rounded before it meets the weight. */
static inline bool rounds(const gd_rms_norm_problem *p)
{
    return p->round_before_weight && p->y_dtype != (gd_dtype)REAL_DTYPE;
}

/* Rounds at most TILE numbers to what a narrower dtype can hold. */
static inline void round_tile(REAL *tile, int64_t n, gd_dtype dtype)
{
    float narrow[TILE];
    gd_find_converter(dtype, (gd_dtype)REAL_DTYPE)(narrow, 1, tile, 1, n);
    gd_find_converter((gd_dtype)REAL_DTYPE, dtype)(tile, 1, narrow, 1, n);
}

/* A tile of results goes to its place. */
static inline void put_tile(const gd_rms_norm_problem *p, const rms_matrix *to, int64_t row,
                            int64_t j, const REAL *tile, int64_t n)
{
    REAL sum[TILE];
    double narrow[TILE]; /* of any dtype */
    void *at = place(p, to, row, j);
    const void *from = tile;
    if (to->add) {
        const REAL *before = widened(at, to->dtype, n, sum);
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

#endif
