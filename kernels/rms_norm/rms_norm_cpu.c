/* rms_norm_cpu.c - RMSNorm on the CPU as fast as memory allows: the formulas of plain_cpu.c. Both
 * passes have a sum over the row first, and results after it, so every row is read twice: first
 * from memory, then from the cache. Memory is the limit, and it would be idle during the second
 * reading if the next row were not prefetched: each reading prefetches one half of it (stream.h).
 *
 * Results are computed in tiles: some columns of a row, in the first level cache, one option after
 * the other, which are then written to memory at once (tiles.h).
 */
#include "rms_norm/tiles.h"

enum {
    GROUP_BYTES = 128 << 10, /* backward: what a group of rows may fill of the second level cache */
    GROUP_ROWS = 8           /* ... and how many it has at most */
};

/* ---- Forward ------------------------------------------------------------------------------ */

typedef struct forward_rows {
    const gd_rms_norm_problem *p;
    const gd_rms_norm_values *v;
    rms_matrix x, residual, sum, y; /* residual and sum: absent in rms_norm */
    int threads;
} forward_rows;

/* Four squares are summed in REAL, and these sums in double: converting every number would take
 * longer than reading it. */
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
static double sum_of_wide_squares(const gd_rms_norm_problem *p, const rms_matrix *from, int64_t row)
{
    double total = 0;
    REAL buffer[STRETCH];
    for (int64_t j = 0; j < p->cols; j += STRETCH) {
        int64_t n = gd_min64(STRETCH, p->cols - j);
        const REAL *x = get_tile(p, from, row, j, n, buffer);
        for (int64_t k = 0; k < n; k++) total += (double)x[k] * (double)x[k];
    }
    return total;
}

/* add_rms_norm: columns j to j + n of sum = x + residual as it is stored, the x of what follows. */
static const REAL *add_tile(const forward_rows *f, int64_t row, int64_t j, int64_t n, REAL *buffer)
{
    REAL other[STRETCH];
    const REAL *x = get_tile(f->p, &f->x, row, j, n, buffer);
    const REAL *residual = get_tile(f->p, &f->residual, row, j, n, other);
    void *at = place(f->p, &f->sum, row, j);
    REAL *sum = f->sum.dtype == (gd_dtype)REAL_DTYPE ? at : buffer;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) sum[k] = x[k] + residual[k];
    if (sum == at) return sum;
    gd_find_converter(f->sum.dtype, (gd_dtype)REAL_DTYPE)(at, 1, sum, 1, n);
    return widened(at, f->sum.dtype, n, buffer);
}

static void prefetch_inputs(const forward_rows *f, int64_t row, int64_t j, int64_t n, int half)
{
    prefetch_half(f->p, &f->x, row, j, n, half);
    if (f->sum.data) prefetch_half(f->p, &f->residual, row, j, n, half);
}

/* First pass: mean(x^2). */
static double mean_square(const forward_rows *f, int64_t row, int64_t next)
{
    const int64_t N = f->p->cols;
    double total = 0;
    REAL buffer[STRETCH];
    for (int64_t j = 0; j < N; j += STRETCH) {
        int64_t n = gd_min64(STRETCH, N - j);
        prefetch_inputs(f, next, j, n, 0);
        const REAL *x =
            f->sum.data ? add_tile(f, row, j, n, buffer) : get_tile(f->p, &f->x, row, j, n, buffer);
        total += sum_of_squares(x, n);
    }
    if (sizeof(REAL) == sizeof(float) && !(total > 0x1p-80 && total < 0x1p120))
        total = sum_of_wide_squares(f->p, f->sum.data ? &f->sum : &f->x, row);
    return total / (double)N;
}

