/* tiles.h - shared by the forward and the backward of attention: the sizes of their tiles, and
 * access to the heads of their inputs.
 *
 * Both store only the scores of one tile of KEYS keys, which stays in the cache. The scores
 * of a tile are a small matrix product (kernels/matmul/tile.h) of queries with the keys packed as
 * columns; the weighted sum of the values is another. Queries go in blocks of BLOCK
 * rows; of a causal block only the columns that its last row sees are computed, rounded up to
 * BLOCK, which saves almost half of the work.
 *
 * The scale is multiplied into the packed keys. Forward and backward then get the scores by the
 * same sums, to the last bit, and exp(score - lse) is never more than 1, for scores of any size.
 */
#ifndef GRADUS_ATTENTION_TILES_H
#define GRADUS_ATTENTION_TILES_H

#include "attention/attention.h"
#include "attention/dropout.h"
#include "inline_exp.h"
#include "matmul/tile.h"
#include "random/philox.h"

enum {
    KEYS = 96,   /* in a tile */
    BLOCK = 16,  /* query rows; a multiple of LANES */
    QUERIES = 64 /* of a tile in the backward */
};

/* ---- Dropout ------------------------------------------------------------------------------ */

/* keep[n] = 1 / (1 - p) for the weights of query t and keys s .. s + n that stay, 0 for the others;
 * s and n are multiples of 16. */
static inline void dropout_row(REAL *keep, const attention_dropout *dropout, int64_t head,
                               int64_t t, int64_t s, int64_t n)
{
    const gd_random_state start = attention_dropout_start(dropout);
    const REAL kept = (REAL)dropout->scale;
    for (int64_t j = 0; j < n; j += 16, keep += 16) {
        uint32_t words[4 * 4];
        gd_philox_blocks(start.seed, 0, attention_dropout_block(dropout, start, head, t, s + j), 4,
                         words);
        for (int i = 0; i < 16; i++) {
            uint32_t word = words[4 * (i % 8 / 2) + 2 * (t / 8 % 2) + i / 8];
            keep[i] = (word >> 16 * (i % 2) & 0xffff) < dropout->threshold ? 0 : kept;
        }
    }
}

/* ---- Masks -------------------------------------------------------------------------------- */

/* What a query sees besides what is causal: a mask or bias, broadcast to [B, H, T, S] by strides of
 * 0, and a window. */
typedef struct attention_mask {
    const int32_t *seen; /* not 0: it sees the key; or NULL */
    const REAL *bias;    /* added to the score; or NULL */
    int64_t stride[4], window;
    bool any;
} attention_mask;

static inline attention_mask attention_mask_of(const gd_call *call)
{
    const gd_tensor *t = call->input[3];
    attention_mask m = {.window = ((const attention_args *)call->args)->window};
    m.any = t || m.window;
    if (!t) return m;
    if (gd_tensor_dtype(t) == GD_INT32)
        m.seen = gd_data(t);
    else
        m.bias = gd_data(t);
    const int ndim = gd_tensor_ndim(t);
    for (int d = 0; d < ndim; d++)
        m.stride[4 - ndim + d] = gd_tensor_shape(t)[d] == 1 ? 0 : gd_tensor_strides(t)[d];
    return m;
}

/* Adds the mask to the scores of query t and keys s .. s + n, of which the first `first` lie before
 * the window; a key that is not seen gets -inf. False if none is left. */
static inline bool mask_row(REAL *score, const attention_mask *m, int64_t b, int64_t h, int64_t t,
                            int64_t s, int64_t first, int64_t n)
{
    const int64_t at = b * m->stride[0] + h * m->stride[1] + t * m->stride[2], step = m->stride[3];
    bool left = false;
    for (int64_t j = 0; j < n; j++) {
        if (m->bias) score[j] += m->bias[at + (s + j) * step];
        if (j < first || (m->seen && !m->seen[at + (s + j) * step])) score[j] = -(REAL)INFINITY;
        left = left || score[j] != -(REAL)INFINITY;
    }
    return left;
}

/* The gradient of n scores is that of what was added to them. */
static inline void add_dbias(REAL *dbias, const REAL *dscore, int64_t n)
{
    for (int64_t j = 0; j < n; j++) dbias[j] += dscore[j];
}

/* ---- Inputs ------------------------------------------------------------------------------- */

