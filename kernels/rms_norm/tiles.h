/* tiles.h - shared by the forward and the backward of rms_norm_cpu.c: tiles, some columns of a row
 * as REAL, and how they are read and written. */
#ifndef GRADUS_RMS_NORM_TILES_H
#define GRADUS_RMS_NORM_TILES_H

#include "copy/convert.h"
#include "rms_norm/rms_norm_cpu.h"

enum {
    TILE = 256,    /* columns; so that some tiles fit into the first level cache together */
    STRETCH = 512, /* columns summed up at a time */
    REAL_DTYPE = sizeof(REAL) == sizeof(double) ? GD_FLOAT64 : GD_FLOAT32
};

/* ---- Where things lie --------------------------------------------------------------------- */

/* Element j of a row. */
static inline void *place(const rms_rows *x, int64_t row, int64_t j)
{
    int64_t at = x->ndim == 0 ? row * x->stride : 0;
    for (int d = x->ndim - 1; d >= 0; d--) {
        at += (d > 0 ? row % x->shape[d] : row) * x->strides[d];
        row = d > 0 ? row / x->shape[d] : 0;
    }
    return (char *)x->data + (at + j) * x->size;
}

static inline int64_t head_of(int64_t heads, int64_t row)
{
    return heads == 1 ? 0 : row % heads;
}

/* Pass 0 and pass 1 over a row, at column j, each call in a part of one half of another row. */
static inline void prefetch_half(const rms_rows *x, int64_t row, int64_t N, int64_t j, int64_t n,
                                 int half)
{
    gd_prefetch(place(x, row, (half * N + j) / 2), n * x->size / 2);
}

/* ---- Tiles that come ---------------------------------------------------------------------- */

/* n numbers of another dtype, widened into `buffer`; of REAL's, where they lie. */
static inline const REAL *widened(const void *data, gd_dtype dtype, int64_t n, REAL *buffer)
{
    if (dtype == (gd_dtype)REAL_DTYPE) return data;
    gd_find_converter((gd_dtype)REAL_DTYPE, dtype)(buffer, 1, data, 1, n);
    return buffer;
}

static inline const REAL *get_tile(const rms_rows *x, int64_t row, int64_t j, int64_t n,
                                   REAL *buffer)
{
    return widened(place(x, row, j), x->dtype, n, buffer);
}

/* The tile of a parameter [heads, N] that row `row` of x meets. */
static inline const REAL *param_tile(const rms_param *p, int64_t row, int64_t N, int64_t j,
                                     int64_t n, REAL *buffer)
{
    int64_t at = head_of(p->heads, row) * N + j;
    return widened((char *)p->data + at * p->size, p->dtype, n, buffer);
}

/* offset + weight, the factor of xhat; ones without a weight. */
static inline const REAL *factor_tile(const rms_param *weight, double offset, int64_t row,
                                      int64_t N, int64_t j, int64_t n, REAL *buffer)
{
    const REAL *w = weight->data ? param_tile(weight, row, N, j, n, buffer) : NULL;
    if (w && offset == 0) return w;
    for (int64_t k = 0; k < n; k++) buffer[k] = w ? (REAL)offset + w[k] : 1;
    return buffer;
}

/* ---- Tiles that leave --------------------------------------------------------------------- */

/* Whether rounding to dtype changes anything. */
static inline bool rounds_tile(gd_dtype dtype)
{
    return dtype == GD_BFLOAT16 || dtype == GD_FLOAT16 ||
           (dtype == GD_FLOAT32 && sizeof(REAL) > sizeof(float));
}

/* Rounds at most STRETCH numbers to what a narrower dtype can hold. */
static inline void round_tile(REAL *tile, int64_t n, gd_dtype dtype)
{
    float narrow[STRETCH];
    if (!rounds_tile(dtype)) return;
    gd_find_converter(dtype, (gd_dtype)REAL_DTYPE)(narrow, 1, tile, 1, n);
    gd_find_converter((gd_dtype)REAL_DTYPE, dtype)(tile, 1, narrow, 1, n);
}

/* A tile of results goes to its place. */
static inline void put_tile(const rms_rows *to, int64_t row, int64_t j, const REAL *tile, int64_t n)
{
    REAL sum[TILE];
    double narrow[TILE]; /* of any dtype */
    void *at = place(to, row, j);
    const void *from = tile;
    if (to->how == ADD) {
        const REAL *before = widened(at, to->dtype, n, sum);
        for (int64_t k = 0; k < n; k++) sum[k] = before[k] + tile[k];
        from = sum;
    }
    if (to->dtype != (gd_dtype)REAL_DTYPE) {
        gd_find_converter(to->dtype, (gd_dtype)REAL_DTYPE)(narrow, 1, from, 1, n);
        from = narrow;
    }
    if (to->how == STREAM)
        gd_stream(at, from, n * to->size);
    else
        memcpy(at, from, (size_t)(n * to->size));
}

#endif
