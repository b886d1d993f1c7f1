/* rms_norm_cpu.c - RMSNorm on the CPU, forward and backward. README.md derives the formulas.
 *
 * M rows of N columns, and one sum over a row before any of its results can be written. So every
 * row is gone through twice: the first time it comes from memory, the second time from the cache.
 * Memory is the limit, and it would rest during the second pass if nobody had asked for the next
 * row: each pass calls one half of it in (stream.h).
 *
 * Rows are worked on in tiles of TILE columns: a tile of results is built up in the first level
 * cache, one option after the other, and then leaves for memory at once.
 */
#include "copy/convert.h"
#include "kernel.h"
#include "rms_norm/rms_norm.h"
#include "stream.h"

enum {
    TILE = 256,
    GROUP_BYTES = 128 << 10, /* backward: what a group of rows may fill of the second level cache */
    GROUP_ROWS = 8,          /* ... and how many it has at most */
    PIECES = 64,             /* backward: rows are summed up in at most so many pieces ... */
    PIECE_ROWS = 8           /* ... of at least so many rows */
};

/* ---- Rows and parameters ------------------------------------------------------------------ */

/* The rows of x [..., N], which may lie anywhere, each one packed. */
typedef struct rows {
    const REAL *data;
    const int64_t *shape, *strides; /* of the dimensions before the last */
    int ndim;                       /* how many; 0: row i is at i * N */
    int64_t N;
} rows;

static const REAL *row_at(const rows *x, int64_t row)
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
static const REAL *packed(const gd_call *call, const gd_tensor *t)
{
    if (gd_tensor_is_contiguous(t)) return gd_tensor_data(t);
    int64_t strides[GD_MAX_DIMS], count = 1;
    for (int d = gd_tensor_ndim(t) - 1; d >= 0; d--) {
        strides[d] = count;
        count *= gd_tensor_shape(t)[d];
    }
    gd_layout from = {gd_tensor_data(t), call->dtype, gd_tensor_ndim(t), gd_tensor_shape(t),
                      gd_tensor_strides(t)};
    gd_layout to = from;
    to.strides = strides;
    to.data = gd_call_scratch(call, (size_t)count * sizeof(REAL));
    if (to.data) gd_copy_cpu(to, from, call->threads);
    return to.data;
}

static bool open_rows(const gd_call *call, const gd_tensor *t, rows *x)
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

static int64_t heads_of(const gd_tensor *weight)
{
    return weight ? gd_row_count(weight) : 1;
}

static int64_t param_row(int64_t heads, int64_t row)
{
    return heads == 1 ? 0 : row % heads;
}

/* offset + weight, which is what xhat is multiplied with; ones where there is no weight. */
static bool open_gain(const gd_call *call, const gd_tensor *weight, double offset, int64_t N,
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

static bool open_bias(const gd_call *call, const gd_tensor *bias, param *b)
{
    *b = (param){.data = bias ? packed(call, bias) : NULL, .heads = heads_of(bias)};
    return !bias || b->data;
}

/* ---- Tiles -------------------------------------------------------------------------------- */

/* Rounds n numbers to what a narrower dtype can hold. */
static void round_tile(REAL *tile, int64_t n, gd_dtype dtype)
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

static void put_tile(REAL *to, const REAL *tile, int64_t n, leave how)
{
    if (how == STREAM) {
        gd_stream(to, tile, n * (int64_t)sizeof(REAL));
    } else if (how == STORE) {
        memcpy(to, tile, (size_t)n * sizeof(REAL));
    } else {
        for (int64_t k = 0; k < n; k++) to[k] += tile[k];
    }
}

static leave how_to_store(int64_t count)
{
    return count * (int64_t)sizeof(REAL) >= GD_STREAM_FROM ? STREAM : STORE;
}

/* Pass 0 and pass 1 over a row, at column j, each call in a part of one half of another row. */
static void prefetch_half(const REAL *row, int64_t N, int64_t j, int64_t n, int half)
{
    gd_prefetch(row + (half * N + j) / 2, n * (int64_t)sizeof(REAL) / 2);
}

/* ---- Forward ------------------------------------------------------------------------------ */

typedef struct forward {
    const gd_rms_norm_args *args;
    int64_t M, N;
    rows x, residual;
    param gain, bias;
    REAL *sum, *y, *rstd; /* sum: NULL in rms_norm. rstd: NULL when no backward will come */
    leave how;
} forward;

static double sum_of_squares(const REAL *x, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < n; k++) sum += (double)x[k] * (double)x[k];
    return sum;
}

