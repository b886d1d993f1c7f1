// ladder.cu - the steps to a fast RMSNorm, for study; not part of the library.
// `gradus-bench rms_norm --device cuda --ladder` checks and times each rung; README.md has the
// figures.
//
// RMSNorm does very little arithmetic, so the only question is how close a kernel comes to the time
// that its bytes take: x in and y out once (forward), x and dy in, dx out (backward). Every rung is
// float32, N is a multiple of 4, and each rung differs from the one before in one idea.
#include "rms_norm/ladder.h"

namespace
{

// ---- Forward ------------------------------------------------------------------------------------

// Rung 0, naive: one thread per row. Neighbouring threads read addresses N floats apart, so each
// load of a warp touches 32 sectors (the 32-byte units of memory traffic) and uses 4 bytes of each.
// The rest serves the next seven loads, if it is still in L1 by then. And there are only as many
// threads as rows: 2048 rows are 32 blocks, for 132 multiprocessors.
__global__ void forward_naive(float *y, float *rstd_out, const float *x, const float *weight,
                              int64_t rows, int cols, float eps)
{
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += row * cols, y += row * cols;
    float sum = 0;
    for (int j = 0; j < cols; j++) sum += x[j] * x[j];
    const float rstd = 1.0f / sqrtf(sum / (float)cols + eps);
    for (int j = 0; j < cols; j++) y[j] = x[j] * rstd * weight[j];
    rstd_out[row] = rstd;
}

// A sum over the block by a tree in shared memory: log2(threads) steps with a barrier each.
__device__ float block_sum_shared(float v)
{
    __shared__ float sums[1024];
    sums[threadIdx.x] = v;
    for (int half = (int)blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    return sums[0];
}

// The same by shuffles: lanes of a warp exchange registers, which needs no barrier; one barrier
// then combines the warps.
__device__ float block_sum_shuffle(float v)
{
    __shared__ float sums[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step);
    if (lane == 0) sums[warp] = v;
    __syncthreads();
    v = lane < (int)blockDim.x / 32 ? sums[lane] : 0.0f;
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step);
    return v;
}

// Rungs 1 and 2: one block per row, neighbouring threads on neighbouring columns, so that a warp's
// load is 128 contiguous bytes. The row is read twice; the second read mostly comes from L2.
template <bool SHUFFLE>
__global__ void forward_block(float *y, float *rstd_out, const float *x, const float *weight,
                              int cols, float eps)
{
    const int64_t row = blockIdx.x;
    x += row * cols, y += row * cols;
    float sum = 0;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) sum += x[j] * x[j];
    sum = SHUFFLE ? block_sum_shuffle(sum) : block_sum_shared(sum);
    const float rstd = 1.0f / sqrtf(sum / (float)cols + eps);
    for (int j = threadIdx.x; j < cols; j += blockDim.x) y[j] = x[j] * rstd * weight[j];
    if (threadIdx.x == 0) rstd_out[row] = rstd;
}

__device__ float4 scaled(float4 x, float rstd, float4 w)
{
    return make_float4(x.x * rstd * w.x, x.y * rstd * w.y, x.z * rstd * w.z, x.w * rstd * w.w);
}

__device__ float squares(float4 x)
{
    return x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
}

// Rungs 3 and 4: the same with 16-byte loads, a quarter of the instructions for the same bytes, and
// four times the bytes in flight. Rung 5 is rung 4 with both loops unrolled, which changes nothing:
// the compiler does not know the trip count, so each copy of the body keeps its test of j, and the
// load behind a test still waits for the previous addition. Unrolling saves instructions, and those
// are not the bottleneck.
template <bool SHUFFLE, int UNROLL>
__global__ void forward_vectors(float4 *y, float *rstd_out, const float4 *x, const float4 *weight,
                                int vectors, float eps)
{
    const int64_t row = blockIdx.x;
    x += row * vectors, y += row * vectors;
    float sum = 0;
#pragma unroll UNROLL
    for (int j = threadIdx.x; j < vectors; j += blockDim.x) sum += squares(x[j]);
    sum = SHUFFLE ? block_sum_shuffle(sum) : block_sum_shared(sum);
    const float rstd = 1.0f / sqrtf(sum / (4.0f * (float)vectors) + eps);
#pragma unroll UNROLL
    for (int j = threadIdx.x; j < vectors; j += blockDim.x) y[j] = scaled(x[j], rstd, weight[j]);
    if (threadIdx.x == 0) rstd_out[row] = rstd;
}

