/* norms.h - the loops of the CPU kernels of normalisations.
 *
 *     columns    sums over rows, such as dw and db (GD_COLUMNS_TASK)
 *     channels   sums over the channels of [B, C, S], then a map (GD_CHANNEL_SUM, GD_CHANNEL_EACH)
 */
#ifndef GRADUS_NORMS_H
#define GRADUS_NORMS_H

#include "kernel_cpu.h"

/* What normalisations read and write: x, weight and bias are inputs 0, 1 and 2. */
typedef struct gd_norm_rows {
    const REAL *x, *weight, *bias, *dy;
    REAL *y, *dx;
    double *mean, *rstd; /* of each row; NULL in a forward without a backward */
    int64_t rows, n;     /* n: elements of a row */
    double eps;
    bool add; /* into dx */
} gd_norm_rows;

static inline gd_norm_rows gd_norm_rows_of(const gd_call *call, int64_t rows, int64_t n, double eps)
{
    const bool saves = call->saves > 0;
    return (gd_norm_rows){.x = gd_data(call->input[0]),
                          .weight = gd_data(call->input[1]),
                          .bias = gd_data(call->input[2]),
                          .dy = gd_dy(call, 0),
                          .y = gd_data(call->output[0]),
                          .dx = gd_dx(call, 0),
                          .mean = saves ? gd_data(call->save[0]) : NULL,
                          .rstd = saves ? gd_data(call->save[1]) : NULL,
                          .rows = rows,
                          .n = n,
                          .eps = eps,
                          .add = gd_adds(call, 0)};
}

/* The mean of row r and 1 / sqrt(variance + eps), which are saved. The variance is taken around the
 * mean in a second pass over the row, which is in cache: mean(x^2) - mean(x)^2 would lose all
 * digits where x is far from zero. */
static inline __attribute__((always_inline)) void
gd_row_statistics(const gd_norm_rows *v, int64_t r, double *mean, double *rstd)
{
    const REAL *x = v->x + r * v->n;
    const int64_t n = v->n;
    GD_SUM(sum, i, n, (double)x[i]);
    const double m = sum / (double)n;
    GD_SUM(squares, i, n, ((double)x[i] - m) * ((double)x[i] - m));
    *mean = m;
    *rstd = 1 / sqrt(squares / (double)n + v->eps);
    GD_STEP("v", squares / (double)n);
    if (v->mean) v->mean[r] = *mean, v->rstd[r] = *rstd;
}

/* ---- Columns -------------------------------------------------------------------------------- */

/* to [n] (+)= the sums of the pieces [pieces, n], added in their order into the first, and rounded
 * once; to NULL: nothing */
static inline void gd_columns_store(REAL *to, double *sums, int64_t pieces, int64_t n, bool add)
{
    if (!to) return;
    for (int64_t p = 1; p < pieces; p++) GD_EACH(i, n) sums[i] += sums[p * n + i];
    GD_EACH(i, n) gd_store(to, i, sums[i], add);
}

/* Two sums over rows, dw and db [n] of inputs 1 and 2. The rows are divided into pieces, whose
 * number depends on that of the rows alone; each piece sums in a row of its own, and these are
 * added in order. */
typedef struct gd_columns {
    const void *work;
    int64_t rows, n, pieces;
    double *dw, *db; /* [pieces, n], zeros at first; or NULL */
} gd_columns;

/* Defines the task `name` of a piece: row(work, r, dw, db) adds the terms of row r to dw and db,
 * NULL where they are not wanted. */
#define GD_COLUMNS_TASK(name, row)                                                           \
    static void name(const void *columns, int64_t piece)                                     \
    {                                                                                        \
        const gd_columns *c = columns;                                                       \
        double *dw = c->dw ? c->dw + piece * c->n : NULL;                                    \
        double *db = c->db ? c->db + piece * c->n : NULL;                                    \
        const int64_t end = c->rows * (piece + 1) / c->pieces;                               \
        for (int64_t r = c->rows * piece / c->pieces; r < end; r++) row(c->work, r, dw, db); \
    }