/* First pass: mean(x^2). In add_rms_norm x + residual becomes the sum on the way. */
static double mean_square(const forward *f, int64_t row, int64_t next)
{
    const REAL *x = row_at(&f->x, row), *next_x = row_at(&f->x, next);
    const REAL *residual = f->sum ? row_at(&f->residual, row) : NULL;
    const REAL *next_residual = f->sum ? row_at(&f->residual, next) : NULL;
    double total = 0;
    for (int64_t j = 0; j < f->N; j += TILE) {
        int64_t n = gd_min64(TILE, f->N - j);
        prefetch_half(next_x, f->N, j, n, 0);
        if (f->sum) {
            REAL *sum = f->sum + row * f->N + j;
            prefetch_half(next_residual, f->N, j, n, 0);
#pragma omp simd
            for (int64_t k = 0; k < n; k++) sum[k] = x[j + k] + residual[j + k];
            round_tile(sum, n, f->args->round_sum);
            total += sum_of_squares(sum, n);
        } else {
            total += sum_of_squares(x + j, n);
        }
    }
    return total / (double)f->N;
}

/* y = xhat * gain + bias, xhat = x * rstd. */
static void forward_row(const forward *f, int64_t row, int64_t next)
{
    REAL rstd = (REAL)(1 / sqrt(mean_square(f, row, next) + f->args->eps));
    if (f->rstd) f->rstd[row] = rstd;

    int64_t N = f->N;
    const REAL *x = f->sum ? f->sum + row * N : row_at(&f->x, row);
    const REAL *gain = f->gain.data + param_row(f->gain.heads, row) * N;
    const REAL *bias = f->bias.data ? f->bias.data + param_row(f->bias.heads, row) * N : NULL;
    const REAL *next_x = row_at(&f->x, next);
    for (int64_t j = 0; j < N; j += TILE) {
        int64_t n = gd_min64(TILE, N - j);
        REAL y[TILE];
        prefetch_half(next_x, N, j, n, 1);
        if (f->sum) prefetch_half(row_at(&f->residual, next), f->N, j, n, 1);
        for (int64_t k = 0; k < n; k++) y[k] = x[j + k] * rstd;
        round_tile(y, n, f->args->round_xhat);
        for (int64_t k = 0; k < n; k++) y[k] *= gain[j + k];
        for (int64_t k = 0; bias && k < n; k++) y[k] += bias[j + k];
        put_tile(f->y + row * N + j, y, n, f->how);
    }
}

static gd_status run_forward(const gd_call *call, forward *f, const gd_tensor *weight,
                             const gd_tensor *bias)
{
    const gd_tensor *y = call->output[0];
    f->args = call->args;
    f->M = gd_row_count(y);
    f->N = gd_tensor_dim(y, -1);
    f->y = gd_data(y);
    f->rstd = gd_data(call->save[0]);
    f->how = how_to_store(f->M * f->N);
    if (f->M * f->N == 0) return GD_OK;
    if (!open_gain(call, weight, f->args->offset, f->N, &f->gain) ||
        !open_bias(call, bias, &f->bias) || !open_rows(call, call->input[0], &f->x))
        return GD_ERROR_MEMORY;
#pragma omp parallel num_threads(gd_threads_for(call->threads, f->M * f->N))
    {
#pragma omp for schedule(static) nowait
        for (int64_t row = 0; row < f->M; row++) forward_row(f, row, gd_min64(row + 1, f->M - 1));
        gd_stream_end();
    }
    return GD_OK;
}

/* inputs x [..., N], weight, bias; output y; save rstd [M] */
gd_status GD_REAL_NAME(rms_norm_forward)(const gd_call *call)
{
    forward f = {0};
    return run_forward(call, &f, call->input[1], call->input[2]);
}

/* inputs x, residual [..., N], weight, bias; outputs y, sum; save rstd [M] */
gd_status GD_REAL_NAME(add_rms_norm_forward)(const gd_call *call)
{
    forward f = {.sum = gd_data(call->output[1])};
    if (f.sum && !open_rows(call, call->input[1], &f.residual)) return GD_ERROR_MEMORY;
    return run_forward(call, &f, call->input[2], call->input[3]);
}

/* ---- Backward ----------------------------------------------------------------------------- */

/* A gradient of x's shape to be written, and how. */
typedef struct target {
    REAL *data; /* NULL: nobody wants it */
    leave how;
} target;

typedef struct backward {
    const gd_rms_norm_args *args;
    int64_t M, N;
    rows x; /* in add_rms_norm the sum */
    const REAL *dy, *rstd;
    const REAL *dsum; /* what came to add_rms_norm's second output, [M, N]; or NULL */
    param gain;
    target dx, dresidual;       /* the same numbers */
    int64_t dw_heads, db_heads; /* 0: nobody wants it */
    int64_t piece_rows, group_rows;
    double *partials; /* [pieces, (dw_heads + db_heads) * N] */
} backward;

