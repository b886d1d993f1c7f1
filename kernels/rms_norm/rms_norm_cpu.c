/* rms_norm_cpu.c - RMSNorm on the CPU. README.md derives the formulas. One row of N numbers:
 *
 *     forward                                   backward
 *     rstd = 1 / sqrt(mean(x[k]^2) + eps)       m = mean(dy[k] * factor[k] * xhat[k])
 *     xhat[k] = x[k] * rstd                     dx[k] = rstd * (dy[k] * factor[k] - xhat[k] * m)
 *     y[k] = xhat[k] * factor[k] + bias[k]      dw[k] += dy[k] * xhat[k],   db[k] += dy[k]
 *
 * with factor = offset + weight. Both have a sum over the row first, and results after it, so every
 * row is read twice: first from memory, then from the cache. Memory is the limit, and it would be
 * idle during the second pass if the next row were not prefetched: each pass prefetches one half of
 * it (stream.h).
 *
 * Results are computed in tiles: some columns of a row, in the first level cache, one option after
 * the other, which are then written to memory at once (tiles.h).
 */
#include "rms_norm/rms_norm.h"
#include "rms_norm/tiles.h"

enum {
    GROUP_BYTES = 128 << 10, /* backward: what a group of rows may fill of the second level cache */
    GROUP_ROWS = 8           /* ... and how many it has at most */
};

/* ---- Forward ------------------------------------------------------------------------------ */

/* Of four numbers in REAL, of all in double: conversions would take longer than the memory. */
static double sum_of_squares(const REAL *x, int64_t n)
{
    double total = 0;
    int64_t q = n / 4;
#pragma omp simd reduction(+ : total)
    for (int64_t k = 0; k < q; k++) {
        REAL a = x[k], b = x[k + q], c = x[k + 2 * q], d = x[k + 3 * q];
        total += (double)(a * a + b * b + c * c + d * d);
    }
    for (int64_t k = 4 * q; k < n; k++) total += (double)x[k] * (double)x[k];
    return total;
}

/* The same for a row whose squares leave the range of REAL. */
static double sum_of_wide_squares(const rms_rows *from, int64_t row, int64_t N)
{
    double total = 0;
    REAL buffer[STRETCH];
    for (int64_t j = 0; j < N; j += STRETCH) {
        int64_t n = gd_min64(STRETCH, N - j);
        const REAL *x = get_tile(from, row, j, n, buffer);
        for (int64_t k = 0; k < n; k++) total += (double)x[k] * (double)x[k];
    }
    return total;
}

/* add_rms_norm: columns j to j + n of sum = x + residual, which is the x of what follows. */
static const REAL *add_tile(const rms_forward *f, int64_t row, int64_t j, int64_t n, REAL *buffer)
{
    REAL other[STRETCH];
    const REAL *x = get_tile(&f->x, row, j, n, buffer);
    const REAL *residual = get_tile(&f->residual, row, j, n, other);
    void *at = place(&f->sum, row, j);
    REAL *sum = f->sum.dtype == (gd_dtype)REAL_DTYPE ? at : buffer;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) sum[k] = x[k] + residual[k];
    round_tile(sum, n, f->round_sum);
    if (sum == buffer) gd_find_converter(f->sum.dtype, (gd_dtype)REAL_DTYPE)(at, 1, sum, 1, n);
    return sum;
}

static void prefetch_inputs(const rms_forward *f, int64_t row, int64_t j, int64_t n, int half)
{
    prefetch_half(&f->x, row, f->N, j, n, half);
    if (f->sum.data) prefetch_half(&f->residual, row, f->N, j, n, half);
}

/* First pass: mean(x^2). */
static double mean_square(const rms_forward *f, int64_t row, int64_t next)
{
    double total = 0;
    REAL buffer[STRETCH];
    for (int64_t j = 0; j < f->N; j += STRETCH) {
        int64_t n = gd_min64(STRETCH, f->N - j);
        prefetch_inputs(f, next, j, n, 0);
        const REAL *x =
            f->sum.data ? add_tile(f, row, j, n, buffer) : get_tile(&f->x, row, j, n, buffer);
        total += sum_of_squares(x, n);
    }
    if (sizeof(REAL) == sizeof(float) && !(total > 0x1p-80 && total < 0x1p120))
        total = sum_of_wide_squares(f->sum.data ? &f->sum : &f->x, row, f->N);
    return total / (double)f->N;
}

