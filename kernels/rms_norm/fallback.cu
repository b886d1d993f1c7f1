// fallback.cu - forward and backward for any size, alignment, stride and dtype.
//
// One element a load, no copies in flight, every tensor read as often as it is needed: right
// everywhere, fast nowhere in particular. Sums are float, double where x is double.
//   fallback_forward        a warp or a block a row: sum of squares, then y
//   fallback_dx             a warp or a block a row: sum of h * xhat, then dx
//   fallback_partials_of    a thread a column, over rows p, p + P, ...: partial sums for dw or db
#include "cuda.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/pack.cuh"
#include "rms_norm/plan.cuh"

namespace gd_rms
{

// w[i] of any dtype plus `add`, or `otherwise` where there is no w. The sum is taken in A.
template <class A>
__device__ inline A weight_at(const void *w, gd_dtype dtype, int64_t i, A add, A otherwise)
{
    if (!w) return otherwise;
    if (dtype == GD_FLOAT32) return (A)((const float *)w)[i] + add;
    if (dtype == GD_FLOAT64) return (A)((const double *)w)[i] + add;
    if (dtype == GD_BFLOAT16) return (A)(float)((const __nv_bfloat16 *)w)[i] + add;
    return (A)(float)((const __half *)w)[i] + add;
}

__device__ inline float warp_sum(float v)
{
    return lane_sum<32>(v);
}
__device__ inline double warp_sum(double v)
{
    return lane_sum_double(v);
}

// The sum over the threads that share a row: GROUP of them, 32 or the whole block.
template <int GROUP, class A>
__device__ inline A row_sum(A v)
{
    v = warp_sum(v);
    if (GROUP == 32) return v;
    __shared__ A sums[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads(); // the sums of the row before have been read
    if (lane == 0) sums[warp] = v;
    __syncthreads();
    return warp_sum(lane < GROUP / 32 ? sums[lane] : (A)0);
}

// T by way of A: float for the 16-bit types.
template <class T, class A>
__device__ inline A at(const void *x, int64_t i)
{
    return (A)((const T *)x)[i];
}

template <class T, int GROUP>
__global__ void __launch_bounds__(512) forward_kernel(const __grid_constant__ Forward a)
{
    using A = gd_compute<T>;
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / GROUP);
    const int member = threadIdx.x % GROUP;
    for (int64_t row = (int64_t)blockIdx.x * (blockDim.x / GROUP) + threadIdx.x / GROUP;
         row < a.rows; row += step) {
        const int64_t x0 = row * a.x_stride, y0 = row * a.y_stride;
        A sum = 0;
        for (int64_t j = member; j < a.cols; j += GROUP) {
            const A x = at<T, A>(a.x, x0 + j);
            sum += x * x;
        }
        sum = row_sum<GROUP>(sum);
        const A rstd = (A)1 / sqrt(sum / (A)a.cols + (A)a.eps);
        for (int64_t j = member; j < a.cols; j += GROUP) {
            A y = at<T, A>(a.x, x0 + j) * rstd;
            if (a.round) y = (A)(T)y;
            y *= weight_at<A>(a.weight, a.weight_dtype, j, (A)a.offset, 1);
            y += weight_at<A>(a.bias, a.weight_dtype, j, 0, 0);
            ((T *)a.y)[y0 + j] = (T)y;
        }
        if (a.rstd && member == 0) ((A *)a.rstd)[row] = rstd;
    }
}

template <class T, int GROUP>
__global__ void __launch_bounds__(512) dx_kernel(const __grid_constant__ Backward a)
{
    using A = gd_compute<T>;
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / GROUP);
    const int member = threadIdx.x % GROUP;
    for (int64_t row = (int64_t)blockIdx.x * (blockDim.x / GROUP) + threadIdx.x / GROUP;
         row < a.rows; row += step) {
        const int64_t x0 = row * a.x_stride, dy0 = row * a.dy_stride, dx0 = row * a.dx_stride;
        const A rstd = ((const A *)a.rstd)[row];
        A dot = 0;
        for (int64_t j = member; j < a.cols; j += GROUP) {
            const A w = weight_at<A>(a.weight, a.weight_dtype, j, (A)a.offset, 1);
            dot += at<T, A>(a.dy, dy0 + j) * w * (at<T, A>(a.x, x0 + j) * rstd);
        }
        const A mean = row_sum<GROUP>(dot) / (A)a.cols;
        for (int64_t j = member; j < a.cols; j += GROUP) {
            const A w = weight_at<A>(a.weight, a.weight_dtype, j, (A)a.offset, 1);
            const A h = at<T, A>(a.dy, dy0 + j) * w, xhat = at<T, A>(a.x, x0 + j) * rstd;
            ((T *)a.dx)[dx0 + j] = (T)(rstd * (h - xhat * mean));
        }
    }
}

