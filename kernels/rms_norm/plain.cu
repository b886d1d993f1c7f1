// plain.cu - forward and backward for any size, alignment, stride and mixture of dtypes: general
// rather than fast.
//   forward_kernel    a block per row: sum of squares, then y; with a residual the sum first
//   dx_kernel         a block per row: sum of h * xhat, then dx
//   partials_kernel   a thread per column, over the tokens p, p + P, ...: partial sums for dw or db
// Dtypes are chosen at run time, for four columns at once. Each row is read twice, the second time
// from the cache. A row's sums are in double, as on the CPU: xhat, which may be rounded next, then
// has the same bits in nearly all cases.
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

// value rounded to dtype and back.
template <class A, int C>
__device__ inline void round_to(A (&value)[C], gd_dtype dtype)
{
    by_any_dtype(dtype, [&](auto zero) {
#pragma unroll
        for (int v = 0; v < C; v++) value[v] = (A)gd_load(gd_store<decltype(zero)>(value[v]));
    });
}

// factor of columns j to j + 3; `at`: the offset of the row's weights.
template <class A>
__device__ inline void factor_at(A (&factor)[4], const Problem &p, const void *weight, int64_t at,
                                 int64_t j)
{
    if (weight) get(factor, weight, p.weight_dtype, at + j, at + p.cols);
#pragma unroll
    for (int v = 0; v < 4; v++) factor[v] = weight ? factor[v] + (A)p.offset : (A)1;
}

// x of columns j to j + 3, or the sum as it is stored. `at` and `residual` are offsets of the row.
template <class A>
__device__ inline void input(A (&x)[4], const Forward &a, int64_t at, int64_t residual, int64_t j)
{
    const bool adds = a.at.residual;
    get(x, a.at.x, adds ? a.y_dtype : a.dtype, at + j, at + a.cols);
    if (!adds) return;
    A more[4];
    get(more, a.at.residual, a.dtype, residual + j, residual + a.cols);
#pragma unroll
    for (int v = 0; v < 4; v++) x[v] += more[v];
    round_to(x, a.dtype);
}

// ---- Kernels ------------------------------------------------------------------------------------

template <class A>
__global__ void __launch_bounds__(512) forward_kernel(const __grid_constant__ Forward a)
{
    __shared__ double shared[32];
    const int64_t step = 4 * (int64_t)blockDim.x, N = a.cols;
    for (int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
        const Row row(a, i);
        const int64_t x = row.token * a.at.x_stride + row.column;
        const int64_t residual = row.token * a.at.residual_stride + row.column;
        const int64_t y = row.token * a.at.y_stride + row.column;
        const int64_t sum = row.token * a.at.sum_stride + row.column;
        double squares = 0;
        for (int64_t j = 4 * threadIdx.x; j < N; j += step) {
            A value[4];
            input(value, a, x, residual, j);
            for (int v = 0; v < 4; v++) squares += (double)value[v] * (double)value[v];
        }
        squares = gd_block_reduce(squares, shared, gd_plus());
        const A rstd = (A)rsqrt(squares / (double)N + a.eps);
        if (a.at.rstd && threadIdx.x == 0) ((A *)a.at.rstd)[i] = rstd;
        for (int64_t j = 4 * threadIdx.x; j < N; j += step) {
            A value[4], factor[4], bias[4] = {};
            input(value, a, x, residual, j);
            if (a.at.residual) put(a.at.sum, a.dtype, sum + j, sum + N, false, value);
            factor_at(factor, a, a.at.weight, row.weight, j);
            if (a.at.bias) get(bias, a.at.bias, a.weight_dtype, row.weight + j, row.weight + N);
            for (int v = 0; v < 4; v++) value[v] *= rstd;
            if (a.round) round_to(value, a.y_dtype);
            for (int v = 0; v < 4; v++) value[v] = value[v] * factor[v] + bias[v];
            put(a.at.y, a.y_dtype, y + j, y + N, false, value);
        }
    }
}

