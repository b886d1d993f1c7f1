/* rms_norm_cpu.c - RMSNorm on the CPU. README.md derives the formulas. One row of N numbers:
 *
 *     forward                                   backward
 *     rstd = 1 / sqrt(mean(x[k]^2) + eps)       m = mean(dy[k] * gain[k] * xhat[k])
 *     xhat[k] = x[k] * rstd                     dx[k] = rstd * (dy[k] * gain[k] - xhat[k] * m)
 *     y[k] = xhat[k] * gain[k] + bias[k]        dw[k] += dy[k] * xhat[k],   db[k] += dy[k]
 *
 * with gain = offset + weight. Either way there is a sum over the row first, and results after, so
 * every row is gone through twice: the first time it comes from memory, the second time from the
 * cache. Memory is the limit, and it would rest during the second pass if nobody had asked for the
 * next row: each pass calls one half of it in (stream.h).
 *
 * Results are made in tiles: some columns of a row, built up in the first level cache, one option
 * after the other, that then leave for memory at once (tiles.h).
 */
#include "rms_norm/rms_norm.h"
#include "rms_norm/tiles.h"

enum {
    STRETCH = 512,           /* columns summed up at a time */
    GROUP_BYTES = 128 << 10, /* backward: what a group of rows may fill of the second level cache */
    GROUP_ROWS = 8,          /* ... and how many it has at most */
    PIECES = 64,   /* backward: dw is summed up in at most so many pieces of the rows ... */
    PIECE_ROWS = 8 /* ... of at least so many */
};

/* ---- Forward ------------------------------------------------------------------------------ */

typedef struct forward {
    const gd_rms_norm_args *args;
    int64_t M, N;
    rows x, residual;
    param gain, bias;
    REAL *sum, *y, *rstd; /* sum: NULL in rms_norm. rstd: NULL when no backward will come */
    leave how;
} forward;

/* In two sums side by side: an addition waits for the one before it, and in one sum alone that
 * would take longer than the memory. */
static double sum_of_squares(const REAL *x, int64_t n)
{
    double first = 0, second = 0;
    int64_t half = n / 2;
#pragma omp simd reduction(+ : first, second)
    for (int64_t k = 0; k < half; k++) {
        first += (double)x[k] * (double)x[k];
        second += (double)x[k + half] * (double)x[k + half];
    }
    for (int64_t k = 2 * half; k < n; k++) first += (double)x[k] * (double)x[k];
    return first + second;
}

/* add_rms_norm: columns j to j + n of sum = x + residual, which is the x of what follows. */
static const REAL *add_tile(const forward *f, int64_t row, int64_t j, int64_t n)
{
    const REAL *x = row_at(&f->x, row) + j, *residual = row_at(&f->residual, row) + j;
    REAL *sum = f->sum + row * f->N + j;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) sum[k] = x[k] + residual[k];
    round_tile(sum, n, f->args->round_sum);
    return sum;
}

static void prefetch_inputs(const forward *f, int64_t row, int64_t j, int64_t n, int half)
{
    prefetch_half(row_at(&f->x, row), f->N, j, n, half);
    if (f->sum) prefetch_half(row_at(&f->residual, row), f->N, j, n, half);
}

/* First pass: mean(x^2). */
static double mean_square(const forward *f, int64_t row, int64_t next)
{
    double total = 0;
    for (int64_t j = 0; j < f->N; j += STRETCH) {
        int64_t n = gd_min64(STRETCH, f->N - j);
        prefetch_inputs(f, next, j, n, 0);
        const REAL *x = f->sum ? add_tile(f, row, j, n) : row_at(&f->x, row) + j;
        total += sum_of_squares(x, n);
    }
    return total / (double)f->N;
}

