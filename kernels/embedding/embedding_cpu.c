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

/* dtable[v, :] = the sum of dy[i, :] over all i with ids[i] = v.
 *
 * The same id may come many times, so threads that took different i would write the same row.
 * Each takes some columns of all rows instead, and adds in the order of i: no two write the same
 * place, and the order of the sum does not depend on the threads. */
gd_status GD_REAL_NAME(embedding_backward)(const gd_call *call)
{
    enum { COLUMNS = 32 }; /* 128 bytes of float: two cache lines at a time */
    gd_tensor *gradient = call->dinput[0];
    if (!gradient || gd_tensor_count(gradient) == 0) return GD_OK;
    const REAL *dy = gd_data(call->doutput[0]);
    const int32_t *ids = gd_data(call->input[1]);
    REAL *dtable = gd_data(gradient);
    int64_t rows = gd_tensor_count(call->input[1]), columns = gd_tensor_dim(gradient, 1);
    int64_t slices = (columns + COLUMNS - 1) / COLUMNS;
    int threads = gd_threads_for(call->threads, rows * columns);
    if (!call->accumulate[0]) memset(dtable, 0, (size_t)gd_tensor_count(gradient) * sizeof *dtable);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t slice = 0; slice < slices; slice++) {
        int64_t first = slice * COLUMNS, end = gd_min64(first + COLUMNS, columns);
        for (int64_t i = 0; i < rows; i++) {
            REAL *to = dtable + ids[i] * columns;
            const REAL *from = dy + i * columns;
            for (int64_t c = first; c < end; c++) to[c] += from[c];
        }
    }
    return GD_OK;
}