/* First pass: mean(h * xhat), h = dy * gain. */
static REAL mean_h_xhat(const backward *b, int64_t row, int64_t next)
{
    const REAL *x = row_at(&b->x, row), *next_x = row_at(&b->x, next);
    const REAL *dy = b->dy + row * b->N, *next_dy = b->dy + next * b->N;
    const REAL *gain = b->gain.data + param_row(b->gain.heads, row) * b->N;
    REAL rstd = b->rstd[row];
    double total = 0;
    for (int64_t j = 0; j < b->N; j += TILE) {
        int64_t n = gd_min64(TILE, b->N - j);
        prefetch_half(next_x, b->N, j, n, 0);
        prefetch_half(next_dy, b->N, j, n, 0);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = j; k < j + n; k++) sum += (double)(dy[k] * gain[k] * (x[k] * rstd));
        total += sum;
    }
    return (REAL)(total / (double)b->N);
}

/* Second pass, columns j to j + n of one row: dx = rstd * (h - xhat * mean(h * xhat)), and the
 * row's share in dw and db: dy * xhat and dy. */
static void backward_tile(const backward *b, int64_t row, int64_t j, int64_t n, REAL mean,
                          double *partial)
{
    const int64_t N = b->N, at = row * N + j;
    const REAL *x = row_at(&b->x, row) + j, *dy = b->dy + at;
    const REAL rstd = b->rstd[row];

    if (b->dw_heads) {
        double *dw = partial + param_row(b->dw_heads, row) * N + j;
        REAL xhat[TILE];
        for (int64_t k = 0; k < n; k++) xhat[k] = x[k] * rstd;
        round_tile(xhat, n, b->args->round_xhat);
#pragma omp simd
        for (int64_t k = 0; k < n; k++) dw[k] += (double)(dy[k] * xhat[k]);
    }
    if (b->db_heads) {
        double *db = partial + (b->dw_heads + param_row(b->db_heads, row)) * N + j;
#pragma omp simd
        for (int64_t k = 0; k < n; k++) db[k] += (double)dy[k];
    }
    if (b->dx.data || b->dresidual.data) {
        const REAL *gain = b->gain.data + param_row(b->gain.heads, row) * N + j;
        REAL dx[TILE];
        for (int64_t k = 0; k < n; k++) dx[k] = rstd * (dy[k] * gain[k] - x[k] * rstd * mean);
        for (int64_t k = 0; b->dsum && k < n; k++) dx[k] += b->dsum[at + k];
        if (b->dx.data) put_tile(b->dx.data + at, dx, n, b->dx.how);
        if (b->dresidual.data) put_tile(b->dresidual.data + at, dx, n, b->dresidual.how);
    }
}

/* A few rows together: a tile of dw and db, which are the larger the more columns there are and
 * live in the second level cache, is fetched from there once for all of them. */
static void backward_group(const backward *b, int64_t first, int64_t end, double *partial)
{
    REAL mean[GROUP_ROWS] = {0};
    int64_t ahead = b->group_rows, last = b->M - 1;
    bool wants_dx = b->dx.data || b->dresidual.data;
    for (int64_t row = first; wants_dx && row < end; row++)
        mean[row - first] = mean_h_xhat(b, row, gd_min64(row + ahead, last));
    for (int64_t j = 0; j < b->N; j += TILE) {
        int64_t n = gd_min64(TILE, b->N - j);
        for (int64_t row = first; row < end; row++) {
            int64_t next = gd_min64(row + ahead, last);
            prefetch_half(row_at(&b->x, next), b->N, j, n, 1);
            prefetch_half(b->dy + next * b->N, b->N, j, n, 1);
            backward_tile(b, row, j, n, mean[row - first], partial);
        }
    }
}

/* One piece of the rows, done by one thread in order: its dx, and its row of the partial sums. */
static void backward_piece(const backward *b, int64_t piece)
{
    int64_t first = piece * b->piece_rows, end = gd_min64(b->M, first + b->piece_rows);
    int64_t width = (b->dw_heads + b->db_heads) * b->N;
    double *partial = b->partials + piece * width;
    if (width) memset(partial, 0, (size_t)width * sizeof *partial);
    for (int64_t row = first; row < end; row += b->group_rows)
        backward_group(b, row, gd_min64(end, row + b->group_rows), partial);
}

/* gradient [n] = or += the sum over all pieces of partials[piece, from : from + n], in order. */
static void reduce_partials(REAL *gradient, bool accumulate, const backward *b, int64_t pieces,
                            int64_t from, int64_t n, int threads)
{
    int64_t stride = (b->dw_heads + b->db_heads) * b->N;
#pragma omp parallel for schedule(static) num_threads(gd_threads_for(threads, pieces *n))
    for (int64_t j = 0; j < n; j += TILE) {
        int64_t width = gd_min64(TILE, n - j);
        double sum[TILE] = {0};
        for (int64_t p = 0; p < pieces; p++)
            for (int64_t k = 0; k < width; k++) sum[k] += b->partials[p * stride + from + j + k];
        for (int64_t k = 0; k < width; k++)
            gradient[j + k] = (REAL)(accumulate ? (double)gradient[j + k] + sum[k] : sum[k]);
    }
}