// Rung 6: rung 4, but the row is read once and kept in shared memory for its second use. A thread
// reads back only what it has stored itself, so that needs no barrier.
__global__ void forward_staged(float4 *y, float *rstd_out, const float4 *x, const float4 *weight,
                               int vectors, float eps)
{
    extern __shared__ float4 staged[];
    const int64_t row = blockIdx.x;
    x += row * vectors, y += row * vectors;
    float sum = 0;
    for (int j = threadIdx.x; j < vectors; j += blockDim.x) {
        staged[j] = x[j];
        sum += squares(staged[j]);
    }
    sum = block_sum_shuffle(sum);
    const float rstd = 1.0f / sqrtf(sum / (4.0f * (float)vectors) + eps);
    for (int j = threadIdx.x; j < vectors; j += blockDim.x)
        y[j] = scaled(staged[j], rstd, weight[j]);
    if (threadIdx.x == 0) rstd_out[row] = rstd;
}

// Rung 7: the row is kept in registers. The trip count is known to the compiler, so here unrolling
// pays: all loads of a thread are in flight at once.
template <int CHUNKS>
__global__ void forward_registers(float4 *y, float *rstd_out, const float4 *x, const float4 *weight,
                                  int vectors, float eps)
{
    const int64_t row = blockIdx.x;
    x += row * vectors, y += row * vectors;
    float4 v[CHUNKS];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int j = k * (int)blockDim.x + (int)threadIdx.x;
        v[k] = j < vectors ? x[j] : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) sum += squares(v[k]);
    sum = block_sum_shuffle(sum);
    const float rstd = 1.0f / sqrtf(sum / (4.0f * (float)vectors) + eps);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int j = k * (int)blockDim.x + (int)threadIdx.x;
        if (j < vectors) y[j] = scaled(v[k], rstd, weight[j]);
    }
    if (threadIdx.x == 0) rstd_out[row] = rstd;
}

// ---- Backward -----------------------------------------------------------------------------------

// Where the terms of dw from each row are stored: in a row of an M x N array, summed by another
// kernel (PARTIALS); in dw itself, by atomic additions (ATOMICS); in the sums of this block, which
// processes many rows (BLOCKS).
enum Dweight { PARTIALS, ATOMICS, BLOCKS };

template <Dweight HOW>
__global__ void backward_block(float *dx, float *dw, const float *dy, const float *x,
                               const float *rstd_in, const float *weight, int64_t rows, int cols)
{
    constexpr int MOST = 32; // columns of a thread, for BLOCKS: 8192 / 256
    float dw_of[MOST];       // they stay in registers from row to row
    for (int k = 0; k < MOST; k++) dw_of[k] = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const float rstd = rstd_in[row];
        const float *x_row = x + row * cols, *dy_row = dy + row * cols;
        float dot = 0;
        for (int j = threadIdx.x; j < cols; j += blockDim.x)
            dot += dy_row[j] * weight[j] * x_row[j] * rstd;
        const float mean = block_sum_shuffle(dot) / (float)cols;
#pragma unroll
        for (int k = 0; k < MOST; k++) {
            const int j = k * (int)blockDim.x + (int)threadIdx.x;
            if (j >= cols) break;
            const float xhat = x_row[j] * rstd;
            dx[row * cols + j] = rstd * (dy_row[j] * weight[j] - xhat * mean);
            if (HOW == PARTIALS) dw[row * cols + j] = dy_row[j] * xhat;
            if (HOW == ATOMICS) atomicAdd(dw + j, dy_row[j] * xhat);
            if (HOW == BLOCKS) dw_of[k] += dy_row[j] * xhat;
        }
        __syncthreads(); // the block's sums are free for the next row
    }
    if (HOW == BLOCKS)
#pragma unroll
        for (int k = 0; k < MOST; k++) {
            const int j = k * (int)blockDim.x + (int)threadIdx.x;
            if (j < cols) dw[(int64_t)blockIdx.x * cols + j] = dw_of[k];
        }
}

