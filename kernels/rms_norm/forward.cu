// forward.cu - y = x * rstd * factor + bias, x read once.
//
// A row is read into registers, 16 bytes a load, all loads of a thread in flight at once; then its
// squares are summed, and y is written from the registers. What differs with N is who shares a row:
//   forward_rows   lanes of one warp, rows up to 3 KB. The sum takes shuffles alone.
//   forward_wide   a block, whose warps meet in shared memory.
// Longer rows go through forward_ring.cu. What counts is how many loads are on their way: so each
// kernel says how many blocks a multiprocessor shall hold, and the compiler makes do with the
// registers that leaves. The cache is told to keep x longer than y: pack.cuh says why.
#include "rms_norm/async.cuh"
#include "rms_norm/forward.cuh"
#include "rms_norm/launch.cuh"

namespace gd_rms
{

// Brings a block's rows of x to L2, if it is one of those that wait while the kernel ahead ends.
// Those that start later read theirs at once, and for them it would be a detour.
template <class T, int ROWS>
__device__ inline void prefetch_rows(const Forward &a)
{
#if GD_HOPPER
    if ((int)blockIdx.x < a.waiting && threadIdx.x == 0 && (ROWS == 1 || a.x_stride == a.cols)) {
        const int64_t first = (int64_t)blockIdx.x * ROWS;
        const int64_t rows = ROWS > 1 ? min((int64_t)ROWS, a.rows - first) : 1;
        bulk_prefetch((const T *)a.x + first * a.x_stride, (uint32_t)(rows * a.cols * sizeof(T)),
                      a.keep);
    }
#endif
}

// LANES lanes share a row and hold CHUNKS vectors of it each, of ROWS rows at once. The block puts
// factor into shared memory while its rows are on their way.
template <class T, int LANES, int CHUNKS, int ROWS, int BLOCKS, bool PLAIN, bool KEEP>
__global__ void __launch_bounds__(256, BLOCKS) forward_rows(const __grid_constant__ Forward a)
{
    constexpr int V = vector_size<T>;
    extern __shared__ float shared_factor[];
    const int lane = threadIdx.x % LANES, groups = (int)blockDim.x / LANES;
    const int vectors = (int)(a.cols / V);
    const int64_t row = (int64_t)blockIdx.x * groups * ROWS + threadIdx.x / LANES;
    let_next_start();
    prefetch_rows<T, 256 / LANES * ROWS>(a);
    wait_for_previous();

    // A vector of factor for each thread, since there are LANES * CHUNKS at most; the threads to
    // spare take the last again. It is sent for before x, and without a branch: the compiler likes
    // to unpack x, and so to wait for it, as soon as it can.
    const int mine = (int)threadIdx.x;
    uint4 weight = make_uint4(0, 0, 0, 0);
    if (PLAIN) weight = load_now((const uint4 *)a.weight + min(mine, vectors - 1));

    const uint64_t policy = KEEP ? keep_policy() : 0;
    uint4 bits[ROWS][CHUNKS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const uint4 *x = (const uint4 *)((const T *)a.x + (row + r * groups) * a.x_stride);
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int i = k * LANES + lane;
            bits[r][k] = make_uint4(0, 0, 0, 0);
            if (row + r * groups < a.rows && i < vectors)
                bits[r][k] = KEEP ? load_and_keep(x + i, policy) : x[i];
        }
    }
    float factor[V];
    if (PLAIN) {
        unpack<T>(factor, weight);
#pragma unroll
        for (int j = 0; j < V; j++) factor[j] += (float)a.offset;
    } else {
        load_factor<T, PLAIN>(factor, a, min(mine, vectors - 1) * V);
    }
#pragma unroll
    for (int j = 0; j < V; j++) shared_factor[mine * V + j] = factor[j];
    __syncthreads();
    float rstd[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) sum = square_sum<T>(bits[r][k], sum);
        rstd[r] = rstd_of(lane_sum<LANES>(sum), a);
        if (a.rstd && lane == 0 && row + r * groups < a.rows)
            ((float *)a.rstd)[row + r * groups] = rstd[r];
    }
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * LANES + lane;
        if (i >= vectors) continue;
        const float *const factor = shared_factor + i * V;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            uint4 *y = (uint4 *)((T *)a.y + (row + r * groups) * a.y_stride);
            if (row + r * groups < a.rows)
                y[i] = normalise<T, PLAIN, sizeof(T) == 2>(a, bits[r][k], rstd[r], factor, i * V);
        }
    }
}