/* Second pass: y = xhat * gain + bias, xhat = x * rstd. */
static void forward_row(const forward *f, int64_t row, int64_t next)
{
    const int64_t N = f->N;
    const REAL rstd = (REAL)(1 / sqrt(mean_square(f, row, next) + f->args->eps)); /* [rstd] */
    const REAL *x = f->sum ? f->sum + row * N : row_at(&f->x, row);
    const REAL *gain = param_row(&f->gain, row, N), *bias = param_row(&f->bias, row, N);
    if (f->rstd) f->rstd[row] = rstd;
    for (int64_t j = 0; j < N; j += TILE) {
        int64_t n = gd_min64(TILE, N - j);
        REAL y[TILE];
        prefetch_inputs(f, next, j, n, 1);
        if (rounds_tile(f->args->round_xhat)) {
            for (int64_t k = 0; k < n; k++) y[k] = x[j + k] * rstd;
            round_tile(y, n, f->args->round_xhat);
            for (int64_t k = 0; k < n; k++) y[k] *= gain[j + k];
        } else {
            for (int64_t k = 0; k < n; k++) y[k] = x[j + k] * rstd * gain[j + k];
        }
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

static void prefetch_x_and_dy(const backward *b, int64_t row, int64_t j, int64_t n, int half)
{
    prefetch_half(row_at(&b->x, row), b->N, j, n, half);
    prefetch_half(b->dy + row * b->N, b->N, j, n, half);
}

/* The sum of h * xhat over n columns, h = dy * gain; see sum_of_squares. */
static double sum_h_xhat(const REAL *dy, const REAL *gain, const REAL *x, REAL rstd, int64_t n)
{
    double first = 0, second = 0;
    int64_t half = n / 2;
#pragma omp simd reduction(+ : first, second)
    for (int64_t k = 0; k < half; k++) {
        int64_t j = k + half;
        first += (double)(dy[k] * gain[k] * (x[k] * rstd)); /* [h] [m] */
        second += (double)(dy[j] * gain[j] * (x[j] * rstd));
    }
    for (int64_t k = 2 * half; k < n; k++) first += (double)(dy[k] * gain[k] * (x[k] * rstd));
    return first + second;
}

/* First pass: m = mean(h * xhat). */
static REAL mean_h_xhat(const backward *b, int64_t row, int64_t next)
{
    const REAL *x = row_at(&b->x, row), *dy = b->dy + row * b->N;
    const REAL *gain = param_row(&b->gain, row, b->N), rstd = b->rstd[row];
    double total = 0;
    for (int64_t j = 0; j < b->N; j += STRETCH) {
        int64_t n = gd_min64(STRETCH, b->N - j);
        prefetch_x_and_dy(b, next, j, n, 0);
        total += sum_h_xhat(dy + j, gain + j, x + j, rstd, n);
    }
    return (REAL)(total / (double)b->N);
}

/* Second pass, columns j to j + n of one row: dx = rstd * (h - xhat * m), and the row's share
 * in dw and db. dx comes last, as it may take the place of dy. */
static void backward_tile(const backward *b, int64_t row, int64_t j, int64_t n, REAL m,
                          double *partial)
{
    const int64_t N = b->N, at = row * N + j;
    const REAL *x = row_at(&b->x, row) + j, *dy = b->dy + at;
    const REAL rstd = b->rstd[row];

    if (b->dw_heads) {
        double *dw = partial + head_of(b->dw_heads, row) * N + j;
        if (rounds_tile(b->args->round_xhat)) {
            REAL xhat[TILE];
            for (int64_t k = 0; k < n; k++) xhat[k] = x[k] * rstd; /* [xhat] */
            round_tile(xhat, n, b->args->round_xhat);
#pragma omp simd
            for (int64_t k = 0; k < n; k++) dw[k] += (double)(dy[k] * xhat[k]);
        } else {
#pragma omp simd
            for (int64_t k = 0; k < n; k++) dw[k] += (double)(dy[k] * (x[k] * rstd)); /* [dw] */
        }
    }
    if (b->db_heads) {
        double *db = partial + (b->dw_heads + head_of(b->db_heads, row)) * N + j;
#pragma omp simd
        for (int64_t k = 0; k < n; k++) db[k] += (double)dy[k]; /* [db] */
    }
    if (b->dx.data || b->dresidual.data) {
        const REAL *gain = param_row(&b->gain, row, N) + j;
        REAL dx[TILE];
        /* [dx] */
        for (int64_t k = 0; k < n; k++) dx[k] = rstd * (dy[k] * gain[k] - x[k] * rstd * m);
        for (int64_t k = 0; b->dsum && k < n; k++) dx[k] += b->dsum[at + k]; /* [add_rms_norm] */
        if (b->dx.data) put_tile(b->dx.data + at, dx, n, b->dx.how);
        if (b->dresidual.data) put_tile(b->dresidual.data + at, dx, n, b->dresidual.how);
    }
}

/* A few rows together: a tile of dw and db, which are the larger the more columns there are and
 * live in the second level cache, is fetched from there once for all of them. */
static void backward_group(const backward *b, int64_t first, int64_t end, double *partial)
{
    REAL m[GROUP_ROWS] = {0};
    int64_t ahead = b->group_rows, last = b->M - 1;
    bool wants_dx = b->dx.data || b->dresidual.data;
    for (int64_t row = first; wants_dx && row < end; row++)
        m[row - first] = mean_h_xhat(b, row, gd_min64(row + ahead, last));
    for (int64_t j = 0; j < b->N; j += TILE) {
        int64_t n = gd_min64(TILE, b->N - j);
        for (int64_t row = first; row < end; row++) {
            prefetch_x_and_dy(b, gd_min64(row + ahead, last), j, n, 1);
            backward_tile(b, row, j, n, m[row - first], partial);
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
        for (int64_t p = 0; p < pieces; p++) /* [dw sum] */
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
    b->piece_rows = heads * gd_max64(PIECE_ROWS, gd_divide_up(groups, PIECES));
    *pieces = gd_divide_up(b->M, b->piece_rows);
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