/* Second pass: y = xhat * factor + bias, xhat = x * rstd. */
static void forward_row(const forward_rows *f, int64_t row, int64_t next)
{
    const gd_rms_norm_problem *p = f->p;
    const rms_matrix *from = f->sum.data ? &f->sum : &f->x;
    const REAL rstd = (REAL)(1 / sqrt(mean_square(f, row, next) + p->eps)); /* [rstd] */
    if (f->v->rstd) ((REAL *)f->v->rstd)[row] = rstd;
    for (int64_t j = 0; j < p->cols; j += TILE) {
        int64_t n = gd_min64(TILE, p->cols - j);
        REAL y[TILE], wide_x[TILE], wide_factor[TILE], wide_bias[TILE];
        prefetch_inputs(f, next, j, n, 1);
        const REAL *x = get_tile(p, from, row, j, n, wide_x);
        const REAL *factor = factor_tile(p, f->v->weight, row, j, n, wide_factor);
        if (rounds(p)) {
            for (int64_t k = 0; k < n; k++) y[k] = x[k] * rstd;
            round_tile(y, n, p->y_dtype);
            for (int64_t k = 0; k < n; k++) y[k] *= factor[k];
        } else {
            for (int64_t k = 0; k < n; k++) y[k] = x[k] * rstd * factor[k];
        }
        if (f->v->bias) {
            const REAL *bias = weight_tile(p, f->v->bias, row, j, n, wide_bias);
            for (int64_t k = 0; k < n; k++) y[k] += bias[k];
        }
        put_tile(p, &f->y, row, j, y, n);
    }
}

static void forward_share(const void *work, int64_t t)
{
    const forward_rows *f = work;
    const int64_t rows = f->p->rows, end = rows * (t + 1) / f->threads;
    for (int64_t row = rows * t / f->threads; row < end; row++)
        forward_row(f, row, gd_min64(row + 1, rows - 1));
    gd_stream_end();
}

void GD_REAL_NAME(rms_norm_fast_forward)(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                         int threads)
{
    forward_rows f = {.p = p, .v = v};
    f.x = matrix_of(p, v->x, rms_norm_x_dtype(p, v), v->x_stride);
    f.y = result_of(p, v->y, p->y_dtype, v->y_stride, false, v->y == v->x);
    if (v->residual) {
        f.residual = matrix_of(p, v->residual, p->dtype, v->residual_stride);
        f.sum = matrix_of(p, v->sum, p->dtype, v->sum_stride);
    }
    f.threads = gd_threads_for(threads, p->rows * p->cols);
    gd_for_each(f.threads, f.threads, forward_share, &f);
}

/* ---- Backward ----------------------------------------------------------------------------- */

typedef struct backward_rows {
    const gd_rms_norm_problem *p;
    const gd_rms_norm_gradients *g;
    rms_matrix x, dy, dsum, dx, dbranch;
    int64_t sums; /* numbers of dweight, and of dbias */
} backward_rows;

