/* rms_norm_cpu.c - RMSNorm on the CPU as fast as memory allows: what plain_cpu.c computes. Both
 * passes have a sum over the row first, and results after it, so every row is read twice: first
 * from memory, then from the cache. Memory is the limit, and it would be idle during the second
 * reading if the next row were not prefetched: each reading prefetches one half of it (stream.h).
 *
 * Results are computed in tiles: some columns of a row, in the first level cache, one option after
 * the other, which are then written to memory at once (tiles.h).
 */
#include "kernel_cpu.h"
#include "rms_norm/tiles.h"

enum {
    GROUP_BYTES = 128 << 10, /* backward: what a group of rows may fill of the second level cache */
    GROUP_ROWS = 8           /* ... and how many it has at most */
};

/* Pass 0 and pass 1 over a row, at column j, each call in a part of one half of another row of a
 * and, if there is one, of b. */
static inline void prefetch_half(const rms_matrix *a, const rms_matrix *b, int64_t row, int64_t j,
                                 int64_t n, int half)
{
    const int64_t at = (half * a->cols + j) / 2;
    gd_prefetch(rms_at(a, row, at), n * a->size / 2);
    if (b->data) gd_prefetch(rms_at(b, row, at), n * b->size / 2);
}

/* total = the sum of term(k) over k below n: of 4 q of them in fours, which are sums in REAL, as to
 * convert every term to double would take longer than to read it; `last` is a term of the rest. */
#define SUM_OF_FOURS(total, q, n, term, last)                                         \
    double total = 0;                                                                 \
    GD_PRAGMA(omp simd reduction(+ : total))                                          \
    for (int64_t k = 0; k < q; k++)                                                   \
        total += (double)(term(k) + term(k + q) + term(k + 2 * q) + term(k + 3 * q)); \
    for (int64_t k = 4 * q; k < (n); k++) total += (last)

/* ---- Forward ------------------------------------------------------------------------------ */

/* Columns j to j + n of a row of x; with a residual of the sum, which is stored on the way. */
static const REAL *x_tile(const rms_work *f, int64_t row, int64_t j, int64_t n, REAL *buffer)
{
    if (f->residual.data) {
        REAL other[STRETCH], *at = rms_at(&f->x, row, j);
        const REAL *branch = rms_row_in(&f->branch, row, j, n, buffer);
        const REAL *residual = rms_row_in(&f->residual, row, j, n, other);
        const bool wide = f->x.dtype == (gd_dtype)REAL_DTYPE;
        REAL *sum = wide ? at : buffer;
        GD_EACH(k, n) sum[k] = branch[k] + residual[k];
        if (!wide) gd_find_converter(f->x.dtype, (gd_dtype)REAL_DTYPE)(at, 1, sum, 1, n);
    }
    return rms_row_in(&f->x, row, j, n, buffer);
}

/* First pass: the sum of x^2. Where it leaves the range of REAL, it is taken again in double. */
static inline double row_squares(const rms_work *f, int64_t row, int64_t next)
{
#define SQUARE(k) (x[k] * x[k])
    const int64_t N = f->p->cols;
    REAL buffer[STRETCH];
    for (bool again = false;; again = true) {
        double squares = 0;
        for (int64_t j = 0; j < N; j += STRETCH) {
            const int64_t n = gd_min64(STRETCH, N - j), q = again ? 0 : n / 4;
            prefetch_half(&f->branch, &f->residual, next, j, n, 0);
            const REAL *x =
                again ? rms_row_in(&f->x, row, j, n, buffer) : x_tile(f, row, j, n, buffer);
            SUM_OF_FOURS(total, q, n, SQUARE, (double)x[k] * (double)x[k]);
            squares += total;
        }
        if (again || sizeof(REAL) == sizeof(double) || (squares > 0x1p-80 && squares < 0x1p120))
            return squares;
    }
}