static inline gd_status gd_each_row(const gd_call *call, int64_t elements, int64_t rows, int64_t n,
                                    gd_task *task, const void *work)
{
    enum { PIECES = 16 };
    REAL *dw = gd_dx(call, 1), *db = gd_dx(call, 2);
    gd_columns c = {work, rows, dw || db ? n : 0, gd_max64(gd_min64(rows, PIECES), 1), NULL, NULL};
    const size_t bytes = 2 * (size_t)(c.pieces * c.n) * sizeof(double);
    double *sums = gd_call_scratch(call, bytes);
    if (!sums) return gd_error_status(call->context);
    memset(sums, 0, bytes);
    c.dw = dw ? sums : NULL;
    c.db = db ? sums + c.pieces * c.n : NULL;
    if (elements) gd_each_piece(call, elements, c.pieces, task, &c);
    gd_columns_store(dw, c.dw, c.pieces, n, gd_adds(call, 1));
    gd_columns_store(db, c.db, c.pieces, n, gd_adds(call, 2));
    return GD_OK;
}

/* ---- Channels ------------------------------------------------------------------------------- */

/* x [B, C, S] is divided into strips of channels: one, or, where a channel has a single place in an
 * example, 32, so that memory is read in lines. The inner loop goes along memory: over the places
 * of a channel, or over the channels of the strip. */
enum { GD_STRIP = 32 };

/* `count` channels from `first` on. */
typedef struct gd_strip {
    int64_t first, count;
} gd_strip;

static inline int64_t gd_strip_width(int64_t S)
{
    return S == 1 ? GD_STRIP : 1;
}

static inline gd_strip gd_strip_from(int64_t C, int64_t S, int64_t first)
{
    return (gd_strip){first, gd_min64(gd_strip_width(S), C - first)};
}

/* For each strip of C channels; and for each example: `at` is where the strip begins. */
#define GD_EACH_STRIP(strip, C, S)                                 \
    for (gd_strip strip = gd_strip_from(C, S, 0); strip.count > 0; \
         strip = gd_strip_from(C, S, strip.first + strip.count))
#define GD_EACH_EXAMPLE(at, s, strip) \
    for (int64_t at = (strip).first * (s).S; at < (s).B * (s).C * (s).S; at += (s).C * (s).S)

/* The statement for each of the strip's places i in an example, and its channel c, counted in
 * the strip. */
#define GD_CHANNEL_EACH(i, c, S, strip, statement) \
    do {                                           \
        if ((S) == 1) {                            \
            GD_EACH(c, (strip).count)              \
            {                                      \
                const int64_t i = c;               \
                statement;                         \
            }                                      \
        } else {                                   \
            const int64_t c = 0;                   \
            GD_EACH(i, S) statement;               \
        }                                          \
    } while (0)

/* sum1[c] and sum2[c] += the terms of each, in one pass. */
#define GD_CHANNEL_SUMS(i, c, sum1, sum2, S, strip, term1, term2)                          \
    do {                                                                                   \
        if ((S) == 1) {                                                                    \
            GD_CHANNEL_EACH(i, c, 1, strip, ((sum1)[c] += (term1), (sum2)[c] += (term2))); \
        } else {                                                                           \
            const int64_t c = 0;                                                           \
            double total1_ = 0, total2_ = 0;                                               \
            GD_PRAGMA(omp simd reduction(+ : total1_, total2_))                            \
            for (int64_t i = 0; i < (S); i++) total1_ += (term1), total2_ += (term2);      \
            (sum1)[c] += total1_, (sum2)[c] += total2_;                                    \
        }                                                                                  \
    } while (0)

#define GD_CHANNEL_SUM(i, c, sum, S, strip, term) \
    GD_CHANNEL_SUMS(i, c, sum, ((double[GD_STRIP]){0}), S, strip, term, 0)

#endif