/* Second pass: y = xhat * factor + bias, xhat = x * rstd. */
static void forward_row(const rms_forward *f, int64_t row, int64_t next)
{
    const int64_t N = f->N;
    const rms_rows *from = f->sum.data ? &f->sum : &f->x;
    const REAL rstd = (REAL)(1 / sqrt(mean_square(f, row, next) + f->eps)); /* [rstd] */
    if (f->rstd) ((REAL *)f->rstd)[row] = rstd;
    for (int64_t j = 0; j < N; j += TILE) {
        int64_t n = gd_min64(TILE, N - j);
        REAL y[TILE], wide_x[TILE], wide_factor[TILE], wide_bias[TILE];
        prefetch_inputs(f, next, j, n, 1);
        const REAL *x = get_tile(from, row, j, n, wide_x);
        const REAL *factor = factor_tile(&f->weight, f->offset, row, N, j, n, wide_factor);
        if (rounds_tile(f->round_xhat)) {
            for (int64_t k = 0; k < n; k++) y[k] = x[k] * rstd;
            round_tile(y, n, f->round_xhat);
            for (int64_t k = 0; k < n; k++) y[k] *= factor[k];
        } else {
            for (int64_t k = 0; k < n; k++) y[k] = x[k] * rstd * factor[k];
        }
        if (f->bias.data) {
            const REAL *bias = param_tile(&f->bias, row, N, j, n, wide_bias);
            for (int64_t k = 0; k < n; k++) y[k] += bias[k];
        }
        put_tile(&f->y, row, j, y, n);
    }
}

void GD_REAL_NAME(rms_norm_rows_forward)(const rms_forward *f, int threads)
{
#pragma omp parallel num_threads(gd_threads_for(threads, f->M * f->N))
    {
#pragma omp for schedule(static) nowait
        for (int64_t row = 0; row < f->M; row++) forward_row(f, row, gd_min64(row + 1, f->M - 1));
        gd_stream_end();
    }
}

/* ---- Backward ----------------------------------------------------------------------------- */

static void prefetch_x_and_dy(const rms_backward *b, int64_t row, int64_t j, int64_t n, int half)
{
    prefetch_half(&b->x, row, b->N, j, n, half);
    prefetch_half(&b->dy, row, b->N, j, n, half);
}

static inline REAL h_xhat(const REAL *dy, const REAL *factor, const REAL *x, REAL rstd, int64_t k)
{
    return dy[k] * factor[k] * (x[k] * rstd); /* [h] [m] */
}

/* The sum of h * xhat over n columns: of four in REAL, which has rounded each of them already, of
 * all in double. */
static double sum_h_xhat(const REAL *dy, const REAL *factor, const REAL *x, REAL rstd, int64_t n)
{
    double total = 0;
    int64_t q = n / 4;
#pragma omp simd reduction(+ : total)
    for (int64_t k = 0; k < q; k++) {
        total += (double)(h_xhat(dy, factor, x, rstd, k) + h_xhat(dy, factor, x, rstd, k + q) +
                          h_xhat(dy, factor, x, rstd, k + 2 * q) +
                          h_xhat(dy, factor, x, rstd, k + 3 * q));
    }
    for (int64_t k = 4 * q; k < n; k++) total += (double)h_xhat(dy, factor, x, rstd, k);
    return total;
}

/* First pass: m = mean(h * xhat). */
static REAL mean_h_xhat(const rms_backward *b, int64_t row, int64_t next)
{
    const REAL rstd = ((const REAL *)b->rstd)[row];
    double total = 0;
    for (int64_t j = 0; j < b->N; j += STRETCH) {
        int64_t n = gd_min64(STRETCH, b->N - j);
        REAL wide_x[STRETCH], wide_dy[STRETCH], wide_factor[STRETCH];
        prefetch_x_and_dy(b, next, j, n, 0);
        total += sum_h_xhat(get_tile(&b->dy, row, j, n, wide_dy),
                            factor_tile(&b->weight, b->offset, row, b->N, j, n, wide_factor),
                            get_tile(&b->x, row, j, n, wide_x), rstd, n);
    }
    return (REAL)(total / (double)b->N);
}

/* Second pass, columns j to j + n of one row: dx = rstd * (h - xhat * m), and the row's share
 * is added to dw and db. dx comes last, as it may take the place of dy or dsum. */