// One row, by a block, thread t of it the vectors k * blockDim.x + t. EARLY: factor is read before
// the sum is known, for rows so few that nothing else hides its latency.
template <class T, int CHUNKS, bool EARLY, bool PLAIN, bool KEEP>
__device__ __forceinline__ void forward_row(const Forward &a, int64_t row, uint64_t policy)
{
    __shared__ float warp_sums[32];
    constexpr int V = vector_size<T>;
    constexpr bool MANY = CHUNKS * V > 32; // numbers a thread
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int vectors = (int)(a.cols / V);
    const uint4 *x = (const uint4 *)((const T *)a.x + row * a.x_stride);
    uint4 bits[CHUNKS];
    float factor[EARLY ? CHUNKS : 1][V], sum = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * (int)blockDim.x + (int)threadIdx.x;
        bits[k] = make_uint4(0, 0, 0, 0);
        if (i < vectors) bits[k] = KEEP ? load_and_keep(x + i, policy) : x[i];
    }
    if (EARLY) {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int i = k * (int)blockDim.x + (int)threadIdx.x;
            if (i < vectors) load_factor<T, PLAIN>(factor[k], a, (int64_t)i * V);
        }
    }
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) sum = square_sum<T>(bits[k], sum);
    sum = lane_sum<32>(sum);
    if (lane == 0) warp_sums[warp] = sum;
    __syncthreads();
    sum = lane_sum<32>(lane < warps ? warp_sums[lane] : 0.0f);
    // Division and root are subroutines, past which the compiler moves nothing: where registers are
    // short, it would else begin the results before the sum is known, and spill.
    const float rstd = MANY ? 1.0f / sqrtf(fmaf(sum, a.per_col, (float)a.eps)) : rstd_of(sum, a);
    uint4 *y = (uint4 *)((T *)a.y + row * a.y_stride);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * (int)blockDim.x + (int)threadIdx.x;
        if (i >= vectors) continue;
        const int64_t col = (int64_t)i * V;
        if (!EARLY) load_factor<T, PLAIN>(factor[0], a, col);
        y[i] = normalise<T, PLAIN, sizeof(T) == 2>(a, bits[k], rstd, factor[EARLY ? k : 0], col);
    }
    if (a.rstd && threadIdx.x == 0) ((float *)a.rstd)[row] = rstd;
}

// There is never more than one row to a block. But where registers are short, what the compiler
// makes of a loop over rows was 2 to 7% faster than what it makes of one row, and elsewhere slower.
template <class T, int CHUNKS, int THREADS, int BLOCKS, bool EARLY, bool PLAIN, bool KEEP>
__global__ void __launch_bounds__(THREADS, BLOCKS) forward_wide(const __grid_constant__ Forward a)
{
    constexpr bool LOOP =
        THREADS == 1024 || (CHUNKS == 4 && vector_size<T> == 8) || (EARLY && BLOCKS == 2);
    let_next_start();
    prefetch_rows<T, 1>(a);
    wait_for_previous();
    const uint64_t policy = KEEP ? keep_policy() : 0;
    if constexpr (LOOP) {
#pragma unroll 1
        for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
            forward_row<T, CHUNKS, EARLY, PLAIN, KEEP>(a, row, policy);
            if (row + gridDim.x < a.rows) __syncthreads(); // the sums are free for the next row
        }
    } else {
        forward_row<T, CHUNKS, EARLY, PLAIN, KEEP>(a, blockIdx.x, policy);
    }
}

template <class T, int LANES, int CHUNKS, int ROWS, int BLOCKS>
static cudaError_t add_rows(const Forward &a, Launches *to)
{
    const int threads = 256;
    const int64_t blocks = ceil_div(a.rows, threads / LANES * ROWS);
    if (blocks > 2147483647) return cudaErrorInvalidValue;
    const bool plain = is_plain(a, dtype_of<T>);
    auto kernel = forward_rows<T, LANES, CHUNKS, ROWS, BLOCKS, false, false>;
    if (plain) kernel = forward_rows<T, LANES, CHUNKS, ROWS, BLOCKS, true, false>;
    if (plain && a.keep) kernel = forward_rows<T, LANES, CHUNKS, ROWS, BLOCKS, true, true>;
    return add_launch(kernel, dim3((unsigned)blocks), dim3(threads),
                      threads * vector_size<T> * sizeof(float), 1, true, to, a);
}