// dx = rstd (h - xhat mean(h xhat)) + dsum with h = dy factor. dx may overwrite dy or dsum: a
// thread writes its columns after it has read them, and all threads have read theirs for the mean.
template <class A>
__global__ void __launch_bounds__(512) dx_kernel(const __grid_constant__ Backward a)
{
    __shared__ double shared[32];
    const int64_t step = 4 * (int64_t)blockDim.x, N = a.cols;
    for (int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
        const Row row(a, i);
        auto at = [&](int64_t stride) { return row.token * stride + row.column; };
        const int64_t x_at = at(a.at.x_stride), dy_at = at(a.at.dy_stride);
        const A rstd = ((const A *)a.at.rstd)[i];
        double dot = 0;
        for (int64_t j = 4 * threadIdx.x; j < N; j += step) {
            A factor[4], x[4], dy[4];
            factor_at(factor, a, a.at.weight, row.weight, j);
            get(x, a.at.x, a.dtype, x_at + j, x_at + N);
            get(dy, a.at.dy, a.y_dtype, dy_at + j, dy_at + N);
            for (int v = 0; v < 4 && j + v < N; v++)
                dot += (double)(dy[v] * factor[v] * (x[v] * rstd));
        }
        const A mean = (A)(gd_block_reduce(dot, shared, gd_plus()) / (double)N);
        for (int64_t j = 4 * threadIdx.x; j < N; j += step) {
            A factor[4], x[4], dy[4], dx[4] = {};
            factor_at(factor, a, a.at.weight, row.weight, j);
            get(x, a.at.x, a.dtype, x_at + j, x_at + N);
            get(dy, a.at.dy, a.y_dtype, dy_at + j, dy_at + N);
            if (a.at.dsum)
                get(dx, a.at.dsum, a.dtype, at(a.at.dsum_stride) + j, at(a.at.dsum_stride) + N);
            for (int v = 0; v < 4; v++) dx[v] += rstd * (dy[v] * factor[v] - x[v] * rstd * mean);
            if (a.at.dx)
                put(a.at.dx, a.dtype, at(a.at.dx_stride) + j, at(a.at.dx_stride) + N,
                    a.at.accumulate_dx, dx);
            if (a.at.dbranch)
                put(a.at.dbranch, a.y_dtype, at(a.at.dbranch_stride) + j,
                    at(a.at.dbranch_stride) + N, a.at.accumulate_dbranch, dx);
        }
    }
}

// A block: 32 columns of all heads, the tokens p + P * (8i + warp).
template <class A, bool BIAS>
__global__ void __launch_bounds__(256)
    partials_kernel(const __grid_constant__ Backward a, int64_t partials)
{
    __shared__ A sums[8][33];
    const int64_t width = a.heads * a.cols, tokens = a.rows / a.heads;
    const int64_t p = blockIdx.x % partials, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t c = blockIdx.x / partials * 32 + lane, head = c / a.cols;
    A sum = 0;
    for (int64_t t = p + partials * warp; c < width && t < tokens; t += 8 * partials) {
        A dy[1], xhat[1] = {1};
        get(dy, a.at.dy, a.y_dtype, t * a.at.dy_stride + c, INT64_MAX);
        if (!BIAS) {
            get(xhat, a.at.x, a.dtype, t * a.at.x_stride + c, INT64_MAX);
            xhat[0] *= ((const A *)a.at.rstd)[t * a.heads + head];
            if (a.round) round_to(xhat, a.y_dtype);
        }
        sum += dy[0] * xhat[0]; /* [db] */
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && c < width) {
        for (int k = 1; k < 8; k++) sum += sums[k][lane];
        ((A *)a.partial)[p * width + c] = sum;
    }
}

// ---- Launching ----------------------------------------------------------------------------------

static Shape row_shape(const Problem &p)
{
    const int64_t warps = ceil_div(p.cols, 128); // about four columns a thread
    return {p.rows < 65536 ? p.rows : 65536, 32 * (int)(warps < 16 ? warps < 1 ? 1 : warps : 16), 0,
            1, false};
}

cudaError_t plain_forward(const Forward &a, cudaStream_t stream)
{
    if (a.is_double) return launch<forward_kernel<double>>(row_shape(a), stream, a);
    return launch<forward_kernel<float>>(row_shape(a), stream, a);
}

cudaError_t plain_dx(const Backward &a, cudaStream_t stream)
{
    if (a.is_double) return launch<dx_kernel<double>>(row_shape(a), stream, a);
    return launch<dx_kernel<float>>(row_shape(a), stream, a);
}

cudaError_t plain_partials(const Backward &a, bool of_bias, int64_t partials, cudaStream_t stream)
{
    const Shape shape = {ceil_div(a.heads * a.cols, 32) * partials, 256, 0, 1, false};
    auto kernel = [&](auto of_bias) {
        constexpr bool BIAS = decltype(of_bias)::value;
        if (a.is_double) return launch<partials_kernel<double, BIAS>>(shape, stream, a, partials);
        return launch<partials_kernel<float, BIAS>>(shape, stream, a, partials);
    };
    return of_bias ? kernel(std::true_type()) : kernel(std::false_type());
}

} // namespace gd_rms
