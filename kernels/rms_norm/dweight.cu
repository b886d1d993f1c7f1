// dweight.cu - the P partial rows of dw (or db) to dw: summed in a fixed order, added to what is
// there if asked, rounded once to the dtype of dw.
//
// A block has WIDE columns and up to 256 / WIDE rows of threads; row y sums partial rows y, y + Y,
// ..., then the Y sums are added, within warps by shuffles. The partials were written a moment ago
// and lie in L2, and what counts is the wait for them: so 8 columns a block, 32 bytes of a row, where
// there are many partial rows, all loads of a thread on their way at once, and few enough threads
// and registers that the block can start while those before it still run.
#include "rms_norm/async.cuh"
#include "rms_norm/plan.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/pack.cuh"

namespace gd_rms
{

// WIDE columns of a block side by side.
template <class A, int WIDE>
__global__ void __launch_bounds__(256, 8)
    dweight_kernel(void *dweight, gd_dtype dtype, bool accumulate, const A *partial,
                   int64_t partials, int64_t cols)
{
    __shared__ A sums[8][WIDE]; // of warps
    const int rows = (int)blockDim.x / WIDE;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int64_t j = (int64_t)blockIdx.x * WIDE + threadIdx.x % WIDE;
    let_next_start();
    wait_for_previous();
    A sum = 0;
    if (j < cols) {
#pragma unroll 8
        for (int64_t p = threadIdx.x / WIDE; p < partials; p += rows) sum += partial[p * cols + j];
    }
#pragma unroll
    for (int apart = WIDE; apart < 32; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    if (lane < WIDE) sums[warp][lane] = sum;
    __syncthreads();
    if (threadIdx.x >= WIDE || j >= cols) return;
    sum = 0;
    for (int i = 0; i < warps; i++) sum += sums[i][threadIdx.x];
    if (accumulate) sum += read_as<A>(dweight, dtype, j);
    write_as<A>(dweight, dtype, j, sum);
}

template <class A, int WIDE>
static cudaError_t launch_sum(void *dweight, gd_dtype dtype, bool accumulate, const void *partial,
                              int64_t partials, int64_t cols, bool early, cudaStream_t stream)
{
    unsigned rows = 256 / WIDE;
    while (rows > 128 / WIDE && (int64_t)rows / 2 >= partials) rows /= 2;
    return launch_with(dweight_kernel<A, WIDE>, dim3((unsigned)ceil_div(cols, WIDE)),
                       dim3(rows * WIDE), 0, 1, early, stream, dweight, dtype, accumulate,
                       (const A *)partial, partials, cols);
}

template <class A>
static cudaError_t launch_sum_of(void *dweight, gd_dtype dtype, bool accumulate,
                                 const void *partial, int64_t partials, int64_t cols, bool early,
                                 cudaStream_t stream)
{
    if (partials > 32)
        return launch_sum<A, 8>(dweight, dtype, accumulate, partial, partials, cols, early, stream);
    return launch_sum<A, 32>(dweight, dtype, accumulate, partial, partials, cols, early, stream);
}

cudaError_t launch_dweight(void *dweight, gd_dtype dtype, bool accumulate, const void *partial,
                           bool partial_is_double, int64_t partials, int64_t cols, bool early,
                           cudaStream_t stream)
{
    if (partial_is_double)
        return launch_sum_of<double>(dweight, dtype, accumulate, partial, partials, cols, early,
                                     stream);
    return launch_sum_of<float>(dweight, dtype, accumulate, partial, partials, cols, early, stream);
}

} // namespace gd_rms
