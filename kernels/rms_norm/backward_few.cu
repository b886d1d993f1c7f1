// backward_few.cu - dx and dw for few rows, in one kernel.
//
// With few rows, a second launch and writing and reading back partial sums would cost more than the
// data. But rstd is given, so dw needs no sum over a row: some blocks work by columns and sum dy *
// xhat over all rows; the others work by rows and write dx. Both kinds run at the same time and
// everything fits in L2, so x and dy are read twice, but from DRAM only once.
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

// Columns of a block: `wide` packs side by side, with the rows dealt out to blockDim.x / wide
// threads. A narrower block means fewer rows per thread to wait for, and more blocks.
template <class S, class B>
__device__ inline void dweight_of_columns(const Backward &a, int wide)
{
    constexpr int V = pack_size<S, B>;
    const int packs = (int)(a.cols / V), column = (int)blockIdx.x * wide + (int)threadIdx.x % wide;
    const int first = (int)threadIdx.x / wide, step = (int)blockDim.x / wide;
    gd_pack<float, V> dw = {};
    if (column < packs) {
#pragma unroll 4
        for (int row = first; row < (int)a.rows; row += step) {
            const float rstd = ((const float *)a.rstd)[row];
            const Row at(row);
            float x[V], dy[V];
            gd_raw<S, V>::load(at.of<S>(a.x, a.x_stride) + column * V).widen(x);
            gd_raw<B, V>::load(at.of<B>(a.dy, a.dy_stride) + column * V).widen(dy);
#pragma unroll
            for (int j = 0; j < V; j++) {
                const float xhat = rms_norm_xhat(x[j], rstd);
                const bool round = sizeof(B) == 2 && a.round_before_weight;
                dw[j] += rms_norm_dw(dy[j], round ? rounded<B>(xhat) : xhat);
            }
        }
    }
    const gd_sum_place out = {a.dweight, a.dweight_dtype, a.accumulate_dweight};
    gd_finish_sums<8>(dw, wide, (int)blockDim.x / 32, out, a.cols);
}

// One block per row.
template <class S, class B, bool ADD, int CHUNKS>
__device__ inline void dx_of_row(const Backward &a, int64_t row)
{
    constexpr int V = pack_size<S, B>;
    __shared__ float shared[32];
    const int packs = (int)(a.cols / V), threads = (int)blockDim.x, member = (int)threadIdx.x;
    const Row at(row);
    const float rstd = ((const float *)a.rstd)[row];
    gd_raw<S, V> x[CHUNKS] = {}, dsum[CHUNKS] = {};
    gd_raw<B, V> dy[CHUNKS] = {};
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * threads + member;
        if (i >= packs) continue;
        x[k] = gd_raw<S, V>::load(at.of<S>(a.x, a.x_stride) + i * V);
        dy[k] = gd_raw<B, V>::load(at.of<B>(a.dy, a.dy_stride) + i * V);
        if (ADD) dsum[k] = gd_raw<S, V>::load(at.of<S>(a.dsum, a.dsum_stride) + i * V);
    }
    float w[CHUNKS][V], dot = 0;
    load_w<B>(w, a, a.weight, 0, member, threads, (packs - member + threads - 1) / threads);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) dot = add_products<S, B, V>(dot, x[k], dy[k], w[k]);
    dot = gd_sum(dot, shared);
    const float c = rstd * rstd * (dot * rstd * a.per_col);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * threads + member;
        float dx[V], dw[V] = {};
        gradient_pack<S, B>(dx, dw, x[k], dy[k], w[k], rstd, c, false);
        if (i < packs)
            store_gradient<S, B, ADD>(a, at.of<S>(a.dx, a.dx_stride),
                                      at.of<B>(a.dbranch, a.dbranch_stride), i, dx, dsum[k]);
    }
}

template <class S, class B, bool ADD, int CHUNKS>
__global__ void __launch_bounds__(512)
    backward_few_kernel(const __grid_constant__ Backward a, int wide, int dweight_blocks)
{
    const int row = (int)blockIdx.x - dweight_blocks;
    const bool few = a.rows <= MULTIPROCESSORS;
    if (!few) let_next_start();
#if GD_HOPPER
    if (row >= 0 && row < MULTIPROCESSORS && threadIdx.x == 0) {
        const Row at(row);
        bulk_prefetch(at.of<S>(a.x, a.x_stride), (uint32_t)a.cols * sizeof(S));
        bulk_prefetch(at.of<B>(a.dy, a.dy_stride), (uint32_t)a.cols * sizeof(B));
    }
#endif
    wait_for_previous();
    if (few) let_next_start();
    if (row < 0)
        dweight_of_columns<S, B>(a, wide);
    else
        dx_of_row<S, B, ADD, CHUNKS>(a, row);
}

cudaError_t backward_few(const Backward &a, cudaStream_t stream)
{
    return by_inputs(a, a.dsum, [&](auto s, auto b, auto add) {
        using S = decltype(s);
        using B = decltype(b);
        const int packs = (int)a.cols / pack_size<S, B>, chunks = packs <= 512 ? 1 : 2;
        int wide = 8; // fewer for more rows and fewer packs: blocks enough for all multiprocessors
        if (packs <= 512 && a.rows > 64) wide = 4;
        if (packs <= 128 && a.rows > 256) wide = 2;
        const int threads = 32 * (int)gd_ceil_div(packs, 32 * chunks);
        const int dweight_blocks = a.dweight ? (int)gd_ceil_div(packs, wide) : 0;
        const Shape shape = {dweight_blocks + (a.dx || a.dbranch ? a.rows : 0),
                             threads < 256 ? 256 : threads}; // at least this many for the columns
        return by_number<1, 2>(chunks, [&](auto chunks) {
            return launch<backward_few_kernel<S, B, add.value, chunks.value>>(shape, stream, a,
                                                                              wide, dweight_blocks);
        });
    });
}

} // namespace gd_rms
