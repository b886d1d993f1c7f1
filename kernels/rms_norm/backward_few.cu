// backward_few.cu - dx and dw for few rows, in one kernel.
//
// With few rows, a second launch and writing and reading back partial sums would cost more than the
// data. But rstd is given, so dw needs no sum over a row: some blocks work by columns and sum dy *
// xhat over all rows; the others work by rows and write dx. Both kinds run at the same time and
// everything fits in L2, so x and dy are read twice, but from DRAM only once.
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

// Pack i of a row; the compiler may move the load.
template <int V, class T>
__device__ inline gd_raw_pack<T, V> at_pack(const T *row, int i)
{
    gd_raw_pack<T, V> raw;
#pragma unroll
    for (int k = 0; k < (int)sizeof raw / 16; k++) raw.part[k] = ((const uint4 *)(row + i * V))[k];
    return raw;
}

// Columns of a block: `wide` packs side by side, with the rows dealt out to blockDim.x / wide
// threads. A narrower block means fewer rows per thread to wait for, and more blocks.
template <class S, class B>
__device__ inline void dweight_of_columns(const Backward &a, gd_dtype dtype, int wide)
{
    constexpr int V = pack_size<S, B>, MOST = 8;
    __shared__ float sums[16][MOST * V]; // of warps
    const int packs = (int)(a.cols / V), column = (int)blockIdx.x * wide + (int)threadIdx.x % wide;
    const int first = (int)threadIdx.x / wide, step = (int)blockDim.x / wide;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    float dw[V] = {};
    if (column < packs) {
#pragma unroll 4
        for (int row = first; row < (int)a.rows; row += step) {
            const float rstd = ((const float *)a.at.rstd)[row];
            const Row at(row);
            float x[V], dy[V];
            gd_widen<S>(x, at_pack<V>(at.of<S>(a.at.x, a.at.x_stride), column));
            gd_widen<B>(dy, at_pack<V>(at.of<B>(a.at.dy, a.at.dy_stride), column));
#pragma unroll
            for (int j = 0; j < V; j++) {
                const float xhat = x[j] * rstd;
                dw[j] = fmaf(dy[j], sizeof(B) == 2 && a.round ? rounded<B>(xhat) : xhat, dw[j]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < V; j++)
        for (int apart = wide; apart < 32; apart *= 2) dw[j] += __shfl_xor_sync(~0u, dw[j], apart);
    if (lane < wide)
#pragma unroll
        for (int j = 0; j < V; j++) sums[warp][lane * V + j] = dw[j];
    __syncthreads();
    const int64_t col = (int64_t)blockIdx.x * wide * V + threadIdx.x;
    if ((int)threadIdx.x >= wide * V || col >= a.cols) return;
    float sum = 0;
    for (int i = 0; i < warps; i++) sum += sums[i][threadIdx.x];
    const float value[] = {sum};
    put(a.at.dweight, dtype, col, a.cols, a.at.accumulate_dweight, value);
}

// One block per row.
template <class S, class B, bool ADD, int CHUNKS>
__device__ inline void dx_of_row(const Backward &a, int64_t row)
{
    constexpr int V = pack_size<S, B>;
    __shared__ float shared[32];
    const int packs = (int)(a.cols / V), threads = (int)blockDim.x, member = (int)threadIdx.x;
    const Row at(row);
    const float rstd = ((const float *)a.at.rstd)[row];
    gd_raw_pack<S, V> x[CHUNKS] = {}, dsum[CHUNKS] = {};
    gd_raw_pack<B, V> dy[CHUNKS] = {};
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * threads + member;
        if (i >= packs) continue;
        x[k] = at_pack<V>(at.of<S>(a.at.x, a.at.x_stride), i);
        dy[k] = at_pack<V>(at.of<B>(a.at.dy, a.at.dy_stride), i);
        if (ADD) dsum[k] = at_pack<V>(at.of<S>(a.at.dsum, a.at.dsum_stride), i);
    }
    float factor[CHUNKS][V], dot = 0;
    load_factors<B>(factor, a, a.at.weight, member, threads,
                    (packs - member + threads - 1) / threads);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) dot = add_products<S, B, V>(dot, x[k], dy[k], factor[k]);
    dot = gd_block_reduce(dot, shared, gd_plus());
    const float fold = rstd * rstd * (dot * rstd * a.per_col);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * threads + member;
        float dx[V], dw[V] = {};
        gradient_pack<S, B>(dx, dw, x[k], dy[k], factor[k], rstd, fold, false);
        if (i < packs)
            store_gradient<S, B, ADD>(a, at.of<S>(a.at.dx, a.at.dx_stride),
                                      at.of<B>(a.at.dbranch, a.at.dbranch_stride), i, dx, dsum[k]);
    }
}

template <class S, class B, bool ADD, int CHUNKS>
__global__ void __launch_bounds__(512)
    backward_few_kernel(const __grid_constant__ Backward a, gd_dtype dweight_dtype, int wide,
                        int dweight_blocks)
{
    const int row = (int)blockIdx.x - dweight_blocks;
    let_next_start();
#if GD_HOPPER
    if (row >= 0 && row < MULTIPROCESSORS && threadIdx.x == 0) {
        const Row at(row);
        bulk_prefetch(at.of<S>(a.at.x, a.at.x_stride), (uint32_t)a.cols * sizeof(S));
        bulk_prefetch(at.of<B>(a.at.dy, a.at.dy_stride), (uint32_t)a.cols * sizeof(B));
    }
#endif
    wait_for_previous();
    if (row < 0)
        dweight_of_columns<S, B>(a, dweight_dtype, wide);
    else
        dx_of_row<S, B, ADD, CHUNKS>(a, row);
}

template <class S, class B, bool ADD>
static cudaError_t by_chunks(const Backward &a, gd_dtype dweight_dtype, cudaStream_t stream)
{
    const int packs = (int)(a.cols / pack_size<S, B>), chunks = packs <= 512 ? 1 : 2;
    const int wide = packs <= 128 && a.rows > 256 ? 2 : packs <= 512 && a.rows > 64 ? 4 : 8;
    const int threads = 32 * (int)ceil_div(packs, 32 * chunks);
    const int64_t dweight_blocks = a.at.dweight ? ceil_div(packs, wide) : 0;
    const Shape shape = {dweight_blocks + (a.at.dx || a.at.dbranch ? a.rows : 0),
                         threads < 256 ? 256 : threads}; // at least this many for the columns
    if (chunks == 1)
        return launch<backward_few_kernel<S, B, ADD, 1>>(shape, stream, a, dweight_dtype, wide,
                                                         (int)dweight_blocks);
    return launch<backward_few_kernel<S, B, ADD, 2>>(shape, stream, a, dweight_dtype, wide,
                                                     (int)dweight_blocks);
}

cudaError_t backward_few(const Backward &a, gd_dtype dweight_dtype, cudaStream_t stream)
{
    return by_types(a, [&](auto s, auto b) {
        using S = decltype(s);
        using B = decltype(b);
        return a.at.dsum ? by_chunks<S, B, true>(a, dweight_dtype, stream)
                         : by_chunks<S, B, false>(a, dweight_dtype, stream);
    });
}

} // namespace gd_rms