/* Second pass: y, first with the bias -0, which changes no number. */
static void forward_row(const rms_work *f, int64_t row, int64_t next)
{
    const int64_t N = f->p->cols;
    const double squares = row_squares(f, row, next);
    const REAL rstd = (REAL)rms_norm_rstd(squares, (double)N, f->p->eps);
    if (f->rstd) f->rstd[row] = rstd;
    for (int64_t j = 0; j < N; j += TILE) {
        const int64_t n = gd_min64(TILE, N - j);
        REAL y[TILE], wide_x[TILE], wide[TILE], scale = rstd;
        prefetch_half(&f->branch, &f->residual, next, j, n, 1);
        const REAL *x = rms_row_in(&f->x, row, j, n, wide_x);
        const REAL *w = rms_w_in(f, row, j, n, wide);
        x = rms_rounded(f->p, x, &scale, wide_x, n);
        for (int64_t k = 0; k < n; k++)
            y[k] = rms_norm_y(rms_norm_xhat(x[k], scale), w[k], -(REAL)0);
        const REAL *b = f->bias.data ? rms_row_in(&f->bias, row, j, n, wide) : NULL;
        for (int64_t k = 0; b && k < n; k++) y[k] += b[k];
        rms_row_out(&f->y, row, j, y, n);
    }
}

static void forward_piece(const void *work, int64_t piece)
{
    const rms_work *f = work;
    const int64_t rows = f->p->rows, end = rows * (piece + 1) / f->pieces;
    for (int64_t row = rows * piece / f->pieces; row < end; row++)
        forward_row(f, row, gd_min64(row + 1, rows - 1));
    gd_stream_end();
}

void GD_REAL_NAME(rms_norm_fast_forward)(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                         int threads)
{
    rms_work f = rms_forward_of(p, v);
    f.pieces = gd_threads_for(threads, p->rows * p->cols);
    gd_for_each((int)f.pieces, f.pieces, forward_piece, &f);
}

/* ---- Backward ----------------------------------------------------------------------------- */

/* First pass: m. */
static REAL row_mean(const rms_work *b, int64_t row, int64_t next)
{
#define TERM(k) rms_norm_term(rms_norm_h(dy[k], w[k]), rms_norm_xhat(x[k], rstd))
    const REAL rstd = b->rstd[row];
    double dot = 0;
    for (int64_t j = 0; j < b->p->cols; j += STRETCH) {
        const int64_t n = gd_min64(STRETCH, b->p->cols - j), q = n / 4;
        REAL wide_x[STRETCH], wide_dy[STRETCH], wide_w[STRETCH];
        prefetch_half(&b->x, &b->dy, next, j, n, 0);
        const REAL *dy = rms_row_in(&b->dy, row, j, n, wide_dy);
        const REAL *w = rms_w_in(b, row, j, n, wide_w);
        const REAL *x = rms_row_in(&b->x, row, j, n, wide_x);
        SUM_OF_FOURS(total, q, n, TERM, (double)TERM(k));
        dot += total;
    }
    return (REAL)rms_norm_m(dot, (double)b->p->cols);
}

/* Second pass, columns j to j + n of one row: its terms are added to dw and db. dx comes last, as
 * it may take the place of dy or dsum; in c x the product rstd x comes first, as rstd^2 may leave
 * the range of REAL. */
static void backward_tile(const rms_work *b, int64_t row, int64_t j, int64_t n, REAL m, REAL *dw,
                          REAL *db)
{
    const REAL rstd = b->rstd[row], c = rstd * m;
    REAL wide_x[TILE], wide_dy[TILE], wide[TILE], dx[TILE];
    const REAL *x = rms_row_in(&b->x, row, j, n, wide_x);
    const REAL *dy = rms_row_in(&b->dy, row, j, n, wide_dy);
    if (b->dweight.data) {
        REAL scale = rstd;
        const REAL *rounded = rms_rounded(b->p, x, &scale, dx, n);
        for (int64_t k = 0; k < n; k++)
            dw[k] += rms_norm_dw(dy[k], rms_norm_xhat(rounded[k], scale));
    }
    for (int64_t k = 0; b->dbias.data && k < n; k++) db[k] += dy[k];
    if (!b->dx.data && !b->dbranch.data) return;
    const REAL *w = rms_w_in(b, row, j, n, wide);
    for (int64_t k = 0; k < n; k++)
        dx[k] = rms_norm_dx(dy[k] * rstd, w[k], c, rms_norm_xhat(x[k], rstd));
    const REAL *dsum = b->dsum.data ? rms_row_in(&b->dsum, row, j, n, wide) : NULL;
    for (int64_t k = 0; dsum && k < n; k++) dx[k] = add_rms_norm_dx(dx[k], dsum[k]);
    if (b->dx.data) rms_row_out(&b->dx, row, j, dx, n);
    if (b->dbranch.data) rms_row_out(&b->dbranch, row, j, dx, n);
}

