/* embedding_cpu.c - the CPU kernels of embedding. */
#include "kernel.h"

/* An id outside the table is found before anything is computed. */
static gd_status check_ids(const gd_call *call, const int32_t *ids, int64_t count, int64_t vocab)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] >= 0 && ids[i] < vocab) continue;
        return gd_call_fail(call, GD_ERROR_ARGUMENT,
                            "ids[%lld] is %d, wanted 0 to %lld, the rows of table %s", (long long)i,
                            (int)ids[i], (long long)vocab - 1, gd_shape_text(call->input[0]).text);
    }
    return GD_OK;
}

typedef struct lookup {
    REAL *y;
    const REAL *table;
    const int32_t *ids;
    int64_t columns;
} lookup;

static void copy_row(const void *work, int64_t i)
{
    const lookup *w = work;
    memcpy(w->y + i * w->columns, w->table + w->ids[i] * w->columns,
           (size_t)w->columns * sizeof *w->y);
}

/* y [M, C] from table [V, C], ids [M] */
gd_status GD_REAL_NAME(embedding_forward)(const gd_call *call)
{
    const int32_t *ids = gd_data(call->input[1]);
    int64_t rows = gd_tensor_count(call->input[1]), columns = gd_tensor_dim(call->input[0], 1);
    if (check_ids(call, ids, rows, gd_tensor_dim(call->input[0], 0))) return GD_ERROR_ARGUMENT;
    if (columns == 0) return GD_OK;
    const lookup w = {gd_data(call->output[0]), gd_data(call->input[0]), ids, columns};
    gd_for_each(gd_threads_for(call->threads, rows * columns), rows, copy_row, &w);
    return GD_OK;
}

/* Counting sort: order [M] lists the rows by their id, equal ids by the row; those with id v are
 * order[start[v]] to order[start[v + 1] - 1]. start [V + 1] */
static void sort_rows(int64_t *start, int64_t *order, const int32_t *ids, int64_t rows,
                      int64_t vocab)
{
    memset(start, 0, (size_t)(vocab + 1) * sizeof *start);
    for (int64_t i = 0; i < rows; i++) start[ids[i] + 1]++;
    for (int64_t v = 0; v < vocab; v++) start[v + 1] += start[v];
    for (int64_t i = 0; i < rows; i++) order[start[ids[i]]++] = i;
    for (int64_t v = vocab; v > 0; v--) start[v] = start[v - 1];
    start[0] = 0;
}

enum { COLUMNS = 64 };

typedef struct table_gradient {
    REAL *dtable;
    const REAL *dy;
    const int64_t *start, *order;
    int64_t columns, across; /* across: pieces of COLUMNS in a row */
    bool add;
} table_gradient;

static void sum_piece(const void *work, int64_t piece)
{
    const table_gradient *w = work;
    const int64_t v = piece / w->across, first = piece % w->across * COLUMNS;
    const int64_t columns = w->columns, *start = w->start, *order = w->order;
    const REAL *dy = w->dy + first;
    double sum[COLUMNS] = {0};
    int64_t n = gd_min64(COLUMNS, columns - first);
    REAL *to = w->dtable + v * columns + first;
    for (int64_t k = start[v]; k < start[v + 1]; k++) {
#pragma omp simd
        for (int64_t c = 0; c < n; c++) sum[c] += (double)dy[order[k] * columns + c]; /* [dtable] */
    }
    if (w->add && start[v] == start[v + 1]) return;
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
    int64_t *start = gd_call_scratch(call, (size_t)(vocab + 1) * sizeof *start);
    int64_t *order = gd_call_scratch(call, (size_t)rows * sizeof *order);
    if (!start || !order) return gd_error_status(call->context);
    sort_rows(start, order, ids, rows, vocab);
    const table_gradient w = {.dtable = gd_data(gradient),
                              .dy = gd_data(call->doutput[0]),
                              .start = start,
                              .order = order,
                              .columns = columns,
                              .across = gd_divide_up(columns, COLUMNS),
                              .add = call->accumulate[0]};
    gd_for_each(gd_threads_for(call->threads, rows * columns), vocab * w.across, sum_piece, &w);
    return GD_OK;
}
