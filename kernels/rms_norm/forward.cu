// forward.cu - y = x rstd w + bias, and with a residual sum = x + residual; the row is read
// once and stays in registers.
//
// threads_per_row threads share a row: 4 to 32 lanes of a warp, or a whole block. Each loads its
// CHUNKS packs of 16 bytes, all in flight at once; then the squares are summed, by shuffles and, in
// a block, through shared memory; then y is written from the registers. Throughput depends on the
// bytes in flight, and so on occupancy: registers are capped (forward_cap).
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

// The first blocks have to wait for the preceding kernel and prefetch their rows to L2 meanwhile.
// Blocks that start later can load at once; a prefetch would only delay them.
template <class T>
__device__ inline void prefetch_rows(const Problem &p, const void *x, int64_t stride, int row,
                                     int rows)
{
#if GD_HOPPER
    const int there = min(rows, (int)p.rows - row);
    if (there > 0 && (rows == 1 || stride == p.heads * p.cols))
        bulk_prefetch(Row(p, row).of<T>(x, stride), (uint32_t)(there * p.cols * sizeof(T)));
#endif
}

// The sum over the threads of a row: 2^shift lanes, or all of the block where shift is 10.
__device__ inline float row_sum(float v, int shift)
{
    v = gd_sum(v, shift < 5 ? 1 << shift : 32);
    if (shift <= 5) return v;
    __shared__ float warp_sums[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (lane == 0) warp_sums[warp] = v;
    __syncthreads();
    return gd_sum(lane < warps ? warp_sums[lane] : 0.0f, 32);
}

// The cap on registers per thread: those for its part of the row and some for the arithmetic. For
// the most common calls, one dtype and no residual, it was measured: a few spilled registers cost
// less than one block fewer on the multiprocessor.
template <class S, class B, class W, bool ADD, bool SPREAD>
constexpr int forward_cap(int chunks)
{
    constexpr int V = pack_size<S, B>;
    if (SPREAD) return 64;
    const int held = chunks * V * (int)(sizeof(S) + (ADD ? sizeof(B) : 0)) / 4;
    if (ADD || sizeof(S) != sizeof(B)) return (held + 32 + V + 7) / 8 * 8;
    if (chunks == 8) return 64;
    if (V == 4) return chunks == 6 ? 48 : 40;
    const bool wide = sizeof(W) > sizeof(B); // a weight of float
    if (chunks == 2) return wide ? 48 : 40;
    if (chunks == 4) return wide ? 56 : 48;
    return 56;
}

template <class S, class B, class W, bool ADD, bool SPREAD, int CHUNKS>
__global__ void __maxnreg__((forward_cap<S, B, W, ADD, SPREAD>(CHUNKS)))
    forward_kernel(const __grid_constant__ Forward a, int shift, int waiting)
{
    constexpr int V = pack_size<S, B>;
    constexpr bool EARLY = CHUNKS <= 3; // the weight is loaded right after x
    const int threads = shift <= 5 ? 1 << shift : (int)blockDim.x;
    const int packs = packs_of<SPREAD, V>(a.cols);
    const int member = (int)threadIdx.x & ((1 << shift) - 1);
    const int rows = max(1, (int)blockDim.x >> shift), first = (int)blockIdx.x * rows;
    const int row = first + ((int)threadIdx.x >> shift);
    const bool here = row < (int)a.rows;
    const bool few = a.rows <= MULTIPROCESSORS;
    if (!few) let_next_start();
    if (!SPREAD && (int)blockIdx.x < waiting && threadIdx.x == 0) {
        if (ADD) prefetch_rows<S>(a, a.residual, a.residual_stride, first, rows);
        prefetch_rows<std::conditional_t<ADD, B, S>>(a, a.x, a.x_stride, first, rows);
    }
    wait_for_previous();
    if (few) let_next_start();

    const Row at(a, row);
    const uint64_t policy = load_policy(a.keep);
    const W *weight = (const W *)a.weight, *bias = (const W *)a.bias;
    const float offset = weight ? a.float_offset : 0.0f;
    if (weight) weight += at.weight;
    if (bias) bias += at.weight;
    gd_raw<W, V> weights[CHUNKS];
    gd_raw<S, V> x[CHUNKS];
    gd_raw<B, V> branch[CHUNKS];
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * threads + member;
        x[k] = {}, branch[k] = {};
        if (!here || i >= packs) continue;
        if (ADD) branch[k] = load_pack<SPREAD, V>(at.of<B>(a.x, a.x_stride), i, a.cols, policy);
        x[k] = load_pack<SPREAD, V>(ADD ? at.of<S>(a.residual, a.residual_stride)
                                        : at.of<S>(a.x, a.x_stride),
                                    i, a.cols, policy);
    }
#pragma unroll
    for (int k = 0; EARLY && k < CHUNKS; k++)
        weights[k] =
            load_weight<W, V, SPREAD, true>(weight, min(k * threads + member, packs - 1), a.cols);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * threads + member;
        if (ADD) x[k] = sum_pack<S, B, V>(x[k], branch[k]);
        if (ADD && here && i < packs)
            store_pack<SPREAD, V>(at.of<S>(a.sum, a.sum_stride), i, a.cols, x[k]);
        sum = add_squares<S, V>(sum, x[k]);
    }
    const float rstd = rstd_of(row_sum(sum, shift), a);
    if (a.rstd && member == 0 && here) ((float *)a.rstd)[row] = rstd;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * threads + member;
        if (!here || i >= packs) continue;
        if (!EARLY) weights[k] = load_weight<W, V, SPREAD>(weight, i, a.cols);
        float w[V], y[V];
        w_of<W>(w, weights[k], offset);
        norm_pack<S, B>(y, x[k], rstd, a.round_before_weight, w);
        if (bias) add_pack(y, load_weight<W, V, SPREAD>(bias, i, a.cols));
        store_pack<SPREAD, V>(at.of<B>(a.y, a.y_stride), i, a.cols, gd_raw<B, V>::narrow(y));
    }
}

cudaError_t forward_registers(const Forward &a, const ForwardPlan &p, bool spread,
                              cudaStream_t stream)
{
    const bool block = p.threads_per_row > 32;
    const int shift = block ? 10 : __builtin_ctz((unsigned)p.threads_per_row);
    const int waiting = (block ? 2 : 3) * MULTIPROCESSORS;
    return by_inputs(a, a.residual, [&](auto s, auto b, auto add) {
        using S = decltype(s);
        using B = decltype(b);
        constexpr bool ADD = add.value;
        const auto with_weight = [&](auto w, auto spread) {
            constexpr bool SPREAD = spread.value;
            const auto run = [&](auto chunks) {
                return launch<forward_kernel<S, B, decltype(w), ADD, SPREAD, chunks.value>>(
                    p, stream, a, shift, waiting);
            };
            if constexpr (ADD)
                return by_number<2, 4, 8>(p.chunks, run);
            else
                return by_number<2, 3, 4, 6, 8>(p.chunks, run);
        };
        return by_spread(spread, [&](auto spread) {
            return a.weight_dtype == GD_FLOAT32 ? with_weight(float(), spread)
                                                : with_weight(B(), spread);
        });
    });
}

} // namespace gd_rms