static void prefetch_x_and_dy(const backward_rows *b, int64_t row, int64_t j, int64_t n, int half)
{
    prefetch_half(b->p, &b->x, row, j, n, half);
    prefetch_half(b->p, &b->dy, row, j, n, half);
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
static REAL mean_h_xhat(const backward_rows *b, int64_t row, int64_t next)
{
    const gd_rms_norm_problem *p = b->p;
    const REAL rstd = ((const REAL *)b->g->rstd)[row];
    double total = 0;
    for (int64_t j = 0; j < p->cols; j += STRETCH) {
        int64_t n = gd_min64(STRETCH, p->cols - j);
        REAL wide_x[STRETCH], wide_dy[STRETCH], wide_factor[STRETCH];
        prefetch_x_and_dy(b, next, j, n, 0);
        total += sum_h_xhat(get_tile(p, &b->dy, row, j, n, wide_dy),
                            factor_tile(p, b->g->weight, row, j, n, wide_factor),
                            get_tile(p, &b->x, row, j, n, wide_x), rstd, n);
    }
    return (REAL)(total / (double)p->cols);
}

/* Second pass, columns j to j + n of one row: dx = rstd * (h - xhat * m), and the row's terms are
 * added to dw and db. dx comes last, as it may take the place of dy or dsum. */
static void backward_tile(const backward_rows *b, int64_t row, int64_t j, int64_t n, REAL m,
                          REAL *dw, REAL *db)
{
    const gd_rms_norm_problem *p = b->p;
    const REAL rstd = ((const REAL *)b->g->rstd)[row];
    REAL wide_x[TILE], wide_dy[TILE], wide[TILE];
    const REAL *x = get_tile(p, &b->x, row, j, n, wide_x);
    const REAL *dy = get_tile(p, &b->dy, row, j, n, wide_dy);
    if (b->g->dweight && rounds(p)) {
        REAL xhat[TILE];
        for (int64_t k = 0; k < n; k++) xhat[k] = x[k] * rstd; /* [xhat] */
        round_tile(xhat, n, p->y_dtype);
        for (int64_t k = 0; k < n; k++) dw[k] += dy[k] * xhat[k];
    } else if (b->g->dweight) {
        for (int64_t k = 0; k < n; k++) dw[k] += dy[k] * (x[k] * rstd); /* [dw] */
    }
    for (int64_t k = 0; b->g->dbias && k < n; k++) db[k] += dy[k]; /* [db] */
    if (b->dx.data || b->dbranch.data) {
        const REAL *factor = factor_tile(p, b->g->weight, row, j, n, wide);
        REAL dx[TILE];
        /* [dx] */
        for (int64_t k = 0; k < n; k++) dx[k] = rstd * (dy[k] * factor[k] - x[k] * rstd * m);
        if (b->dsum.data) {
            const REAL *dsum = get_tile(p, &b->dsum, row, j, n, wide);
            for (int64_t k = 0; k < n; k++) dx[k] += dsum[k]; /* [add_rms_norm] */
        }
        if (b->dx.data) put_tile(p, &b->dx, row, j, dx, n);
        if (b->dbranch.data) put_tile(p, &b->dbranch, row, j, dx, n);
    }
}

/* Adds the sums of a tile over some rows to a piece's sums, which are NULL if nobody wants them. */
static void add_rows(double *partial, REAL *sums, int64_t n)
{
    if (!partial) return;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) partial[k] += (double)sums[k];
    memset(sums, 0, (size_t)n * sizeof *sums);
}

/* A few rows together: a tile of dw and db is summed over them in REAL, and added once to the
 * piece's sums in double, which are as wide as a row and stay in the second level cache. Where
 * there are several heads, the next row belongs to another one. */
static void backward_group(const backward_rows *b, int64_t first, int64_t end, int64_t ahead,
                           double *dweight, double *dbias)
{
    const gd_rms_norm_problem *p = b->p;
    REAL m[GROUP_ROWS] = {0}, dw[TILE] = {0}, db[TILE] = {0};
    int64_t last = p->rows - 1;
    bool wants_dx = b->dx.data || b->dbranch.data;
    for (int64_t row = first; wants_dx && row < end; row++)
        m[row - first] = mean_h_xhat(b, row, gd_min64(row + ahead, last));
    for (int64_t j = 0; j < p->cols; j += TILE) {
        int64_t n = gd_min64(TILE, p->cols - j);
        for (int64_t row = first; row < end; row++) {
            prefetch_x_and_dy(b, gd_min64(row + ahead, last), j, n, 1);
            backward_tile(b, row, j, n, m[row - first], dw, db);
            if (row + 1 < end && rms_norm_weight_rows(p) == 1) continue;
            const int64_t at = weight_place(p, row) + j;
            add_rows(dweight ? dweight + at : NULL, dw, n);
            add_rows(dbias ? dbias + at : NULL, db, n);
        }
    }
}