static void backward_tile(const rms_backward *b, int64_t row, int64_t j, int64_t n, REAL m,
                          REAL *dw, REAL *db)
{
    const REAL rstd = ((const REAL *)b->rstd)[row];
    REAL wide_x[TILE], wide_dy[TILE], wide[TILE];
    const REAL *x = get_tile(&b->x, row, j, n, wide_x);
    const REAL *dy = get_tile(&b->dy, row, j, n, wide_dy);
    if (b->dw.data && rounds_tile(b->round_xhat)) {
        REAL xhat[TILE];
        for (int64_t k = 0; k < n; k++) xhat[k] = x[k] * rstd; /* [xhat] */
        round_tile(xhat, n, b->round_xhat);
        for (int64_t k = 0; k < n; k++) dw[k] += dy[k] * xhat[k];
    } else if (b->dw.data) {
        for (int64_t k = 0; k < n; k++) dw[k] += dy[k] * (x[k] * rstd); /* [dw] */
    }
    for (int64_t k = 0; b->db.data && k < n; k++) db[k] += dy[k]; /* [db] */
    if (b->dx.data || b->dresidual.data) {
        const REAL *factor = factor_tile(&b->weight, b->offset, row, b->N, j, n, wide);
        REAL dx[TILE];
        /* [dx] */
        for (int64_t k = 0; k < n; k++) dx[k] = rstd * (dy[k] * factor[k] - x[k] * rstd * m);
        if (b->dsum.data) {
            const REAL *dsum = get_tile(&b->dsum, row, j, n, wide);
            for (int64_t k = 0; k < n; k++) dx[k] += dsum[k]; /* [add_rms_norm] */
        }
        if (b->dx.data) put_tile(&b->dx, row, j, dx, n);
        if (b->dresidual.data) put_tile(&b->dresidual, row, j, dx, n);
    }
}

/* Adds the sums over some rows, the last of them `row`, to a piece's sums [heads, N] at column j. */
static void add_rows(const rms_param *gradient, double *partial, int64_t row, int64_t N, int64_t j,
                     REAL *sums, int64_t n)
{
    if (!gradient->data) return;
    partial += head_of(gradient->heads, row) * N + j;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) partial[k] += (double)sums[k];
    memset(sums, 0, (size_t)n * sizeof *sums);
}

/* A few rows together: a tile of dw and db is summed over them in REAL, and added once to the
 * piece's sums in double, which are as wide as a row and stay in the second level cache. Where
 * there are several heads, the next row belongs to another one. */
static void backward_group(const rms_backward *b, int64_t first, int64_t end, int64_t ahead,
                           double *partial)
{
    const int64_t N = b->N, dw_heads = b->dw.data ? b->dw.heads : 0;
    REAL m[GROUP_ROWS] = {0}, dw[TILE] = {0}, db[TILE] = {0};
    int64_t last = b->M - 1;
    bool wants_dx = b->dx.data || b->dresidual.data;
    for (int64_t row = first; wants_dx && row < end; row++)
        m[row - first] = mean_h_xhat(b, row, gd_min64(row + ahead, last));
    for (int64_t j = 0; j < N; j += TILE) {
        int64_t n = gd_min64(TILE, N - j);
        for (int64_t row = first; row < end; row++) {
            prefetch_x_and_dy(b, gd_min64(row + ahead, last), j, n, 1);
            backward_tile(b, row, j, n, m[row - first], dw, db);
            if (row + 1 == end || b->dw.heads > 1) add_rows(&b->dw, partial, row, N, j, dw, n);
            if (row + 1 == end || b->db.heads > 1)
                add_rows(&b->db, partial + dw_heads * N, row, N, j, db, n);
        }
    }
}

/* Numbers in one piece's sums. */
static int64_t partial_width(const rms_backward *b)
{
    return ((b->dw.data ? b->dw.heads : 0) + (b->db.data ? b->db.heads : 0)) * b->N;
}

/* One piece of the rows, done by one thread in order: its dx, and its row of the partial sums. */
static void backward_piece(const rms_backward *b, int64_t piece)
{
    int64_t first = piece * b->piece_rows, end = gd_min64(b->M, first + b->piece_rows);
    int64_t row_bytes = b->N * (b->x.size + b->dy.size), width = partial_width(b);
    int64_t group = gd_max64(1, gd_min64(GROUP_ROWS, GROUP_BYTES / row_bytes));
    double *partial = width ? b->partials + piece * width : NULL;
    if (width) memset(partial, 0, (size_t)width * sizeof *partial);
    for (int64_t row = first; row < end; row += group)
        backward_group(b, row, gd_min64(end, row + group), group, partial);
}

