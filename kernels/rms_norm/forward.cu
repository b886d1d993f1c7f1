// forward.cu - y = x * rstd * factor + bias, x read once.
//
// A row is read into registers, 16 bytes a load, all loads of a thread in flight at once; then its
// squares are summed, and y is written from the registers. What differs with N is who shares a row:
//   forward_rows   N up to 1024 or so: some lanes of one warp. The sum takes shuffles alone.
//   forward_wide   one block, up to 8192 vectors a row; its warps meet in shared memory.
// Longer rows go through forward_ring.cu.
#include "rms_norm/cuda.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/pack.cuh"

namespace gd_rms
{

// y of one vector from x and factor.
template <class T>
__device__ inline uint4 normalise(const Forward &a, uint4 x, float rstd, const float *factor,
                                  int64_t col)
{
    constexpr int V = vector_size<T>;
    float v[V];
    unpack<T>(v, x);
#pragma unroll
    for (int i = 0; i < V; i++) v[i] *= rstd;
    if (a.round) {
#pragma unroll
        for (int i = 0; i < V; i++) v[i] = rounded<T>(v[i]);
    }
#pragma unroll
    for (int i = 0; i < V; i++) v[i] *= factor[i];
    if (a.bias) {
        float w[V];
        load_weight<V>(w, a.bias, a.weight_dtype, col, 0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < V; i++) v[i] += w[i];
    }
    return pack<T>(v);
}

template <class T>
__device__ inline float square_sum(uint4 x, float sum)
{
    float v[vector_size<T>];
    unpack<T>(v, x);
#pragma unroll
    for (int i = 0; i < vector_size<T>; i++) sum = fmaf(v[i], v[i], sum);
    return sum;
}

// LANES lanes share a row and hold CHUNKS vectors of it each; a warp has 32 / LANES rows. factor is
// put into shared memory by the whole block, while its first rows are on their way.
template <class T, int LANES, int CHUNKS>
__global__ void __launch_bounds__(256) forward_rows(const __grid_constant__ Forward a)
{
    constexpr int V = vector_size<T>;
    extern __shared__ float factor[];
    const int lane = threadIdx.x % LANES;
    const int vectors = (int)(a.cols / V);
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / LANES);
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;

    uint4 bits[CHUNKS];
    auto read_row = [&] {
        const uint4 *x = (const uint4 *)((const T *)a.x + row * a.x_stride);
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int i = k * LANES + lane;
            bits[k] = make_uint4(0, 0, 0, 0);
            if (row < a.rows && i < vectors) bits[k] = __ldcs(x + i);
        }
    };
    read_row();
    for (int i = 4 * threadIdx.x; i < (int)a.cols; i += 4 * blockDim.x)
        load_weight<4>(factor + i, a.weight, a.weight_dtype, i, (float)a.offset, 1.0f);
    __syncthreads();

    // Whole warps stay in the loop together, for the shuffles: the bound is their first row.
    const int ahead = (threadIdx.x % 32) / LANES;
#pragma unroll 1
    while (row - ahead < a.rows) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) sum = square_sum<T>(bits[k], sum);
        sum = lane_sum<LANES>(sum);
        const float rstd = 1.0f / sqrtf(sum / (float)a.cols + (float)a.eps);
        if (row < a.rows) {
            uint4 *y = (uint4 *)((T *)a.y + row * a.y_stride);
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                const int i = k * LANES + lane;
                if (i < vectors)
                    __stcs(y + i, normalise<T>(a, bits[k], rstd, factor + i * V, (int64_t)i * V));
            }
            if (a.rstd && lane == 0) ((float *)a.rstd)[row] = rstd;
        }
        row += step;
        if (row - ahead < a.rows) read_row();
    }
}

