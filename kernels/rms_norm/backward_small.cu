// backward_small.cu - dx and dw for few rows, in one kernel.
//
// With few rows the launch of a second kernel and the way of the partial sums through memory cost
// more than the data. But rstd is given, so that dw needs no row's sum: some blocks work by
// columns, and sum dy * xhat over all rows, the others by rows, and write dx. Each number of x and
// dy is read twice, from DRAM only once: both kinds of blocks run at once, and L2 holds it all.
#include "rms_norm/async.cuh"
#include "rms_norm/plan.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/pack.cuh"

namespace gd_rms
{

// Columns of a block: WIDE vectors side by side, the rows dealt out to blockDim.x / WIDE threads.
// The narrower, the fewer rows a thread has to wait for, and the more blocks.
template <class T, int WIDE>
__device__ inline void dweight_of_columns(const Backward &a, const SmallDweight &d)
{
    constexpr int V = vector_size<T>;
    __shared__ float sums[32][WIDE * V]; // of warps
    const int vectors = (int)(a.cols / V);
    const int column = (int)blockIdx.x * WIDE + (int)threadIdx.x % WIDE;
    const int row0 = (int)threadIdx.x / WIDE, step = (int)blockDim.x / WIDE;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    float dw[V];
#pragma unroll
    for (int j = 0; j < V; j++) dw[j] = 0;
    if (column < vectors) {
#pragma unroll 4
        for (int row = row0; row < (int)a.rows; row += step) {
            const float rstd = ((const float *)a.rstd)[row];
            float xv[V], dyv[V];
            unpack<T>(xv, *((const uint4 *)((const T *)a.x + row * a.x_stride) + column));
            unpack<T>(dyv, *((const uint4 *)((const T *)a.dy + row * a.dy_stride) + column));
#pragma unroll
            for (int j = 0; j < V; j++) {
                const float xhat = xv[j] * rstd;
                dw[j] = fmaf(dyv[j], a.round ? rounded<T>(xhat) : xhat, dw[j]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < V; j++)
#pragma unroll
        for (int apart = WIDE; apart < 32; apart *= 2) dw[j] += __shfl_xor_sync(~0u, dw[j], apart);
    if (lane < WIDE)
#pragma unroll
        for (int j = 0; j < V; j++) sums[warp][lane * V + j] = dw[j];
    __syncthreads();
    const int64_t col = (int64_t)blockIdx.x * WIDE * V + threadIdx.x;
    if (threadIdx.x >= WIDE * V || col >= a.cols) return;
    float sum = 0;
    for (int i = 0; i < warps; i++) sum += sums[i][threadIdx.x];
    if (d.accumulate) sum += read_as<float>(d.dweight, d.dtype, col);
    write_as<float>(d.dweight, d.dtype, col, sum);
}

// A block has a row.
template <class T, int CHUNKS>
__device__ inline void dx_of_row(const Backward &a, int64_t row)
{
    constexpr int V = vector_size<T>;
    __shared__ float warp_sums[32];
    const int vectors = (int)(a.cols / V);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const uint4 *x = (const uint4 *)((const T *)a.x + row * a.x_stride);
    const uint4 *dy = (const uint4 *)((const T *)a.dy + row * a.dy_stride);
    const float rstd = ((const float *)a.rstd)[row];
    uint4 x_bits[CHUNKS], dy_bits[CHUNKS];
    float w[CHUNKS][V], dot = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * (int)blockDim.x + (int)threadIdx.x;
        x_bits[k] = dy_bits[k] = make_uint4(0, 0, 0, 0);
        if (i < vectors) x_bits[k] = x[i], dy_bits[k] = dy[i];
    }
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * (int)blockDim.x + (int)threadIdx.x;
#pragma unroll
        for (int j = 0; j < V; j++) w[k][j] = 0;
        if (i < vectors)
            load_weight<V>(w[k], a.weight, a.weight_dtype, (int64_t)i * V, (float)a.offset, 1.0f);
    }
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        float xv[V], dyv[V];
        unpack<T>(xv, x_bits[k]), unpack<T>(dyv, dy_bits[k]);
#pragma unroll
        for (int j = 0; j < V; j++) dot = fmaf(dyv[j] * w[k][j], xv[j], dot);
    }
    dot = lane_sum<32>(dot);
    if (lane == 0) warp_sums[warp] = dot;
    __syncthreads();
    const float mean =
        lane_sum<32>(lane < warps ? warp_sums[lane] : 0.0f) * rstd * (1.0f / (float)a.cols);
    uint4 *const dx = (uint4 *)((T *)a.dx + row * a.dx_stride);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * (int)blockDim.x + (int)threadIdx.x;
        float xv[V], dyv[V];
        unpack<T>(xv, x_bits[k]), unpack<T>(dyv, dy_bits[k]);
#pragma unroll
        for (int j = 0; j < V; j++) xv[j] = rstd * fmaf(-xv[j] * rstd, mean, dyv[j] * w[k][j]);
        if (i < vectors) dx[i] = pack<T>(xv);
    }
}

template <class T, int CHUNKS, int WIDE>
__global__ void __launch_bounds__(512)
    backward_small(const __grid_constant__ Backward a, const __grid_constant__ SmallDweight d,
                   int dweight_blocks)
{
    const int row = (int)blockIdx.x - dweight_blocks;
    let_next_start();
#if GD_HOPPER
    if (row >= 0 && row < a.waiting && threadIdx.x == 0) {
        const uint32_t row_bytes = (uint32_t)a.cols * sizeof(T);
        bulk_prefetch((const T *)a.x + row * a.x_stride, row_bytes, false);
        bulk_prefetch((const T *)a.dy + row * a.dy_stride, row_bytes, false);
    }
#endif
    wait_for_previous();
    if (row < 0)
        dweight_of_columns<T, WIDE>(a, d);
    else
        dx_of_row<T, CHUNKS>(a, row);
}

template <class T, int CHUNKS, int WIDE>
static cudaError_t add_small(const Backward &a, const SmallDweight &d, const BackwardPlan &p,
                             Launches *to)
{
    const int64_t dweight_blocks = d.dweight ? ceil_div(a.cols / vector_size<T>, WIDE) : 0;
    const int64_t blocks = dweight_blocks + (a.dx ? a.rows : 0);
    return add_launch(backward_small<T, CHUNKS, WIDE>, dim3((unsigned)blocks),
                      dim3((unsigned)p.threads), 0, 1, true, to, a, d, (int)dweight_blocks);
}

template <class T>
static cudaError_t add_of(const Backward &a, const SmallDweight &d, const BackwardPlan &p,
                          Launches *to)
{
    if (p.chunks == 2) return add_small<T, 2, 8>(a, d, p, to);
    if (p.columns == 2) return add_small<T, 1, 2>(a, d, p, to);
    if (p.columns == 4) return add_small<T, 1, 4>(a, d, p, to);
    return add_small<T, 1, 8>(a, d, p, to);
}

cudaError_t add_backward_small(const Backward &a, const SmallDweight &d, const BackwardPlan &p,
                               gd_dtype dtype, Launches *to)
{
    if (dtype == GD_FLOAT32) return add_of<float>(a, d, p, to);
    if (dtype == GD_BFLOAT16) return add_of<__nv_bfloat16>(a, d, p, to);
    return add_of<__half>(a, d, p, to);
}

} // namespace gd_rms
