/* linear_cpu.c - three matrix products (kernels/matmul/gemm.h) and the sum of dy's rows. */
#include "matmul/gemm.h"

gd_status GD_REAL_NAME(linear_forward)(const gd_call *call)
{
    const REAL *x = gd_data(call->input[0]), *weight = gd_data(call->input[1]);
    const REAL *bias = gd_data(call->input[2]);
    REAL *y = gd_data(call->output[0]);
    int64_t M = gd_row_count(call->input[0]), K = gd_last_dim(call->input[0]);
    int64_t N = gd_last_dim(call->output[0]);
    for (int64_t i = 0; bias && i < M; i++) memcpy(y + i * N, bias, (size_t)N * sizeof *y);
    return gemm_of_call(call, y, (gemm_matrix){x, K, 1}, (gemm_matrix){weight, 1, K}, M, N, K,
                        bias != NULL, &(gemm_memory){0});
}

/* dy [M, N] in pieces of `rows` rows, whose sums are sums [pieces, N]. */
typedef struct row_sums {
    const REAL *dy;
    double *sums;
    int64_t M, N, rows;
} row_sums;

static void sum_piece(const void *work, int64_t p)
{
    const row_sums *w = work;
    const int64_t N = w->N;
    double *sum = w->sums + p * N;
    for (int64_t j = 0; j < N; j++) sum[j] = 0;
    for (int64_t i = p * w->rows; i < gd_min64(w->M, (p + 1) * w->rows); i++) {
#pragma omp simd
        for (int64_t j = 0; j < N; j++) sum[j] += (double)w->dy[i * N + j];
    }
}

/* db[j] (+)= sum over rows i of dy[i, j]: each piece of the rows in its own row of sums, which are
 * then added in order. */
static gd_status sum_rows(const gd_call *call, REAL *db, const REAL *dy, int64_t M, int64_t N,
                          bool accumulate)
{
    enum { PIECES = 16 };
    int64_t rows = gd_max64(32, gd_divide_up(M, PIECES)), pieces = gd_divide_up(M, rows);
    double *sums = gd_call_scratch(call, (size_t)(pieces * N) * sizeof *sums);
    if (!sums) return gd_error_status(call->context);
    const row_sums w = {dy, sums, M, N, rows};
    gd_for_each(gd_threads_for(call->threads, M * N), pieces, sum_piece, &w);
    for (int64_t j = 0; j < N; j++) {
        double sum = accumulate ? (double)db[j] : 0;
        for (int64_t p = 0; p < pieces; p++) sum += sums[p * N + j];
        db[j] = (REAL)sum;
    }
    return GD_OK;
}

/* dx = dy weight,  dweight = dy^T x,  dbias = sum of dy's rows ([dx], [dw], [db] in plain_cpu.c) */
gd_status GD_REAL_NAME(linear_backward)(const gd_call *call)
{
    const REAL *x = gd_data(call->input[0]), *weight = gd_data(call->input[1]);
    const REAL *dy = gd_data(call->doutput[0]);
    REAL *dx = gd_data(call->dinput[0]), *dweight = gd_data(call->dinput[1]);
    REAL *dbias = gd_data(call->dinput[2]);
    int64_t M = gd_row_count(call->input[0]), K = gd_last_dim(call->input[0]);
    int64_t N = gd_last_dim(call->output[0]);
    gemm_memory memory = {0};
    gd_status status = GD_OK;
    if (dx) {
        status = gemm_of_call(call, dx, (gemm_matrix){dy, N, 1}, (gemm_matrix){weight, K, 1}, M, K,
                              N, call->accumulate[0], &memory);
    }
    if (dweight && !status) {
        status = gemm_of_call(call, dweight, (gemm_matrix){dy, 1, N}, (gemm_matrix){x, K, 1}, N, K,
                              M, call->accumulate[1], &memory);
    }
    if (dbias && !status) status = sum_rows(call, dbias, dy, M, N, call->accumulate[2]);
    return status;
}
