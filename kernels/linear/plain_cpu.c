/* plain_cpu.c - linear as README.md derives it, in three loops. It has the interface of
 * linear_cpu.c's kernels, which tests compare with it. */
#include "kernel_cpu.h"

gd_status GD_REAL_NAME(linear_plain_forward)(const gd_call *call)
{
    const REAL *x = gd_data(call->input[0]), *w = gd_data(call->input[1]);
    const REAL *b = gd_data(call->input[2]);
    REAL *y = gd_data(call->output[0]);
    const int64_t M = gd_row_count(call->input[0]), K = gd_last_dim(call->input[0]);
    const int64_t N = gd_last_dim(call->output[0]);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            y[m * N + n] = b ? b[n] : 0;
            for (int64_t k = 0; k < K; k++) y[m * N + n] += x[m * K + k] * w[n * K + k];
        }
    return GD_OK;
}

gd_status GD_REAL_NAME(linear_plain_backward)(const gd_call *call)
{
    const REAL *x = gd_data(call->input[0]), *w = gd_data(call->input[1]);
    const REAL *dy = gd_dy(call, 0);
    REAL *dx = gd_dx_sum(call, 0), *dw = gd_dx_sum(call, 1), *db = gd_dx_sum(call, 2);
    const int64_t M = gd_row_count(call->input[0]), K = gd_last_dim(call->input[0]);
    const int64_t N = gd_last_dim(call->output[0]);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            if (db) db[n] += dy[m * N + n]; /* [db] */
            for (int64_t k = 0; k < K; k++) {
                if (dx) dx[m * K + k] += dy[m * N + n] * w[n * K + k]; /* [dx] */
                if (dw) dw[n * K + k] += dy[m * N + n] * x[m * K + k]; /* [dw] */
            }
        }
    return GD_OK;
}
