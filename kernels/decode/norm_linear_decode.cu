// norm_linear_decode.cu - the CUDA kernel of norm_linear_decode: the sum, the norm and the product in
// one launch.
//
// A warp has a row of the weight, as in linear.cu: a lane loads PACKS packs of it, all at once, and
// the way of the weight to L2 begins before the kernel in front has ended. While they are on their
// way, the block's threads share the work on the other factor, norm_weight (x + residual), and its
// sum of squares, and leave it in shared memory. If a row is wider than 32 PACKS packs, all this is
// done piece by piece.
#include "async.cuh"
#include "launch.cuh"
#include "decode/norm_linear_decode.h"
#include "team.cuh"

constexpr int warps = gd_threads / 32;

template <class T>
struct norm_linear_pass {
    T *y, *sum;
    const T *x, *residual, *norm_weight, *weight;
    int64_t M, N, K;
    gd_compute<T> eps;
};

// V: 1, or the elements in 16 bytes if K is a multiple of them and all addresses are aligned.
template <class T, int V, int PACKS>
static __global__ void __launch_bounds__(gd_threads) norm_linear_kernel(norm_linear_pass<T> s)
{
    using C = gd_compute<T>;
    constexpr int piece = 32 * PACKS; // packs
    __shared__ C factor[piece * V], squares_of[gd_threads];
    const int64_t N = s.N, K = s.K, packs = K / V, first = (int64_t)blockIdx.x * warps;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t n = min(first + warp, N - 1);
    gd_async::let_next_start();
#if GD_HOPPER
    if (V > 1 && threadIdx.x < warps && first + threadIdx.x < N)
        gd_async::bulk_prefetch(s.weight + (first + threadIdx.x) * K, (uint32_t)(K * sizeof(T)));
#endif
    gd_async::wait_for_previous();
    for (int64_t m = 0; m < s.M; m++) {
        C sums[V] = {}, squares = 0;
        for (int64_t begin = 0; begin < packs; begin += piece) {
            gd_raw<T, V> weight[PACKS];
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
                const int64_t i = min(begin + lane + 32 * k, packs - 1);
                if constexpr (V > 1)
                    weight[k] = gd_raw<T, V>::load_now(s.weight + n * K, i);
                else
                    weight[k] = gd_raw<T, V>::load(s.weight + n * K + i);
            }
            C own = 0; // squares
#pragma unroll
            for (int p = threadIdx.x; p < piece; p += gd_threads) {
                const int64_t at = (begin + p) * V;
                T x[V], residual[V], gain[V];
                if (at >= K) break;
                gd_load_guarded(x, s.x + m * K, at, K);
                gd_load_guarded(residual, s.residual + m * K, at, K);
                gd_load_guarded(gain, s.norm_weight, at, K);
#pragma unroll
                for (int v = 0; v < V; v++) {
                    const C sum = (C)gd_load(x[v]) + gd_load(residual[v]);
                    x[v] = gd_store<T>(sum);
                    own += sum * sum;
                    factor[p * V + v] = sum * gd_load(gain[v]);
                }
                if (blockIdx.x == 0) gd_store_guarded(s.sum + m * K, x, at, K);
            }
            squares_of[threadIdx.x] = own;
            __syncthreads();
#pragma unroll
            for (int i = lane; i < gd_threads; i += 32) squares += squares_of[i];
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
                if (begin + lane + 32 * k >= packs) continue;
                T w[V];
                memcpy(w, &weight[k], sizeof w);
#pragma unroll
                for (int v = 0; v < V; v++)
                    sums[v] += gd_load(w[v]) * factor[(lane + 32 * k) * V + v];
            }
            __syncthreads();
        }
        C sum = 0;
#pragma unroll
        for (int v = 0; v < V; v++) sum += sums[v];
        sum = gd_sum(sum);
        squares = gd_sum(squares);
        sum *= rsqrt(squares / (C)K + s.eps);
        if (lane == 0 && first + warp < N) s.y[m * N + n] = gd_store<T>(sum);
    }
}

template <int V, class T>
static gd_status norm_linear_with(const gd_call *call, const norm_linear_pass<T> &s)
{
    const gd_grid grid = {(unsigned)gd_ceil_div(s.N, warps), gd_threads};
    if (s.K <= 32 * 4 * V) return gd_launch(call, grid, norm_linear_kernel<T, V, 4>, s);
    return gd_launch(call, grid, norm_linear_kernel<T, V, 8>, s);
}

extern "C" gd_status norm_linear_decode_forward_cuda(const gd_call *call)
{
    if (gd_tensor_count(call->output[0]) == 0) return GD_OK;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = gd_pack_size<T>;
        norm_linear_pass<T> s = {};
        s.M = gd_row_count(call->input[0]), s.K = gd_last_dim(call->input[0]);
        s.N = gd_last_dim(call->output[0]);
        s.x = gd_ptr<T>(call->input[0]), s.residual = gd_ptr<T>(call->input[1]);
        s.norm_weight = gd_ptr<T>(call->input[2]), s.weight = gd_ptr<T>(call->input[3]);
        s.y = gd_ptr<T>(call->output[0]), s.sum = gd_ptr<T>(call->output[1]);
        const double eps = ((const norm_linear_decode_args *)call->args)->eps;
        s.eps = (gd_compute<T>)gd_option_of_dtype(call->dtype, eps);
        return s.K % V || (uintptr_t)s.weight % 16 ? norm_linear_with<1>(call, s)
                                                   : norm_linear_with<V>(call, s);
    });
}