// A block has a row, thread t of it the vectors k * blockDim.x + t.
template <class T, int CHUNKS, int THREADS>
__global__ void __launch_bounds__(THREADS) forward_wide(const __grid_constant__ Forward a)
{
    constexpr int V = vector_size<T>;
    __shared__ float warp_sums[32];
    const int vectors = (int)(a.cols / V);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const uint4 *x = (const uint4 *)((const T *)a.x + row * a.x_stride);
        uint4 bits[CHUNKS];
        float sum = 0;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int i = k * (int)blockDim.x + (int)threadIdx.x;
            bits[k] = i < vectors ? __ldcs(x + i) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) sum = square_sum<T>(bits[k], sum);

        sum = lane_sum<32>(sum);
        if (lane == 0) warp_sums[warp] = sum;
        __syncthreads();
        sum = lane_sum<32>(lane < (int)blockDim.x / 32 ? warp_sums[lane] : 0.0f);
        const float rstd = 1.0f / sqrtf(sum / (float)a.cols + (float)a.eps);
        uint4 *y = (uint4 *)((T *)a.y + row * a.y_stride);
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int i = k * (int)blockDim.x + (int)threadIdx.x;
            if (i >= vectors) continue;
            float factor[V];
            load_weight<V>(factor, a.weight, a.weight_dtype, (int64_t)i * V, (float)a.offset, 1.0f);
            __stcs(y + i, normalise<T>(a, bits[k], rstd, factor, (int64_t)i * V));
        }
        if (a.rstd && threadIdx.x == 0) ((float *)a.rstd)[row] = rstd;
        if (row + gridDim.x < a.rows) __syncthreads(); // the sums are free for the next row
    }
}

template <class T, int LANES, int CHUNKS>
static cudaError_t launch_rows(const Forward &a, cudaStream_t stream)
{
    const int threads = 256;
    const int64_t wanted = ceil_div(a.rows, threads / LANES);
    const unsigned blocks = (unsigned)(wanted < 8192 ? wanted : 8192);
    return launch(forward_rows<T, LANES, CHUNKS>, a, blocks, threads,
                  (size_t)a.cols * sizeof(float), 1, stream);
}

template <class T>
static cudaError_t launch_rows_of(const Forward &a, const ForwardPlan &p, cudaStream_t stream)
{
    if (p.lanes == 8 && p.chunks == 2) return launch_rows<T, 8, 2>(a, stream);
    if (p.lanes == 8 && p.chunks == 4) return launch_rows<T, 8, 4>(a, stream);
    if (p.lanes == 16 && p.chunks == 4) return launch_rows<T, 16, 4>(a, stream);
    if (p.lanes == 32 && p.chunks == 3) return launch_rows<T, 32, 3>(a, stream);
    if (p.lanes == 32 && p.chunks == 4) return launch_rows<T, 32, 4>(a, stream);
    if (p.lanes == 32 && p.chunks == 6) return launch_rows<T, 32, 6>(a, stream);
    return launch_rows<T, 32, 8>(a, stream);
}

template <class T, int CHUNKS>
static cudaError_t launch_wide(const Forward &a, const ForwardPlan &p, cudaStream_t stream)
{
    const int64_t most = 2147483647; // of blocks in a grid; the kernel's loop does the rest
    const unsigned blocks = (unsigned)(a.rows < most ? a.rows : most);
    return launch(forward_wide<T, CHUNKS, 1024>, a, blocks, p.threads, 0, 1, stream);
}

template <class T>
static cudaError_t launch_of(const Forward &a, const ForwardPlan &p, cudaStream_t stream)
{
    if (p.kernel == ROWS) return launch_rows_of<T>(a, p, stream);
    if (p.chunks == 4) return launch_wide<T, 4>(a, p, stream);
    return launch_wide<T, 8>(a, p, stream);
}

cudaError_t launch_forward(const Forward &a, const ForwardPlan &p, gd_dtype dtype,
                           cudaStream_t stream)
{
    if (p.kernel == RING) return launch_forward_ring(a, p, dtype, stream);
    if (dtype == GD_FLOAT32) return launch_of<float>(a, p, stream);
    if (dtype == GD_BFLOAT16) return launch_of<__nv_bfloat16>(a, p, stream);
    return launch_of<__half>(a, p, stream);
}

} // namespace gd_rms