/* [B, rows, heads, columns], packed along the last dimension. */
typedef struct heads {
    REAL *data;
    int64_t batch, row, head; /* strides */
} heads;

static inline REAL *head_of(const heads *x, int64_t b, int64_t row, int64_t head)
{
    return x->data + b * x->batch + row * x->row + head * x->head;
}

static inline heads packed_heads(const gd_tensor *t)
{
    const int64_t *shape = gd_tensor_shape(t);
    return (heads){gd_data(t), shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3]};
}

/* An input in place, or a copy if its last dimension is not packed. */
static inline gd_status input_heads(const gd_call *call, const gd_tensor *t, heads *x)
{
    const int64_t *shape = gd_tensor_shape(t), *strides = gd_tensor_strides(t);
    *x = (heads){gd_data(t), strides[0], strides[1], strides[2]};
    if (strides[3] == 1 || shape[3] == 1 || gd_tensor_count(t) == 0) return GD_OK;
    int64_t packed[4];
    *x = packed_heads(t);
    x->data = gd_packed_copy(call, gd_layout_of(t), gd_tensor_dtype(t), packed);
    return x->data ? GD_OK : gd_error_status(call->context);
}

/* ---- A pass ------------------------------------------------------------------------------- */

typedef struct attention_pass {
    attention_sizes z;
    bool causal;
    REAL scale;
    heads q, k, v, y;
    REAL *lse; /* [B, H, T], or NULL */
    attention_dropout dropout;
    attention_mask mask;
    /* A forward: rows of a chunk of the queries, and chunks of a head. */
    int64_t queries, chunks;
    /* A backward: delta is the sum of dy * y along E; gradients are NULL if they are not needed. */
    heads dy, dq, dk, dv;
    REAL *delta, *dbias; /* [B, H, T]; [B, H, T, S]: dS is added here */
    bool wants_scores;   /* dq, dk or dbias is needed */
    bool add_q, add_k, add_v;
} attention_pass;

/* What both passes have. */
static inline gd_status attention_pass_of(const gd_call *call, attention_pass *p)
{
    const attention_args *args = call->args;
    *p = (attention_pass){.z = attention_sizes_of(call),
                          .causal = args->causal,
                          .scale = (REAL)args->scale,
                          .y = packed_heads(call->output[0]),
                          .lse = gd_data(call->save[0]),
                          .mask = attention_mask_of(call)};
    p->dropout = attention_dropout_of(call, &p->z);
    if (input_heads(call, call->input[0], &p->q) || input_heads(call, call->input[1], &p->k) ||
        input_heads(call, call->input[2], &p->v))
        return gd_error_status(call->context);
    return GD_OK;
}

/* Before which key what query t sees ends. */
static inline int64_t end_of(const attention_pass *p, int64_t t)
{
    return attention_end(&p->z, p->causal, p->mask.window, t);
}

/* ---- Packing ------------------------------------------------------------------------------ */

/* to [columns, width] = factor * from [rows, columns]^T, zeros after column `rows`. */
static inline void pack_columns(REAL *to, int64_t width, const REAL *from, int64_t row,
                                int64_t rows, int64_t columns, REAL factor)
{
    for (int64_t r0 = 0; r0 < width; r0 += LANES, to += LANES, from += LANES * row) {
        int64_t n = gd_min64(LANES, rows - r0), c = 0;
        for (; n == LANES && c + LANES <= columns; c += LANES) {
            vec square[LANES];
            for (int i = 0; i < LANES; i++) square[i] = factor * vec_load(from + i * row + c);
            vec_transpose(square);
            for (int i = 0; i < LANES; i++) vec_store(to + (c + i) * width, square[i]);
        }
        for (; c < columns; c++) {
            for (int64_t i = 0; i < LANES; i++)
                to[c * width + i] = i < n ? factor * from[i * row + c] : 0;
        }
    }
}

/* Rows whose columns fill whole vectors: the given ones, or a copy with zeros at the end. */
static inline const REAL *whole_rows(REAL *copy, const REAL *from, int64_t *row, int64_t rows,
                                     int64_t columns)
{
    int64_t width = gd_round_up(columns, LANES);
    if (width == columns) return from;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < width; c++) {
            copy[r * width + c] = c < columns ? from[r * *row + c] : 0;
        }
    }
    *row = width;
    return copy;
}

#endif
