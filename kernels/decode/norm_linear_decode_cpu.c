/* norm_linear_decode_cpu.c - the CPU kernel of norm_linear_decode: the sum and its norm, then a
 * product (kernels/matmul/gemm.h). */
#include "decode/norm_linear_decode.h"
#include "matmul/gemm.h"

#include <math.h>

gd_status GD_REAL_NAME(norm_linear_decode_forward)(const gd_call *call)
{
    const REAL *x = gd_data(call->input[0]), *residual = gd_data(call->input[1]);
    const REAL *norm_weight = gd_data(call->input[2]), *weight = gd_data(call->input[3]);
    REAL *y = gd_data(call->output[0]), *sum = gd_data(call->output[1]);
    const int64_t M = gd_row_count(call->input[0]), K = gd_last_dim(call->input[0]);
    const int64_t N = gd_last_dim(call->output[0]);
    const double eps = ((const norm_linear_decode_args *)call->args)->eps;
    REAL *h = gd_call_scratch(call, (size_t)(M * K) * sizeof *h);
    if (!h) return GD_ERROR_MEMORY;
    for (int64_t m = 0; m < M; m++) {
        double squares = 0;
        for (int64_t k = m * K; k < (m + 1) * K; k++) {
            sum[k] = x[k] + residual[k];
            squares += (double)sum[k] * (double)sum[k];
        }
        const REAL rstd = (REAL)(1 / sqrt(squares / (double)K + eps));
        for (int64_t k = 0; k < K; k++) h[m * K + k] = sum[m * K + k] * rstd * norm_weight[k];
    }
    return gemm_of_call(call, y, (gemm_matrix){h, K, 1}, (gemm_matrix){weight, 1, K}, M, N, K,
                        false, &(gemm_memory){0});
}