// Block (c, p): columns 32c and on, rows p + P * (8i + threadIdx.y).
template <class T, bool BIAS>
__global__ void __launch_bounds__(256) partials_kernel(const __grid_constant__ Backward a)
{
    using A = gd_compute<T>;
    __shared__ A sums[8][33];
    const int64_t partials = gridDim.y;
    const int64_t j = (int64_t)blockIdx.x * 32 + threadIdx.x;
    A sum = 0;
    if (j < a.cols)
        for (int64_t row = blockIdx.y + partials * threadIdx.y; row < a.rows; row += 8 * partials) {
            const A dy = at<T, A>(a.dy, row * a.dy_stride + j);
            A xhat = 1;
            if (!BIAS) {
                xhat = at<T, A>(a.x, row * a.x_stride + j) * ((const A *)a.rstd)[row];
                if (a.round) xhat = (A)(T)xhat;
            }
            sum += dy * xhat;
        }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && j < a.cols) {
        for (int k = 1; k < 8; k++) sum += sums[k][threadIdx.x];
        ((A *)a.partial)[blockIdx.y * a.cols + j] = sum;
    }
}

template <class Function>
static cudaError_t by_dtype(gd_dtype dtype, Function function)
{
    if (dtype == GD_FLOAT32) return function(float());
    if (dtype == GD_FLOAT64) return function(double());
    if (dtype == GD_BFLOAT16) return function(__nv_bfloat16());
    return function(__half());
}

static unsigned blocks_for(int64_t rows)
{
    return (unsigned)(rows < 1000000 ? rows : 1000000);
}

cudaError_t fallback_forward(const Forward &a, gd_dtype dtype, Launches *to)
{
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        if (a.cols <= 1024)
            return add_launch(forward_kernel<T, 32>, blocks_for(ceil_div(a.rows, 8)), 256, 0, 1,
                              false, to, a);
        return add_launch(forward_kernel<T, 512>, blocks_for(a.rows), 512, 0, 1, false, to, a);
    });
}

cudaError_t fallback_dx(const Backward &a, gd_dtype dtype, Launches *to)
{
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        if (a.cols <= 1024)
            return add_launch(dx_kernel<T, 32>, blocks_for(ceil_div(a.rows, 8)), 256, 0, 1, false,
                              to, a);
        return add_launch(dx_kernel<T, 512>, blocks_for(a.rows), 512, 0, 1, false, to, a);
    });
}

cudaError_t fallback_partials_of(const Backward &a, gd_dtype dtype, bool bias, int64_t partials,
                                 Launches *to)
{
    const dim3 blocks((unsigned)ceil_div(a.cols, 32), (unsigned)partials), threads(32, 8);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        if (bias) return add_launch(partials_kernel<T, true>, blocks, threads, 0, 1, false, to, a);
        return add_launch(partials_kernel<T, false>, blocks, threads, 0, 1, false, to, a);
    });
}

} // namespace gd_rms
