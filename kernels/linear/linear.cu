// linear.cu - three products (kernels/matmul/gemm.cuh) and the sum of dy's rows; a forward of one
// row has a kernel of its own.
#include "async.cuh"
#include "column_sum.cuh"
#include "kernel.h"
#include "launch.cuh"
#include "matmul/gemm.cuh"
#include "team.cuh"

// ---- One row ------------------------------------------------------------------------------------
//
// y [N] = weight [N, K] x [K]. Every weight is read once and used once, so all that counts is that
// the weight comes from memory at full speed, from the first moment on. A warp has a row of it; a
// lane loads PACKS packs of 16 bytes, all at once, and x between them and their use. The lanes'
// sums are added by shuffles. PACKS depends on K alone, and so does the order of the sum.
//
// The weight does not depend on the kernel in front, so that its way to L2 begins before that one
// has ended. (A load would not be allowed there, see bulk_prefetch.)

constexpr int row_threads = 128, row_warps = row_threads / 32;

template <class T, int PACKS>
static __global__ void __launch_bounds__(row_threads)
    row_kernel(T *y, const T *weight, const T *x, const T *bias, int64_t N, int64_t K)
{
    constexpr int V = gd_pack_size<T>;
    const int64_t first = (int64_t)blockIdx.x * row_warps, n = first + threadIdx.x / 32;
    const int64_t packs = K / V, lane = threadIdx.x % 32;
    gd_async::let_next_start();
#if GD_HOPPER
    if (threadIdx.x < row_warps && first + threadIdx.x < N)
        gd_async::bulk_prefetch(weight + (first + threadIdx.x) * K, (uint32_t)(K * sizeof(T)));
#endif
    gd_async::wait_for_previous();
    if (n >= N) return;
    float sums[V] = {};
    for (int64_t begin = lane; begin - lane < packs; begin += 32 * PACKS) {
        gd_raw<T, V> w[PACKS], at_x[PACKS];
#pragma unroll
        for (int k = 0; k < PACKS; k++)
            w[k] = gd_raw<T, V>::load_now(weight + n * K, min(begin + 32 * k, packs - 1));
#pragma unroll
        for (int k = 0; k < PACKS; k++)
            at_x[k] = gd_raw<T, V>::load_now(x, min(begin + 32 * k, packs - 1));
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            float a[V], b[V];
            if (begin + 32 * k >= packs) continue;
            w[k].widen(a), at_x[k].widen(b);
#pragma unroll
            for (int v = 0; v < V; v++) sums[v] += a[v] * b[v];
        }
    }
    float sum = 0;
#pragma unroll
    for (int v = 0; v < V; v++) sum += sums[v];
    sum = gd_sum(sum, 32);
    if (lane == 0) y[n] = gd_store<T>(bias ? sum + gd_load(bias[n]) : sum);
}

// Whether row_kernel does it: the rule must not depend on anything but sizes, dtype and alignment.
static bool is_row(const gd_call *call, int64_t M, int64_t N, int64_t K)
{
    const uint64_t begin = (uintptr_t)gd_tensor_data(call->input[0]) |
                           (uintptr_t)gd_tensor_data(call->input[1]) |
                           (uint64_t)K * gd_dtype_size(call->kernel_dtype);
    return M == 1 && N > 0 && K > 0 && begin % 16 == 0 && call->kernel_dtype != GD_FLOAT64 &&
           gd_ceil_div(N, row_warps) <= INT32_MAX;
}

template <class T>
static gd_status multiply_row(const gd_call *call, int64_t N, int64_t K)
{
    const int64_t few = 32 * 4 * gd_pack_size<T>; // columns in four packs of each lane
    const auto launch = [&](auto packs) {
        return gd_launch(call, {(unsigned)gd_ceil_div(N, row_warps), row_threads},
                         row_kernel<T, packs>, gd_ptr<T>(call->output[0]),
                         gd_ptr<T>(call->input[1]), gd_ptr<T>(call->input[0]),
                         gd_ptr<T>(call->input[2]), N, K);
    };
    return K <= few ? launch(std::integral_constant<int, 4>())
                    : launch(std::integral_constant<int, 8>());
}

// ---- The op -------------------------------------------------------------------------------------

extern "C" gd_status linear_forward_cuda(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *weight = call->input[1], *bias = call->input[2];
    const gd_tensor *y = call->output[0];
    const int64_t M = gd_row_count(x), K = gd_last_dim(x), N = gd_last_dim(y);
    if (is_row(call, M, N, K)) {
        return gd_by_kernel_dtype(call, [&](auto zero) {
            using T = decltype(zero);
            if constexpr (std::is_same_v<T, double>)
                return GD_ERROR_STATE; // not a row
            else
                return multiply_row<T>(call, N, K);
        });
    }
    gd_gemm product = gd_gemm_of(call->kernel_dtype, M, N, K, {gd_tensor_data(y), N, 1},
                                 {gd_tensor_data(x), K, 1}, {gd_tensor_data(weight), 1, K}, false);
    product.bias = gd_ptr<void>(bias);
    gd_gemm_workspace workspace = {};
    return gd_gemm_cuda(call, product, &workspace);
}

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
        /* dx = dy weight ([dx] in plain_cpu.c) */
        const gd_gemm product = gd_gemm_of(call->kernel_dtype, M, K, N, {gd_tensor_data(dx), K, 1},
                                           dy, weight, call->accumulate[0]);
        status = gd_gemm_cuda(call, product, &workspace);
    }
    if (dweight && !status) {
        /* dweight = dy^T x ([dw] in plain_cpu.c) */
        gd_gemm product = gd_gemm_of(call->kernel_dtype, N, K, M, {gd_tensor_data(dweight), K, 1},
                                     gd_transposed(dy), x, call->accumulate[1]);
        product.c_dtype = gd_tensor_dtype(dweight);
        status = gd_gemm_cuda(call, product, &workspace);
    }
    if (!dbias || status) return status;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const gd_row_terms<T> terms = {(const T *)dy.data, N};
        return gd_column_sums<1, gd_compute<T>>(call, call->dinput + 2, call->accumulate + 2, M, N,
                                                terms);
    });
}