/* One piece of the rows, done by one thread in order: its dx, and its rows of the partial sums. */
static void backward_piece(const void *work, int64_t piece)
{
    const backward_rows *b = work;
    const int64_t rows = rms_norm_piece_rows(b->p), first = piece * rows;
    const int64_t end = gd_min64(b->p->rows, first + rows);
    const int64_t row_bytes = b->p->cols * (b->x.size + b->dy.size);
    const int64_t group = gd_max64(1, gd_min64(GROUP_ROWS, GROUP_BYTES / row_bytes));
    double *partial = b->g->workspace, *dweight = NULL, *dbias = NULL; /* [pieces, 2, sums] */
    if (b->g->dweight) dweight = partial + 2 * piece * b->sums;
    if (b->g->dbias) dbias = partial + (2 * piece + 1) * b->sums;
    if (dweight) memset(dweight, 0, (size_t)b->sums * sizeof *dweight);
    if (dbias) memset(dbias, 0, (size_t)b->sums * sizeof *dbias);
    for (int64_t row = first; row < end; row += group)
        backward_group(b, row, gd_min64(end, row + group), group, dweight, dbias);
    gd_stream_end();
}

typedef struct partial_sums {
    const backward_rows *b;
    char *gradient;
    int64_t pieces, which;
    bool add;
} partial_sums;

static void reduce_tile(const void *work, int64_t tile)
{
    const partial_sums *w = work;
    const backward_rows *b = w->b;
    const gd_dtype dtype = b->p->dweight_dtype;
    const double *partial = (const double *)b->g->workspace + w->which * b->sums;
    const int64_t j = tile * TILE, width = gd_min64(TILE, b->sums - j);
    char *at = w->gradient + j * (int64_t)gd_dtype_size(dtype);
    double sum[TILE] = {0}, before[TILE] = {0};
    for (int64_t i = 0; i < w->pieces; i++) /* [dw sum] */
        for (int64_t k = 0; k < width; k++) sum[k] += partial[2 * i * b->sums + j + k];
    if (w->add) gd_find_converter(GD_FLOAT64, dtype)(before, 1, at, 1, width);
    for (int64_t k = 0; k < width; k++) sum[k] += before[k];
    gd_find_converter(dtype, GD_FLOAT64)(at, 1, sum, 1, width);
}

/* gradient = or += the sum over all pieces, in order, of which = 0: dweight, 1: dbias. */
static void reduce_partials(const backward_rows *b, void *gradient, bool add, int which,
                            int64_t pieces, int threads)
{
    if (!gradient) return;
    const partial_sums w = {b, gradient, pieces, which, add};
    gd_for_each(gd_threads_for(threads, pieces * b->sums), gd_divide_up(b->sums, TILE), reduce_tile,
                &w);
}

void GD_REAL_NAME(rms_norm_fast_backward)(const gd_rms_norm_problem *p,
                                          const gd_rms_norm_gradients *g, int threads)
{
    const bool in_place = g->dx == g->dy || g->dx == g->dsum;
    const backward_rows b = {
        .p = p,
        .g = g,
        .x = matrix_of(p, g->x, p->dtype, g->x_stride),
        .dy = matrix_of(p, g->dy, p->y_dtype, g->dy_stride),
        .dsum = matrix_of(p, g->dsum, p->dtype, g->dsum_stride),
        .dx = result_of(p, g->dx, p->dtype, g->dx_stride, g->accumulate_dx, in_place),
        .dbranch = result_of(p, g->dbranch, p->y_dtype, g->dbranch_stride, g->accumulate_dbranch,
                             g->dbranch == g->dy),
        .sums = rms_norm_weight_rows(p) * p->cols};
    const int64_t pieces = gd_divide_up(p->rows, rms_norm_piece_rows(p));
    gd_for_each(gd_threads_for(threads, p->rows * p->cols), pieces, backward_piece, &b);
    reduce_partials(&b, g->dweight, g->accumulate_dweight, 0, pieces, threads);
    reduce_partials(&b, g->dbias, g->accumulate_dbias, 1, pieces, threads);
}