/* gradient = or += the sum over all pieces, in order, of what begins at `from` in each. */
static void reduce_partials(const rms_param *gradient, const rms_backward *b, int64_t pieces,
                            int64_t from, int threads)
{
    if (!gradient->data) return;
    int64_t n = gradient->heads * b->N, stride = partial_width(b);
#pragma omp parallel for schedule(static) num_threads(gd_threads_for(threads, pieces *n))
    for (int64_t j = 0; j < n; j += TILE) {
        int64_t width = gd_min64(TILE, n - j);
        char *at = (char *)gradient->data + j * gradient->size;
        double sum[TILE] = {0}, before[TILE] = {0};
        for (int64_t p = 0; p < pieces; p++) /* [dw sum] */
            for (int64_t k = 0; k < width; k++) sum[k] += b->partials[p * stride + from + j + k];
        if (gradient->accumulate)
            gd_find_converter(GD_FLOAT64, gradient->dtype)(before, 1, at, 1, width);
        for (int64_t k = 0; k < width; k++) sum[k] += before[k];
        gd_find_converter(gradient->dtype, GD_FLOAT64)(at, 1, sum, 1, width);
    }
}

/* y has no gradient: that of the sum is passed to x and residual. */
static void pass_dsum(const rms_backward *b, const rms_rows *to, int threads)
{
    if (!to->data) return;
#pragma omp parallel num_threads(gd_threads_for(threads, b->M * b->N))
    {
#pragma omp for schedule(static) nowait
        for (int64_t row = 0; row < b->M; row++)
            for (int64_t j = 0; j < b->N; j += TILE) {
                int64_t n = gd_min64(TILE, b->N - j);
                REAL wide[TILE];
                put_tile(to, row, j, get_tile(&b->dsum, row, j, n, wide), n);
            }
        gd_stream_end();
    }
}

void GD_REAL_NAME(rms_norm_rows_backward)(const rms_backward *b, int threads)
{
    int64_t pieces = b->dy.data ? rms_pieces(b->M, b->piece_rows) : 0;
    if (pieces > 0) {
#pragma omp parallel num_threads(gd_threads_for(threads, b->M * b->N))
        {
#pragma omp for schedule(static) nowait
            for (int64_t piece = 0; piece < pieces; piece++) backward_piece(b, piece);
            gd_stream_end();
        }
    } else if (b->dsum.data) {
        pass_dsum(b, &b->dx, threads);
        pass_dsum(b, &b->dresidual, threads);
    }
    reduce_partials(&b->dw, b, pieces, 0, threads);
    reduce_partials(&b->db, b, pieces, b->dw.data ? b->dw.heads * b->N : 0, threads);
}

/* ---- The ops ------------------------------------------------------------------------------ */

/* A tensor that is contiguous, or absent. */
static rms_rows rows_of(const gd_tensor *t)
{
    return t ? (rms_rows){.data = gd_tensor_data(t),
                          .dtype = gd_tensor_dtype(t),
                          .size = (int64_t)gd_dtype_size(gd_tensor_dtype(t)),
                          .stride = gd_tensor_dim(t, -1)}
             : (rms_rows){0};
}

/* The elements of t side by side: its own memory, or a copy. NULL: out of memory. */
static void *packed(const gd_call *call, const gd_tensor *t)
{
    int64_t strides[GD_MAX_DIMS];
    return gd_tensor_is_contiguous(t) ? gd_tensor_data(t) : gd_packed_copy(call, t, strides);
}

/* One of any strides: rows that are packed stay where they are. false: out of memory. */
static bool open_rows(const gd_call *call, const gd_tensor *t, rms_rows *x)
{
    int last = gd_tensor_ndim(t) - 1;
    *x = rows_of(t);
    if (gd_tensor_is_contiguous(t)) return true;
    if (gd_tensor_strides(t)[last] == 1 || x->stride == 1) {
        x->stride = 0; /* where there is one dimension, there is one row */
        x->ndim = last;
        memcpy(x->shape, gd_tensor_shape(t), (size_t)last * sizeof *x->shape);
        memcpy(x->strides, gd_tensor_strides(t), (size_t)last * sizeof *x->strides);
        return true;
    }
    x->data = packed(call, t);
    return x->data != NULL;
}

static rms_param param_of(const gd_tensor *t, void *data, bool accumulate)
{
    gd_dtype dtype = gd_tensor_dtype(t);
    return (rms_param){data, dtype, (int64_t)gd_dtype_size(dtype), gd_row_count(t), accumulate};
}