/* Adds the sums of a tile over some rows to a piece's sums. */
static void add_rows(double *partial, REAL *sums, int64_t n)
{
    GD_EACH(k, n) partial[k] += (double)sums[k];
    memset(sums, 0, (size_t)n * sizeof *sums);
}

/* A few rows together: a tile of dw and db is summed over them in REAL, and added once to the
 * piece's sums in double, which are as wide as a row and stay in the second level cache. Where
 * there are several heads, the next row belongs to another one. */
static void backward_group(const rms_work *b, int64_t first, int64_t end, int64_t ahead,
                           double *partial)
{
    const int64_t last = b->p->rows - 1, heads = rms_norm_weight_rows(b->p);
    REAL m[GROUP_ROWS] = {0}, dw[TILE] = {0}, db[TILE] = {0};
    const bool wants_dx = b->dx.data || b->dbranch.data;
    for (int64_t row = first; wants_dx && row < end; row++)
        m[row - first] = row_mean(b, row, gd_min64(row + ahead, last));
    for (int64_t j = 0; j < b->p->cols; j += TILE) {
        const int64_t n = gd_min64(TILE, b->p->cols - j);
        for (int64_t row = first; row < end; row++) {
            prefetch_half(&b->x, &b->dy, gd_min64(row + ahead, last), j, n, 1);
            backward_tile(b, row, j, n, m[row - first], dw, db);
            if (!partial || (row + 1 < end && heads == 1)) continue;
            double *const sums = partial + row % heads * b->p->cols + j;
            if (b->dweight.data) add_rows(sums, dw, n);
            if (b->dbias.data) add_rows(sums + b->sums, db, n);
        }
    }
}

/* One piece of the rows, done by one thread in order: its dx, and its rows of the partial sums. */
static void backward_piece(const void *work, int64_t piece)
{
    const rms_work *b = work;
    const int64_t rows = rms_norm_piece_rows(b->p), first = piece * rows;
    const int64_t end = gd_min64(b->p->rows, first + rows);
    const int64_t row_bytes = b->p->cols * (b->x.size + b->dy.size);
    const int64_t group = gd_max64(1, gd_min64(GROUP_ROWS, GROUP_BYTES / row_bytes));
    double *const partial = b->partial ? b->partial + 2 * piece * b->sums : NULL;
    const size_t bytes = (size_t)b->sums * sizeof *partial;
    if (b->dweight.data) memset(partial, 0, bytes);
    if (b->dbias.data) memset(partial + b->sums, 0, bytes);
    for (int64_t row = first; row < end; row += group)
        backward_group(b, row, gd_min64(end, row + group), group, partial);
    gd_stream_end();
}

/* A tile of dweight and one of dbias in turn: = or += the sum over all pieces, in order. */
static void reduce_tile(const void *work, int64_t tile)
{
    const rms_work *b = work;
    const rms_matrix *const t = tile % 2 ? &b->dbias : &b->dweight;
    const int64_t j = tile / 2 * TILE, width = gd_min64(TILE, b->sums - j);
    double sum[TILE] = {0}, before[TILE] = {0};
    if (!t->data) return;
    const double *const partial = b->partial + tile % 2 * b->sums + j;
    char *const at = t->data + j * t->size;
    for (int64_t i = 0; i < b->pieces; i++)
        for (int64_t k = 0; k < width; k++) sum[k] += partial[2 * i * b->sums + k];
    if (t->add) gd_find_converter(GD_FLOAT64, t->dtype)(before, 1, at, 1, width);
    for (int64_t k = 0; k < width; k++) sum[k] += before[k];
    gd_find_converter(t->dtype, GD_FLOAT64)(at, 1, sum, 1, width);
}

void GD_REAL_NAME(rms_norm_fast_backward)(const gd_rms_norm_problem *p,
                                          const gd_rms_norm_gradients *g, int threads)
{
    const rms_work b = rms_backward_of(p, g);
    gd_for_each(gd_threads_for(threads, p->rows * p->cols), b.pieces, backward_piece, &b);
    if (!g->dweight && !g->dbias) return;
    gd_for_each(gd_threads_for(threads, b.pieces * b.sums), 2 * gd_divide_up(b.sums, TILE),
                reduce_tile, &b);
}
