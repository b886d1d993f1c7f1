/* tiles.h - what the forward and the backward of rms_norm_cpu.c share: where the rows of x and of
 * the parameters lie, and how tiles of results are rounded and leave. Nothing here knows what is
 * computed. */
#ifndef GRADUS_RMS_NORM_TILES_H
#define GRADUS_RMS_NORM_TILES_H

#include "copy/convert.h"
#include "kernel.h"
#include "stream.h"

enum { TILE = 128 }; /* columns; so that some tiles fit into the first level cache together */

/* ---- Rows and parameters ------------------------------------------------------------------ */

/* The rows of x [..., N], which may lie anywhere, each one packed. */
typedef struct rows {
    const REAL *data;
    const int64_t *shape, *strides; /* of the dimensions before the last */
    int ndim;                       /* how many; 0: row i is at i * N */
    int64_t N;
} rows;

static inline const REAL *row_at(const rows *x, int64_t row)
{
    if (x->ndim == 0) return x->data + row * x->N;
    const REAL *at = x->data;
    for (int d = x->ndim - 1; d >= 0; d--) {
        at += row % x->shape[d] * x->strides[d];
        row /= x->shape[d];
    }
    return at;
}

/* The elements of t side by side: its own memory, or a copy. NULL: out of memory. */
static inline const REAL *packed(const gd_call *call, const gd_tensor *t)
{
    int64_t strides[GD_MAX_DIMS];
    return gd_tensor_is_contiguous(t) ? gd_tensor_data(t) : gd_packed_copy(call, t, strides);
}

static inline bool open_rows(const gd_call *call, const gd_tensor *t, rows *x)
{
    int last = gd_tensor_ndim(t) - 1;
    *x = (rows){.data = gd_tensor_data(t), .N = gd_tensor_dim(t, -1)};
    if (gd_tensor_is_contiguous(t)) return true;
    if (gd_tensor_strides(t)[last] == 1 || x->N == 1) {
        x->ndim = last;
        x->shape = gd_tensor_shape(t);
        x->strides = gd_tensor_strides(t);
        return true;
    }
    x->data = packed(call, t);
    return x->data != NULL;
}

/* A weight or bias [heads, N]: row i of x meets row i mod heads of it. */
typedef struct param {
    const REAL *data; /* NULL: there is none */
    int64_t heads;
} param;

static inline int64_t heads_of(const gd_tensor *weight)
{
    return weight ? gd_row_count(weight) : 1;
}

static inline int64_t head_of(int64_t heads, int64_t row)
{
    return heads == 1 ? 0 : row % heads;
}

/* What row `row` of x meets; NULL if there is none. */
static inline const REAL *param_row(const param *p, int64_t row, int64_t N)
{
    return p->data ? p->data + head_of(p->heads, row) * N : NULL;
}

/* offset + weight, which is what xhat is multiplied with; ones where there is no weight. */
static inline bool open_gain(const gd_call *call, const gd_tensor *weight, double offset, int64_t N,
                             param *gain)
{
    gain->heads = heads_of(weight);
    const REAL *w = weight ? packed(call, weight) : NULL;
    gain->data = w;
    if (weight && (!w || offset == 0)) return w != NULL;
    REAL *sum = gd_call_scratch(call, (size_t)(gain->heads * N) * sizeof(REAL));
    for (int64_t j = 0; sum && j < gain->heads * N; j++) sum[j] = w ? (REAL)offset + w[j] : 1;
    gain->data = sum;
    return sum != NULL;
}

static inline bool open_bias(const gd_call *call, const gd_tensor *bias, param *b)
{
    *b = (param){.data = bias ? packed(call, bias) : NULL, .heads = heads_of(bias)};
    return !bias || b->data;
}

/* ---- Tiles -------------------------------------------------------------------------------- */

/* Whether rounding to dtype changes anything. */
static inline bool rounds_tile(gd_dtype dtype)
{
    return dtype == GD_BFLOAT16 || dtype == GD_FLOAT16 ||
           (dtype == GD_FLOAT32 && sizeof(REAL) > sizeof(float));
}

/* Rounds n numbers to what a narrower dtype can hold. */
static inline void round_tile(REAL *tile, int64_t n, gd_dtype dtype)
{
    bool wide = sizeof(REAL) > sizeof(float);
    if (dtype == GD_BFLOAT16) {
        for (int64_t k = 0; k < n; k++)
            tile[k] = (REAL)gd_bf16_to_f32(wide ? gd_f64_to_bf16((double)tile[k])
                                                : gd_f32_to_bf16((float)tile[k]));
    } else if (dtype == GD_FLOAT16) {
        for (int64_t k = 0; k < n; k++)
            tile[k] = (REAL)gd_f16_to_f32(wide ? gd_f64_to_f16((double)tile[k])
                                               : gd_f32_to_f16((float)tile[k]));
    } else if (dtype == GD_FLOAT32 && wide) {
        for (int64_t k = 0; k < n; k++) tile[k] = (REAL)(float)tile[k];
    }
}

/* How a tile of results reaches its place. */
typedef enum leave { STORE, STREAM, ADD } leave;

static inline void put_tile(REAL *to, const REAL *tile, int64_t n, leave how)
{
    if (how == STREAM) {
        gd_stream(to, tile, n * (int64_t)sizeof(REAL));
    } else if (how == STORE) {
        memcpy(to, tile, (size_t)n * sizeof(REAL));
    } else {
        for (int64_t k = 0; k < n; k++) to[k] += tile[k];
    }
}

static inline leave how_to_store(int64_t count)
{
    return count * (int64_t)sizeof(REAL) >= GD_STREAM_FROM ? STREAM : STORE;
}

/* Pass 0 and pass 1 over a row, at column j, each call in a part of one half of another row. */
static inline void prefetch_half(const REAL *row, int64_t N, int64_t j, int64_t n, int half)
{
    gd_prefetch(row + (half * N + j) / 2, n * (int64_t)sizeof(REAL) / 2);
}

#endif