__global__ void sum_rows(float *dw, const float *partial, int64_t rows, int cols)
{
    __shared__ float sums[32][33];
    const int j = (int)blockIdx.x * 32 + (int)threadIdx.x;
    float sum = 0;
    for (int64_t i = threadIdx.y; i < rows && j < cols; i += 32) sum += partial[i * cols + j];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y) return;
    for (int k = 1; k < 32; k++) sum += sums[k][threadIdx.x];
    if (j < cols) dw[j] = sum;
}

} // namespace

const int gd_ladder_forward_rungs = 8, gd_ladder_backward_rungs = 3;

const char *gd_ladder_forward_name(int rung)
{
    static const char *const names[] = {"naive: a thread a row",
                                        "a block a row, sum in shared memory",
                                        "sum by warp shuffles",
                                        "16-byte loads, sum in shared memory",
                                        "16-byte loads, sum by warp shuffles",
                                        "loops unrolled",
                                        "row staged in shared memory",
                                        "row kept in registers"};
    return names[rung];
}

const char *gd_ladder_backward_name(int rung)
{
    static const char *const names[] = {"dw by M x N partials and a sum", "dw by atomic additions",
                                        "dw by partials of each block"};
    return names[rung];
}

cudaError_t gd_ladder_forward(int rung, float *y, float *rstd, const float *x, const float *weight,
                              int64_t rows, int64_t cols, float eps, cudaStream_t stream)
{
    const unsigned blocks = (unsigned)rows;
    const int n = (int)cols, vectors = n / 4, threads = 256;
    float4 *y4 = (float4 *)y;
    const float4 *x4 = (const float4 *)x, *w4 = (const float4 *)weight;
    if (rung == 0)
        forward_naive<<<(unsigned)((rows + 63) / 64), 64, 0, stream>>>(y, rstd, x, weight, rows, n,
                                                                       eps);
    if (rung == 1) forward_block<false><<<blocks, threads, 0, stream>>>(y, rstd, x, weight, n, eps);
    if (rung == 2) forward_block<true><<<blocks, threads, 0, stream>>>(y, rstd, x, weight, n, eps);
    if (rung == 3)
        forward_vectors<false, 1><<<blocks, threads, 0, stream>>>(y4, rstd, x4, w4, vectors, eps);
    if (rung == 4)
        forward_vectors<true, 1><<<blocks, threads, 0, stream>>>(y4, rstd, x4, w4, vectors, eps);
    if (rung == 5)
        forward_vectors<true, 4><<<blocks, threads, 0, stream>>>(y4, rstd, x4, w4, vectors, eps);
    if (rung == 6)
        forward_staged<<<blocks, threads, (size_t)vectors * sizeof(float4), stream>>>(
            y4, rstd, x4, w4, vectors, eps);
    if (rung == 7 && vectors <= 1024)
        forward_registers<4><<<blocks, threads, 0, stream>>>(y4, rstd, x4, w4, vectors, eps);
    if (rung == 7 && vectors > 1024)
        forward_registers<8><<<blocks, threads, 0, stream>>>(y4, rstd, x4, w4, vectors, eps);
    return cudaGetLastError();
}

cudaError_t gd_ladder_backward(int rung, float *dx, float *dw, float *scratch, const float *dy,
                               const float *x, const float *rstd, const float *weight, int64_t rows,
                               int64_t cols, cudaStream_t stream)
{
    const int n = (int)cols, threads = 256;
    const unsigned walkers = (unsigned)(rows < 528 ? rows : 528);
    const dim3 sum_blocks((unsigned)((cols + 31) / 32)), sum_threads(32, 32);
    if (rung == 0) {
        backward_block<PARTIALS>
            <<<(unsigned)rows, threads, 0, stream>>>(dx, scratch, dy, x, rstd, weight, rows, n);
        sum_rows<<<sum_blocks, sum_threads, 0, stream>>>(dw, scratch, rows, n);
    }
    if (rung == 1) {
        const cudaError_t error = cudaMemsetAsync(dw, 0, (size_t)cols * sizeof(float), stream);
        if (error) return error;
        backward_block<ATOMICS>
            <<<(unsigned)rows, threads, 0, stream>>>(dx, dw, dy, x, rstd, weight, rows, n);
    }
    if (rung == 2) {
        backward_block<BLOCKS>
            <<<walkers, threads, 0, stream>>>(dx, scratch, dy, x, rstd, weight, rows, n);
        sum_rows<<<sum_blocks, sum_threads, 0, stream>>>(dw, scratch, walkers, n);
    }
    return cudaGetLastError();
}
