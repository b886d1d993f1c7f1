// forward.cu - y = x rstd factor + bias, and with a residual sum = x + residual; the row is read
// once and stays in registers.
//
// threads_per_row threads share a row: 4 to 32 lanes of a warp, or a whole block. Each loads its
// CHUNKS packs of 16 bytes, all on their way at once; then the squares are summed, by shuffles and,
// in a block, through shared memory; then y is written from the registers. What counts is how many
// bytes are on their way: so the kernel says how many blocks a multiprocessor should hold, and the
// compiler makes do with the registers which that leaves.
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

// The first blocks wait while the kernel ahead ends, and meanwhile bring their rows to L2. Those
// that start later read theirs at once, and for them it would be a detour.
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
    v = gd_lane_sum(v, shift < 5 ? 1 << shift : 32);
    if (shift <= 5) return v;
    __shared__ float warp_sums[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (lane == 0) warp_sums[warp] = v;
    __syncthreads();
    return gd_lane_sum(lane < warps ? warp_sums[lane] : 0.0f, 32);
}

// The most registers of a thread: for what it holds of its row, and some to compute in; with 64 a
// block of 1024 threads, the largest, can still run.
template <class S, class B, bool ADD>
constexpr int forward_cap(int chunks, int rows)
{
    constexpr int V = pack_size<S, B>;
    const int held = chunks * rows * V * (int)(sizeof(S) + (ADD ? sizeof(B) : 0)) / 4;
    return held == 32 ? 64 : (held + (rows > 1 ? 40 : 32) + V + 7) / 8 * 8;
}

// ROWS: of a thread, `groups` rows apart, where rows are so short that one is soon done.
template <class S, class B, bool ADD, int CHUNKS, int ROWS>
__global__ void __maxnreg__((forward_cap<S, B, ADD>(CHUNKS, ROWS)))
    forward_kernel(const __grid_constant__ Forward a, int shift, int waiting)
{
    constexpr int V = pack_size<S, B>;
    constexpr bool EARLY = CHUNKS <= 3; // the weight is on its way before x
    const int threads = shift <= 5 ? 1 << shift : (int)blockDim.x, packs = (int)(a.cols / V);
    const int member = (int)threadIdx.x & ((1 << shift) - 1);
    const int groups = max(1, (int)blockDim.x >> shift), first = (int)blockIdx.x * groups * ROWS;
    // Heads that follow each other `groups` rows apart may be the same.
    const bool one_weight = !a.weight_per_head || groups % (int)a.heads == 0;
    let_next_start();
    if ((int)blockIdx.x < waiting && threadIdx.x == 0) {
        if (ADD)
            prefetch_rows<S>(a, a.at.residual, a.at.residual_stride, first, groups * ROWS);
        prefetch_rows<std::conditional_t<ADD, B, S>>(a, a.at.x, a.at.x_stride, first,
                                                     groups * ROWS);
    }
    wait_for_previous();

    by_weight<B>(a.weight_dtype, [&](auto zero) {
        using W = decltype(zero);
        const W *const weight = (const W *)a.at.weight, *const bias = (const W *)a.at.bias;
        auto load_w = [&](const Row &at, int i, auto now) {
            return load_weight<W, V, decltype(now)::value>(weight ? weight + at.weight : nullptr,
                                                           min(i, packs - 1));
        };
        const uint64_t policy = load_policy(a.keep);
        gd_raw_pack<S, V> x[ROWS][CHUNKS];
        gd_raw_pack<W, V> w[CHUNKS];
        const int row = first + ((int)threadIdx.x >> shift);
#pragma unroll
        for (int k = 0; EARLY && k < CHUNKS; k++)
            w[k] = load_w(Row(a, row), k * threads + member, std::true_type());
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const Row at(a, row + r * groups);
            const bool here = row + r * groups < (int)a.rows;
            gd_raw_pack<B, V> branch[CHUNKS];
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                const int i = k * threads + member;
                x[r][k] = {}, branch[k] = {};
                if (!here || i >= packs) continue;
                if (ADD) branch[k] = load_pack<B, V>(at.of<B>(a.at.x, a.at.x_stride), i, policy);
                x[r][k] = load_pack<S, V>(ADD ? at.of<S>(a.at.residual, a.at.residual_stride)
                                              : at.of<S>(a.at.x, a.at.x_stride),
                                          i, policy);
            }
#pragma unroll
            for (int k = 0; ADD && k < CHUNKS; k++) {
                const int i = k * threads + member;
                x[r][k] = add_pack<S, B, V>(x[r][k], branch[k]);
                if (here && i < packs)
                    *(gd_raw_pack<S, V> *)(at.of<S>(a.at.sum, a.at.sum_stride) + i * V) = x[r][k];
            }
        }
        float rstd[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) sum = add_squares<S, V>(sum, x[r][k]);
            rstd[r] = rstd_of(row_sum(sum, shift), a);
            if (a.at.rstd && member == 0 && row + r * groups < (int)a.rows)
                ((float *)a.at.rstd)[row + r * groups] = rstd[r];
        }
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int i = k * threads + member;
            if (i >= packs) continue;
            float factor[V];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (row + r * groups >= (int)a.rows) continue;
                const Row at(a, row + r * groups);
                if (r == 0 || !one_weight) {
                    if (!EARLY || r > 0) w[k] = load_w(at, i, std::false_type());
                    factor_of<W>(factor, w[k], weight ? a.float_offset : 0.0f);
                }
                float y[V];
                norm_pack<S, B>(y, x[r][k], rstd[r], a.round, factor);
                if (bias) add_bias(y, bias + at.weight, i);
                store_pack(at.of<B>(a.at.y, a.at.y_stride), i, y);
            }
        }
    });
}