template <class T>
static cudaError_t add_rows_of(const Forward &a, const ForwardPlan &p, Launches *to)
{
    auto is = [&](int lanes, int chunks, int rows) {
        return p.lanes == lanes && p.chunks == chunks && p.rows == rows;
    };
    if (is(16, 1, 2)) return add_rows<T, 16, 1, 2, 6>(a, to);
    if constexpr (sizeof(T) == 4) {
        if (is(16, 2, 2)) return add_rows<T, 16, 2, 2, 8>(a, to);
        if (is(32, 2, 2)) return add_rows<T, 32, 2, 2, 6>(a, to);
    } else {
        if (is(8, 3, 1)) return add_rows<T, 8, 3, 1, 6>(a, to);
        if (is(16, 2, 1)) return add_rows<T, 16, 2, 1, 8>(a, to);
        if (is(16, 3, 1)) return add_rows<T, 16, 3, 1, 6>(a, to);
        if (is(32, 2, 1)) return add_rows<T, 32, 2, 1, 8>(a, to);
    }
    if (is(32, 3, 1)) return add_rows<T, 32, 3, 1, 6>(a, to);
    if (is(32, 4, 1)) return add_rows<T, 32, 4, 1, 4>(a, to);
    if (is(32, 5, 1)) return add_rows<T, 32, 5, 1, 4>(a, to);
    if (is(32, 6, 1)) return add_rows<T, 32, 6, 1, 4>(a, to);
    return cudaErrorInvalidConfiguration;
}

template <class T, int CHUNKS, int BLOCKS, bool EARLY>
static cudaError_t add_wide(const Forward &a, const ForwardPlan &p, Launches *to)
{
    constexpr int THREADS = EARLY ? 512 : wide_threads(CHUNKS, BLOCKS);
    // A row has at least 2 KB: more than a grid can hold would be 4 TB of them.
    if (p.threads > THREADS || a.rows > 2147483647) return cudaErrorInvalidConfiguration;
    const dim3 grid((unsigned)a.rows), block((unsigned)p.threads);
    const bool plain = is_plain(a, dtype_of<T>);
    auto kernel = forward_wide<T, CHUNKS, THREADS, BLOCKS, EARLY, false, false>;
    if (plain) kernel = forward_wide<T, CHUNKS, THREADS, BLOCKS, EARLY, true, false>;
    if constexpr (!EARLY) // those few rows fit in L2
        if (plain && a.keep) kernel = forward_wide<T, CHUNKS, THREADS, BLOCKS, false, true, true>;
    return add_launch(kernel, grid, block, 0, 1, true, to, a);
}

template <class T>
static cudaError_t add_of(const Forward &a, const ForwardPlan &p, Launches *to)
{
    if (p.kernel == ROWS) return add_rows_of<T>(a, p, to);
    if (p.early && p.chunks == 1) return add_wide<T, 1, 4, true>(a, p, to);
    if (p.early && p.blocks == 2) return add_wide<T, 2, 2, true>(a, p, to);
    if (p.early) return add_wide<T, 2, 4, true>(a, p, to);
    auto is = [&](int chunks, int blocks) { return p.chunks == chunks && p.blocks == blocks; };
    if (is(2, 4)) return add_wide<T, 2, 4, false>(a, p, to);
    if (is(3, 2)) return add_wide<T, 3, 2, false>(a, p, to);
    if (is(4, 2)) return add_wide<T, 4, 2, false>(a, p, to);
    if (is(6, 2)) return add_wide<T, 6, 2, false>(a, p, to);
    if (is(8, 2)) return add_wide<T, 8, 2, false>(a, p, to);
    if constexpr (sizeof(T) == 4) {
        if (is(8, 1)) return add_wide<T, 8, 1, false>(a, p, to);
    } else {
        if (is(6, 1)) return add_wide<T, 6, 1, false>(a, p, to);
    }
    return cudaErrorInvalidConfiguration;
}

cudaError_t add_forward(const Forward &a, const ForwardPlan &p, gd_dtype dtype, Launches *to)
{
    if (p.kernel == RING) return add_forward_ring(a, p, dtype, to);
    if (dtype == GD_FLOAT32) return add_of<float>(a, p, to);
    if (dtype == GD_BFLOAT16) return add_of<__nv_bfloat16>(a, p, to);
    return add_of<__half>(a, p, to);
}

} // namespace gd_rms
