// dweight.cu - the P partial rows of dw (or db) to dw: summed in a fixed order, added to what is
// there if asked, rounded once to the dtype of dw.
//
// A block has WIDE columns and 256 / WIDE rows of threads; row y sums partial rows y, y + Y, ...,
// then the Y sums are added, within warps by shuffles. The partials were written a moment ago and
// lie in L2, and what counts is the wait for them: so the more partial rows the fewer columns, that
// all of a thread's loads, about 8, are on their way at once; and few enough threads and registers
// that a block can start while those before it still run.
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
    constexpr int SHARE = WIDE < 32 ? 32 : WIDE; // threads that leave one sum a column
    __shared__ A sums[256 / SHARE][WIDE];
    const int rows = 256 / WIDE, member = threadIdx.x % SHARE;
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
    if (member < WIDE) sums[threadIdx.x / SHARE][member] = sum;
    __syncthreads();
    if (threadIdx.x >= WIDE || j >= cols) return;
    sum = 0;
    for (int i = 0; i < 256 / SHARE; i++) sum += sums[i][threadIdx.x];
    if (accumulate) sum += read_as<A>(dweight, dtype, j);
    write_as<A>(dweight, dtype, j, sum);
}

template <class A, int WIDE>
static cudaError_t launch_sum(void *dweight, gd_dtype dtype, bool accumulate, const void *partial,
                              int64_t partials, int64_t cols, bool early, cudaStream_t stream)
{
    return launch_with(dweight_kernel<A, WIDE>, dim3((unsigned)ceil_div(cols, WIDE)), dim3(256), 0,
                       1, early, stream, dweight, dtype, accumulate, (const A *)partial, partials,
                       cols);
}

template <class A>
static cudaError_t launch_sum_of(void *dweight, gd_dtype dtype, bool accumulate,
                                 const void *partial, int64_t partials, int64_t cols, bool early,
                                 cudaStream_t stream)
{
    auto sum = launch_sum<A, 8>;
    if (partials <= 8)
        sum = launch_sum<A, 256>;
    else if (partials <= 16)
        sum = launch_sum<A, 128>;
    else if (partials <= 32)
        sum = launch_sum<A, 64>;
    else if (partials <= 66)
        sum = launch_sum<A, 32>;
    else if (partials <= 132)
        sum = launch_sum<A, 16>;
    return sum(dweight, dtype, accumulate, partial, partials, cols, early, stream);
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
