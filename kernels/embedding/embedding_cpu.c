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

/* y [M, C] from table [V, C], ids [M] */
gd_status GD_REAL_NAME(embedding_forward)(const gd_call *call)
{
    const REAL *table = gd_data(call->input[0]);
    const int32_t *ids = gd_data(call->input[1]);
    REAL *y = gd_data(call->output[0]);
    int64_t rows = gd_tensor_count(call->input[1]), columns = gd_tensor_dim(call->input[0], 1);
    if (check_ids(call, ids, rows, gd_tensor_dim(call->input[0], 0))) return GD_ERROR_ARGUMENT;
    if (columns == 0) return GD_OK;
    int threads = gd_threads_for(call->threads, rows * columns);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        memcpy(y + i * columns, table + ids[i] * columns, (size_t)columns * sizeof *y);
    }
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

/* dtable[v, :] = the sum of dy[i, :] over all i with ids[i] = v, in the order of i and in double.
 *
 * The same id may occur many times, so threads with different i would write the same row. The rows
 * of dy are sorted by id first; then each piece of dtable, COLUMNS columns of one row, is written
 * by one thread, once. */
gd_status GD_REAL_NAME(embedding_backward)(const gd_call *call)
{
    enum { COLUMNS = 64 };
    gd_tensor *gradient = call->dinput[0];
    if (!gradient || gd_tensor_count(gradient) == 0) return GD_OK;
    const REAL *dy = gd_data(call->doutput[0]);
    const int32_t *ids = gd_data(call->input[1]);
    REAL *dtable = gd_data(gradient);
    int64_t rows = gd_tensor_count(call->input[1]);
    int64_t vocab = gd_tensor_dim(gradient, 0), columns = gd_tensor_dim(gradient, 1);
    int64_t *start = gd_call_scratch(call, (size_t)(vocab + 1) * sizeof *start);
    int64_t *order = gd_call_scratch(call, (size_t)rows * sizeof *order);
    if (!start || !order) return gd_error_status(call->context);
    sort_rows(start, order, ids, rows, vocab);
    bool add = call->accumulate[0];
    int threads = gd_threads_for(call->threads, rows * columns);
#pragma omp parallel for num_threads(threads) schedule(static, 4) collapse(2)
    for (int64_t v = 0; v < vocab; v++) {
        for (int64_t first = 0; first < columns; first += COLUMNS) {
            double sum[COLUMNS] = {0};
            int64_t n = gd_min64(COLUMNS, columns - first);
            REAL *to = dtable + v * columns + first;
            for (int64_t k = start[v]; k < start[v + 1]; k++) {
                const REAL *from = dy + order[k] * columns + first;
#pragma omp simd
                for (int64_t c = 0; c < n; c++) sum[c] += (double)from[c]; /* [dtable] */
            }
            if (add && start[v] == start[v + 1]) continue;
            for (int64_t c = 0; c < n; c++) to[c] = (REAL)(add ? (double)to[c] + sum[c] : sum[c]);
        }
    }
    return GD_OK;
}
