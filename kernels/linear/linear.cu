// linear.cu - three products (kernels/matmul/gemm.cuh) and the sum of dy's rows.
#include "column_sum.cuh"
#include "kernel.h"
#include "matmul/gemm.cuh"

extern "C" gd_status linear_forward_cuda(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *weight = call->input[1], *bias = call->input[2];
    const gd_tensor *y = call->output[0];
    const int64_t M = gd_row_count(x), K = gd_last_dim(x), N = gd_last_dim(y);
    gd_gemm product = gd_gemm_of(call->storage, M, N, K, {gd_tensor_data(y), N, 1},
                                 {gd_tensor_data(x), K, 1}, {gd_tensor_data(weight), 1, K}, false);
    product.bias = gd_ptr<void>(bias);
    gd_gemm_workspace workspace = {};
    return gd_gemm_cuda(call, product, &workspace);
}

// dy [M, N], for its column sums.
template <class T>
struct dy_terms {
    const T *dy;
    int64_t N;

    __device__ void add(int64_t row, int64_t column, gd_compute<T> *sum) const
    {
        sum[0] += gd_load(dy[row * N + column]); /* [db] */
    }
};

// dx = dy weight,  dweight = dy^T x,  dbias = sum of dy's rows
extern "C" gd_status linear_backward_cuda(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0], *dweight = call->dinput[1], *dbias = call->dinput[2];
    const int64_t M = gd_row_count(call->input[0]), K = gd_last_dim(call->input[0]);
    const int64_t N = gd_last_dim(call->output[0]);
    const gd_cuda_matrix x = {gd_tensor_data(call->input[0]), K, 1};
    const gd_cuda_matrix weight = {gd_tensor_data(call->input[1]), K, 1};
    const gd_cuda_matrix dy = {gd_tensor_data(call->doutput[0]), N, 1};
    gd_gemm_workspace workspace = {};
    gd_status status = GD_OK;
    if (dx) {
        /* [dx] */
        const gd_gemm product = gd_gemm_of(call->storage, M, K, N, {gd_tensor_data(dx), K, 1}, dy,
                                           weight, call->accumulate[0]);
        status = gd_gemm_cuda(call, product, &workspace);
    }
    if (dweight && !status) {
        /* [dw] */
        gd_gemm product = gd_gemm_of(call->storage, N, K, M, {gd_tensor_data(dweight), K, 1},
                                     gd_transposed(dy), x, call->accumulate[1]);
        product.c_dtype = gd_tensor_dtype(dweight);
        status = gd_gemm_cuda(call, product, &workspace);
    }
    if (!dbias || status) return status;
    return gd_by_storage(call, [&](auto zero) {
        using T = decltype(zero);
        const dy_terms<T> terms = {(const T *)dy.data, N};
        return gd_column_sums<1, gd_compute<T>>(call, call->dinput + 2, call->accumulate + 2, M, N,
                                                terms);
    });
}