static bool open_param(const gd_call *call, const gd_tensor *t, rms_param *p)
{
    *p = t ? param_of(t, packed(call, t), false) : (rms_param){.heads = 1};
    return !t || p->data;
}

/* `weight` is its place among the inputs, that of bias is next. */
static gd_status run_forward(const gd_call *call, rms_forward *f, int weight)
{
    const gd_rms_norm_args *args = call->args;
    f->y = rows_of(call->output[0]);
    f->N = f->y.stride;
    f->M = gd_row_count(call->output[0]);
    f->eps = args->eps, f->offset = args->offset;
    f->round_xhat = args->round_xhat, f->round_sum = args->round_sum;
    f->rstd = gd_data(call->save[0]);
    f->y.how = rms_how(&f->y, f->M * f->N, false, false);
    if (f->M * f->N == 0) return GD_OK;
    if (!open_param(call, call->input[weight], &f->weight) ||
        !open_param(call, call->input[weight + 1], &f->bias) ||
        !open_rows(call, call->input[0], &f->x))
        return GD_ERROR_MEMORY;
    GD_REAL_NAME(rms_norm_rows_forward)(f, call->threads);
    return GD_OK;
}

/* inputs x [..., N], weight, bias; output y; save rstd [M] */
gd_status GD_REAL_NAME(rms_norm_forward)(const gd_call *call)
{
    rms_forward f = {0};
    return run_forward(call, &f, 1);
}

/* inputs x, residual [..., N], weight, bias; outputs y, sum; save rstd [M] */
gd_status GD_REAL_NAME(add_rms_norm_forward)(const gd_call *call)
{
    rms_forward f = {.sum = rows_of(call->output[1])};
    if (!open_rows(call, call->input[1], &f.residual)) return GD_ERROR_MEMORY;
    return run_forward(call, &f, 2);
}

static rms_rows dinput_of(const gd_call *call, int input, const gd_tensor *dy)
{
    rms_rows dx = rows_of(call->dinput[input]);
    int64_t count = dx.data ? gd_tensor_count(call->dinput[input]) : 0;
    dx.how = rms_how(&dx, count, call->accumulate[input], dx.data == gd_data(dy));
    return dx;
}

static rms_param dparam_of(const gd_call *call, int input)
{
    const gd_tensor *t = call->dinput[input];
    return t ? param_of(t, gd_tensor_data(t), call->accumulate[input]) : (rms_param){0};
}

/* x: what was normalised. */
static gd_status run_backward(const gd_call *call, rms_backward *b, const gd_tensor *x, int weight)
{
    const gd_rms_norm_args *args = call->args;
    b->M = gd_row_count(x);
    b->N = gd_tensor_dim(x, -1);
    b->offset = args->offset, b->round_xhat = args->round_xhat;
    b->dy = rows_of(call->doutput[0]);
    b->dx = dinput_of(call, 0, call->doutput[0]);
    b->rstd = gd_data(call->save[0]);
    b->dw = dparam_of(call, weight), b->db = dparam_of(call, weight + 1);
    if (b->N == 0) return GD_OK;
    if (b->dy.data && b->M > 0) {
        if (!open_param(call, call->input[weight], &b->weight) || !open_rows(call, x, &b->x))
            return GD_ERROR_MEMORY;
        const gd_tensor *bias = call->input[weight + 1];
        int64_t bias_heads = bias ? gd_row_count(bias) : 1;
        b->piece_rows = rms_piece_rows(b->M, gd_max64(b->weight.heads, bias_heads));
        b->partials = gd_call_scratch(
            call, rms_partials_bytes(b->M, b->N, b->piece_rows, b->dw.heads + b->db.heads));
        if (!b->partials) return GD_ERROR_MEMORY;
    }
    GD_REAL_NAME(rms_norm_rows_backward)(b, call->threads);
    return GD_OK;
}

/* reads x, weight, rstd */
gd_status GD_REAL_NAME(rms_norm_backward)(const gd_call *call)
{
    rms_backward b = {0};
    return run_backward(call, &b, call->input[0], 1);
}

/* reads the sum, weight, rstd */
gd_status GD_REAL_NAME(add_rms_norm_backward)(const gd_call *call)
{
    rms_backward b = {.dsum = rows_of(call->doutput[1]),
                      .dresidual = dinput_of(call, 1, call->doutput[0])};
    return run_backward(call, &b, call->output[1], 2);
}
