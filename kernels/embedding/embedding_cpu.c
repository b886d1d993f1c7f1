/* embedding_cpu.c - the CPU kernels of embedding. */
#include "arguments.h"
#include "stream.h"

enum { AHEAD = 16 }; /* rows that are fetched from anywhere in the table before they are needed */

/* An id outside the table is found before anything is computed. */
static gd_status check_ids(const gd_call *call, const int32_t *ids, int64_t count, int64_t vocab)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] >= 0 && ids[i] < vocab) continue;
        return gd_refuse(call, "ids[%lld] is %d, wanted 0 to %lld, the rows of table %s",
                         (long long)i, (int)ids[i], (long long)vocab - 1,
                         gd_shape_text(call->input[0]).text);
    }
    return GD_OK;
}

typedef struct lookup {
    REAL *y;
    const REAL *table;
    const int32_t *ids;
    int64_t rows, columns;
} lookup;

static void copy_row(const void *work, int64_t i)
{
    const lookup *w = work;
    const size_t bytes = (size_t)w->columns * sizeof *w->y;
    if (i + AHEAD < w->rows) gd_prefetch(w->table + w->ids[i + AHEAD] * w->columns, (int64_t)bytes);
    memcpy(w->y + i * w->columns, w->table + w->ids[i] * w->columns, bytes);
}

/* y [M, C] from table [V, C], ids [M] */
gd_status GD_REAL_NAME(embedding_forward)(const gd_call *call)
{
    const int32_t *ids = gd_data(call->input[1]);
    int64_t rows = gd_tensor_count(call->input[1]), columns = gd_tensor_dim(call->input[0], 1);
    if (check_ids(call, ids, rows, gd_tensor_dim(call->input[0], 0))) return GD_ERROR_ARGUMENT;
    if (columns == 0) return GD_OK;
    const lookup w = {gd_data(call->output[0]), gd_data(call->input[0]), ids, rows, columns};
    gd_for_each(gd_threads_for(call->threads, rows * columns), rows, copy_row, &w);
    return GD_OK;
}

/* Sorts the rows by their id, equal ids by the row, digit by digit from the last: each pass counts,
 * and takes as long as there are rows, however many ids there could be. Both arrays are [M];
 * returns that which lists the rows. */
static const int64_t *sort_rows(int64_t *order, int64_t *other, const int32_t *ids, int64_t rows,
                                int64_t vocab)
{
    enum { BITS = 11, MASK = (1 << BITS) - 1 };
    for (int shift = 0; shift == 0 || (shift < 31 && (vocab - 1) >> shift); shift += BITS) {
        int64_t place[MASK + 2] = {0}; /* of the next row with a digit */
        for (int64_t i = 0; i < rows; i++) place[(ids[i] >> shift & MASK) + 1]++;
        for (int digit = 0; digit < MASK; digit++) place[digit + 1] += place[digit];
        for (int64_t i = 0; i < rows; i++) {
            const int64_t row = shift ? order[i] : i;
            other[place[ids[row] >> shift & MASK]++] = row;
        }
        int64_t *sorted = other;
        other = order;
        order = sorted;
    }
    return order;
}

enum { COLUMNS = 64 };

typedef struct table_gradient {
    REAL *dtable;
    const REAL *dy;
    const int32_t *ids;
    const int64_t *order, *start; /* the runs of equal ids begin at order[start[0]] ... */
    int64_t columns, across;      /* across: pieces of COLUMNS in a row */
    int64_t runs, vocab;
    bool add;
} table_gradient;

/* The id of a run; after the last one, the end of the table. */
static int64_t id_of(const table_gradient *w, int64_t run)
{
    return run < w->runs ? w->ids[w->order[w->start[run]]] : w->vocab;
}

/* A run's row, after those without an id before it, which are zeros unless they are added to. */
static void sum_piece(const void *work, int64_t piece)
{
    const table_gradient *w = work;
    const int64_t run = piece / w->across, first = piece % w->across * COLUMNS;
    const int64_t columns = w->columns, *start = w->start, *order = w->order;
    const int64_t n = gd_min64(COLUMNS, columns - first);
    const REAL *dy = w->dy + first;
    for (int64_t v = run ? id_of(w, run - 1) + 1 : 0; !w->add && v < id_of(w, run); v++)
        memset(w->dtable + v * columns + first, 0, (size_t)n * sizeof *dy);
    if (run == w->runs) return;
    if (run + AHEAD < w->runs)
        gd_prefetch_to_write(w->dtable + id_of(w, run + AHEAD) * columns + first,
                             n * (int64_t)sizeof *dy);
    double sum[COLUMNS] = {0};
    REAL *to = w->dtable + w->ids[order[start[run]]] * columns + first;
    for (int64_t k = start[run]; k < start[run + 1]; k++) {
#pragma omp simd
        for (int64_t c = 0; c < n; c++) sum[c] += (double)dy[order[k] * columns + c]; /* [dtable] */
    }
    for (int64_t c = 0; c < n; c++) to[c] = (REAL)(w->add ? (double)to[c] + sum[c] : sum[c]);
}

/* dtable[v, :] = the sum of dy[i, :] over all i with ids[i] = v, in the order of i and in double.
 *
 * The same id may occur many times, so threads with different i would write the same row. The rows
 * of dy are sorted by id first; then each piece of dtable, COLUMNS columns of one row, is written
 * by one thread, once. */
gd_status GD_REAL_NAME(embedding_backward)(const gd_call *call)
{
    gd_tensor *gradient = call->dinput[0];
    if (!gradient || gd_tensor_count(gradient) == 0) return GD_OK;
    const int32_t *ids = gd_data(call->input[1]);
    int64_t rows = gd_tensor_count(call->input[1]);
    int64_t vocab = gd_tensor_dim(gradient, 0), columns = gd_tensor_dim(gradient, 1);
    int64_t *scratch = gd_call_scratch(call, (size_t)(3 * rows + 1) * sizeof *scratch);
    if (!scratch) return gd_error_status(call->context);
    const bool add = call->accumulate[0];
    const int64_t *order = sort_rows(scratch, scratch + rows, ids, rows, vocab);
    int64_t *start = scratch + 2 * rows, runs = 0;
    for (int64_t k = 0; k < rows; k++) {
        if (k == 0 || ids[order[k]] != ids[order[k - 1]]) start[runs++] = k;
    }
    start[runs] = rows;
    const table_gradient w = {.dtable = gd_data(gradient),
                              .dy = gd_data(call->doutput[0]),
                              .ids = ids,
                              .order = order,
                              .start = start,
                              .columns = columns,
                              .across = gd_divide_up(columns, COLUMNS),
                              .runs = runs,
                              .vocab = vocab,
                              .add = add};
    gd_for_each(gd_threads_for(call->threads, rows * columns), (runs + !add) * w.across, sum_piece,
                &w);
    return GD_OK;
}