/* Divides the rows into pieces, which the shapes alone decide (and not which gradients are wanted),
 * and finds memory for their sums. With weights per head a piece has all heads equally often. */
static bool plan_pieces(const gd_call *call, backward *b, int weight, int64_t *pieces)
{
    int64_t heads = gd_max64(heads_of(call->input[weight]), heads_of(call->input[weight + 1]));
    int64_t groups = b->M / heads;
    b->piece_rows = heads * gd_max64(PIECE_ROWS, (groups + PIECES - 1) / PIECES);
    *pieces = (b->M + b->piece_rows - 1) / b->piece_rows;
    int64_t row_bytes = 2 * b->N * (int64_t)sizeof(REAL);
    b->group_rows = gd_max64(1, gd_min64(GROUP_ROWS, GROUP_BYTES / row_bytes));
    int64_t sums = *pieces * (b->dw_heads + b->db_heads) * b->N;
    b->partials = gd_call_scratch(call, (size_t)sums * sizeof(double));
    return b->partials != NULL;
}

/* A dx that takes the place of dy finds its lines in the cache. */
static target open_target(const gd_call *call, int input, const REAL *dy, int64_t count)
{
    target t = {.data = gd_data(call->dinput[input]), .how = how_to_store(count)};
    if (t.data == dy) t.how = STORE;
    if (call->accumulate[input]) t.how = ADD;
    return t;
}

/* No gradient came to y: that of the sum passes through to x and residual. */
static void pass_dsum(const backward *b, target dx, int threads)
{
    int64_t count = b->M * b->N;
#pragma omp parallel for schedule(static) num_threads(gd_threads_for(threads, count))
    for (int64_t i = 0; i < count; i += GD_BLOCK)
        put_tile(dx.data + i, b->dsum + i, gd_min64(GD_BLOCK, count - i),
                 dx.how == ADD ? ADD : STORE);
}

/* `weight` is the place of weight among the inputs, that of bias is next. */
static gd_status run_backward(const gd_call *call, backward *b, const gd_tensor *x, int weight)
{
    const gd_tensor *dw = call->dinput[weight], *db = call->dinput[weight + 1];
    b->rstd = gd_data(call->save[0]);
    b->dx = open_target(call, 0, b->dy, b->M * b->N);
    b->dw_heads = dw ? gd_row_count(dw) : 0;
    b->db_heads = db ? gd_row_count(db) : 0;
    if (b->N == 0) return GD_OK;

    int64_t pieces = 0;
    if (b->dy && b->M > 0) {
        if (!open_gain(call, call->input[weight], b->args->offset, b->N, &b->gain) ||
            !open_rows(call, x, &b->x) || !plan_pieces(call, b, weight, &pieces))
            return GD_ERROR_MEMORY;
#pragma omp parallel num_threads(gd_threads_for(call->threads, b->M * b->N))
        {
#pragma omp for schedule(static) nowait
            for (int64_t piece = 0; piece < pieces; piece++) backward_piece(b, piece);
            gd_stream_end();
        }
    } else if (b->dsum) {
        if (b->dx.data) pass_dsum(b, b->dx, call->threads);
        if (b->dresidual.data) pass_dsum(b, b->dresidual, call->threads);
    }

    int64_t dw_count = b->dw_heads * b->N, db_count = b->db_heads * b->N;
    reduce_partials(gd_data(dw), call->accumulate[weight], b, pieces, 0, dw_count, call->threads);
    reduce_partials(gd_data(db), call->accumulate[weight + 1], b, pieces, dw_count, db_count,
                    call->threads);
    return GD_OK;
}

static backward backward_of(const gd_call *call, const gd_tensor *x)
{
    return (backward){.args = call->args,
                      .M = gd_row_count(x),
                      .N = gd_tensor_dim(x, -1),
                      .dy = gd_data(call->doutput[0])};
}

/* reads x, weight, rstd */
gd_status GD_REAL_NAME(rms_norm_backward)(const gd_call *call)
{
    backward b = backward_of(call, call->input[0]);
    return run_backward(call, &b, call->input[0], 1);
}

/* reads the sum, weight, rstd */
gd_status GD_REAL_NAME(add_rms_norm_backward)(const gd_call *call)
{
    const gd_tensor *sum = call->output[1];
    backward b = backward_of(call, sum);
    b.dsum = gd_data(call->doutput[1]);
    b.dresidual = open_target(call, 1, b.dy, b.M * b.N);
    return run_backward(call, &b, sum, 2);
}