template <class S, class B, bool ADD>
static cudaError_t by_chunks(const Forward &a, const ForwardPlan &p, cudaStream_t stream)
{
    const bool block = p.threads_per_row > 32;
    const int shift = block ? 10 : __builtin_ctz((unsigned)p.threads_per_row);
    const int groups = block ? 1 : p.threads / p.threads_per_row;
    const Shape shape = {ceil_div(a.rows, groups * p.rows), p.threads};
    const int waiting = (block ? 2 : 3) * MULTIPROCESSORS;
    auto with = [&](auto chunks, auto rows) {
        return launch<forward_kernel<S, B, ADD, decltype(chunks)::value, decltype(rows)::value>>(
            shape, stream, a, shift, waiting);
    };
    using std::integral_constant;
    switch (p.rows * 10 + p.chunks) {
    case 11:
        return with(integral_constant<int, 1>(), integral_constant<int, 1>());
    case 12:
        return with(integral_constant<int, 2>(), integral_constant<int, 1>());
    case 13:
        return with(integral_constant<int, 3>(), integral_constant<int, 1>());
    case 14:
        return with(integral_constant<int, 4>(), integral_constant<int, 1>());
    case 16:
        return with(integral_constant<int, 6>(), integral_constant<int, 1>());
    case 18:
        return with(integral_constant<int, 8>(), integral_constant<int, 1>());
    case 41:
        return with(integral_constant<int, 1>(), integral_constant<int, 4>());
    case 21:
        return with(integral_constant<int, 1>(), integral_constant<int, 2>());
    }
    return cudaErrorInvalidConfiguration;
}

cudaError_t forward_registers(const Forward &a, const ForwardPlan &plan, cudaStream_t stream)
{
    return by_types(a, [&](auto s, auto b) {
        using S = decltype(s);
        using B = decltype(b);
        return a.at.residual ? by_chunks<S, B, true>(a, plan, stream)
                             : by_chunks<S, B, false>(a, plan, stream);
    });
}

} // namespace gd_rms
