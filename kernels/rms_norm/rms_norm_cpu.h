/* rms_norm_cpu.h - the interface of the CPU kernels, for the ops (rms_norm_cpu.c) and for the
 * functions of gradus/kernels.h (rms_norm_kernels.c). */
#ifndef GRADUS_RMS_NORM_CPU_H
#define GRADUS_RMS_NORM_CPU_H

#include "kernel.h"
#include "stream.h"

/* How results are stored: by ordinary stores, past the caches (stream.h), or added to the old
 * values. */
typedef enum rms_leave { STORE, STREAM, ADD } rms_leave;

/* M rows of N numbers of any real dtype, each one packed. */
typedef struct rms_rows {
    void *data; /* NULL: absent */
    gd_dtype dtype;
    int64_t size;   /* of an element */
    int64_t stride; /* row i begins at element i * stride, */
    int ndim;       /* or, where this is not 0, at its place in these dimensions */
    int64_t shape[GD_MAX_DIMS], strides[GD_MAX_DIMS];
    rms_leave how; /* of what is written */
} rms_rows;

/* [heads, N], packed, of any real dtype: a weight or its gradient. Row i of x meets row i mod heads
 * of it. */
typedef struct rms_param {
    void *data; /* NULL: absent */
    gd_dtype dtype;
    int64_t size; /* of an element */
    int64_t heads;
    bool accumulate; /* a gradient: add to what is there */
} rms_param;

typedef struct rms_forward {
    int64_t M, N;
    double eps, offset;
    gd_dtype round_xhat, round_sum; /* as in gd_rms_norm_args */
    rms_rows x, residual, sum, y;   /* residual and sum: absent in rms_norm */
    void *rstd;                     /* [M] in the type that is computed in, or NULL */
    rms_param weight, bias;
} rms_forward;

typedef struct rms_backward {
    int64_t M, N;
    double offset;
    gd_dtype round_xhat;
    rms_rows x; /* what was normalised: x, or the sum */
    rms_rows dy, dsum;
    rms_rows dx, dresidual; /* the same numbers */
    const void *rstd;
    rms_param weight, dw, db;
    int64_t piece_rows; /* from rms_piece_rows */
    double *partials;   /* [rms_pieces, heads of dw and of db, N], of rms_partials_bytes */
} rms_backward;

/* dw and db are summed up in at most 64 pieces of the rows, of at least 8 rows each. The shapes
 * alone decide which (and not which gradients are wanted). A piece has all heads equally often. */
static inline int64_t rms_piece_rows(int64_t M, int64_t heads)
{
    return heads * gd_max64(8, gd_divide_up(M / heads, 64));
}

static inline int64_t rms_pieces(int64_t M, int64_t piece_rows)
{
    return gd_divide_up(M, piece_rows);
}

/* `heads`: those of dw and those of db together. */
static inline size_t rms_partials_bytes(int64_t M, int64_t N, int64_t piece_rows, int64_t heads)
{
    return (size_t)(rms_pieces(M, piece_rows) * heads * N) * sizeof(double);
}

/* How `count` results reach their place; in_place: they overwrite what was just read. */
static inline rms_leave rms_how(const rms_rows *to, int64_t count, bool accumulate, bool in_place)
{
    if (accumulate) return ADD;
    return count * to->size >= GD_STREAM_FROM && !in_place ? STREAM : STORE;
}

/* The kernels, computing in float and in double. M and N are not 0. */
void rms_norm_rows_forward_f32(const rms_forward *f, int threads);
void rms_norm_rows_forward_f64(const rms_forward *f, int threads);

/* M may be 0. */
void rms_norm_rows_backward_f32(const rms_backward *b, int threads);
void rms_norm_rows_backward_f64(const rms_backward *b, int threads);

#endif
