// dweight.cu - the P partial rows of dw (or db) to dw: summed in a fixed order, added to what is
// there if asked, rounded once to the dtype of dw.
//
// A block has 32 columns and up to 32 rows of threads; row y sums partial rows y, y + Y, ..., then
// the Y sums are added pairwise. The partials were written a moment ago and lie in L2.
#include "rms_norm/async.cuh"
#include "rms_norm/cuda.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/pack.cuh"

namespace gd_rms
{

template <class A>
__device__ inline A read_as(const void *p, gd_dtype dtype, int64_t i)
{
    if (dtype == GD_FLOAT32) return (A)((const float *)p)[i];
    if (dtype == GD_FLOAT64) return (A)((const double *)p)[i];
    if (dtype == GD_BFLOAT16) return (A)(float)((const __nv_bfloat16 *)p)[i];
    return (A)(float)((const __half *)p)[i];
}

template <class A>
__device__ inline void write_as(void *p, gd_dtype dtype, int64_t i, A v)
{
    if (dtype == GD_FLOAT32)
        ((float *)p)[i] = (float)v;
    else if (dtype == GD_FLOAT64)
        ((double *)p)[i] = (double)v;
    else if (dtype == GD_BFLOAT16)
        ((__nv_bfloat16 *)p)[i] = (__nv_bfloat16)v;
    else
        ((__half *)p)[i] = (__half)v;
}

template <class A>
__global__ void __launch_bounds__(1024)
    dweight_kernel(void *dweight, gd_dtype dtype, bool accumulate, const A *partial,
                   int64_t partials, int64_t cols)
{
    __shared__ A sums[32][33];
    const int64_t j = (int64_t)blockIdx.x * 32 + threadIdx.x;
#if GD_HOPPER
    wait_for_previous();
#endif
    A sum = 0;
    if (j < cols) {
#pragma unroll 4
        for (int64_t p = threadIdx.y; p < partials; p += blockDim.y) sum += partial[p * cols + j];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    for (int half = (int)blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.y < half)
            sums[threadIdx.y][threadIdx.x] += sums[threadIdx.y + half][threadIdx.x];
    }
    if (threadIdx.y || j >= cols) return;
    sum = sums[0][threadIdx.x];
    if (accumulate) sum += read_as<A>(dweight, dtype, j);
    write_as<A>(dweight, dtype, j, sum);
}

cudaError_t launch_dweight(void *dweight, gd_dtype dweight_dtype, bool accumulate,
                           const void *partial, bool partial_is_double, int64_t partials,
                           int64_t cols, bool after_fast_kernel, cudaStream_t stream)
{
    unsigned rows = 1;
    while (rows < 32 && 2 * (int64_t)rows < partials) rows *= 2;
    const dim3 blocks((unsigned)ceil_div(cols, 32)), threads(32, rows);
    if (partial_is_double)
        return launch_with(dweight_kernel<double>, blocks, threads, 0, 1, after_fast_kernel, stream,
                           dweight, dweight_dtype, accumulate, (const double *)partial, partials,
                           cols);
    return launch_with(dweight_kernel<float>, blocks, threads, 0, 1, after_fast_kernel, stream,
                       dweight, dweight_dtype, accumulate, (const float *)partial, partials, cols);
}

} // namespace gd_rms
