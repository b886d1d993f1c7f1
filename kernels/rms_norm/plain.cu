// plain.cu - forward and backward for any size, alignment, stride and mixture of dtypes: general
// rather than fast.
//   forward_kernel    a block per row: sum of squares, then y; with a residual the sum first
//   dx_kernel         a block per row: sum of h * xhat, then dx
//   gd_sum_columns    of column_sum.cuh, over pieces of the rows: partial sums for dw or db
// Dtypes are chosen at run time, for four columns at once. Each row is read twice, the second time
// from the cache. A row's sums are in double, as on the CPU: xhat, which may be rounded next, then
// has the same bits in nearly all cases.
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

// factor of columns j to j + 3; `at`: the offset of the row's weights.
template <class A>
__device__ inline void factor_at(A (&factor)[4], const Problem &p, const void *weight, int64_t at,
                                 int64_t j)
{
    if (weight) gd_get(factor, weight, p.weight_dtype, at + j, at + p.cols);
#pragma unroll
    for (int v = 0; v < 4; v++) factor[v] = weight ? factor[v] + (A)p.offset : (A)1;
}

// x of columns j to j + 3, or the sum as it is stored. `at` and `residual` are offsets of the row.
template <class A>
__device__ inline void input(A (&x)[4], const Forward &a, int64_t at, int64_t residual, int64_t j)
{
    const bool adds = a.residual;
    gd_get(x, a.x, adds ? a.y_dtype : a.dtype, at + j, at + a.cols);
    if (!adds) return;
    A more[4];
    gd_get(more, a.residual, a.dtype, residual + j, residual + a.cols);
#pragma unroll
    for (int v = 0; v < 4; v++) x[v] += more[v];
    gd_round_to(x, a.dtype);
}

// ---- Kernels ------------------------------------------------------------------------------------

template <class A>
__global__ void __launch_bounds__(512) forward_kernel(const __grid_constant__ Forward a)
{
    __shared__ double shared[32];
    const int64_t step = 4 * (int64_t)blockDim.x, N = a.cols;
    for (int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
        const Row row(a, i);
        const auto at = [&](int64_t stride) { return row.token * stride + row.column; };
        const int64_t x = at(a.x_stride), residual = at(a.residual_stride);
        const int64_t y = at(a.y_stride), sum = at(a.sum_stride);
        double squares = 0;
        for (int64_t j = 4 * threadIdx.x; j < N; j += step) {
            A value[4];
            input(value, a, x, residual, j);
            for (int v = 0; v < 4; v++) squares += (double)value[v] * (double)value[v];
        }
        squares = gd_block_reduce(squares, shared, gd_plus());
        const A rstd = (A)rsqrt(squares / (double)N + a.eps);
        if (a.rstd && threadIdx.x == 0) ((A *)a.rstd)[i] = rstd;
        for (int64_t j = 4 * threadIdx.x; j < N; j += step) {
            A value[4], factor[4], bias[4] = {};
            input(value, a, x, residual, j);
            if (a.residual) gd_put(a.sum, a.dtype, sum + j, sum + N, false, value);
            factor_at(factor, a, a.weight, row.weight, j);
            if (a.bias) gd_get(bias, a.bias, a.weight_dtype, row.weight + j, row.weight + N);
            for (int v = 0; v < 4; v++) value[v] *= rstd;
            if (a.round_before_weight) gd_round_to(value, a.y_dtype);
            for (int v = 0; v < 4; v++) value[v] = value[v] * factor[v] + bias[v];
            gd_put(a.y, a.y_dtype, y + j, y + N, false, value);
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
        const int64_t x_at = at(a.x_stride), dy_at = at(a.dy_stride);
        const A rstd = ((const A *)a.rstd)[i];
        double dot = 0;
        for (int64_t j = 4 * threadIdx.x; j < N; j += step) {
            A factor[4], x[4], dy[4];
            factor_at(factor, a, a.weight, row.weight, j);
            gd_get(x, a.x, a.dtype, x_at + j, x_at + N);
            gd_get(dy, a.dy, a.y_dtype, dy_at + j, dy_at + N);
            for (int v = 0; v < 4 && j + v < N; v++)
                dot += (double)(dy[v] * factor[v] * (x[v] * rstd));
        }
        const A mean = (A)(gd_block_reduce(dot, shared, gd_plus()) / (double)N);
        for (int64_t j = 4 * threadIdx.x; j < N; j += step) {
            A factor[4], x[4], dy[4], dx[4] = {};
            factor_at(factor, a, a.weight, row.weight, j);
            gd_get(x, a.x, a.dtype, x_at + j, x_at + N);
            gd_get(dy, a.dy, a.y_dtype, dy_at + j, dy_at + N);
            if (a.dsum) gd_get(dx, a.dsum, a.dtype, at(a.dsum_stride) + j, at(a.dsum_stride) + N);
            for (int v = 0; v < 4; v++) dx[v] += rstd * (dy[v] * factor[v] - x[v] * rstd * mean);
            if (a.dx)
                gd_put(a.dx, a.dtype, at(a.dx_stride) + j, at(a.dx_stride) + N, a.accumulate_dx,
                       dx);
            if (a.dbranch)
                gd_put(a.dbranch, a.y_dtype, at(a.dbranch_stride) + j, at(a.dbranch_stride) + N,
                       a.accumulate_dbranch, dx);
        }
    }
}

// The terms of dw, dy xhat, or of db, dy, for gd_sum_columns; the columns are those of all heads.
template <class A>
struct Terms {
    Backward a;
    bool of_bias;

    __device__ void add(int64_t token, int64_t column, A *sum) const
    {
        A dy[1], xhat[1] = {1};
        gd_get(dy, a.dy, a.y_dtype, token * a.dy_stride + column, INT64_MAX);
        if (!of_bias) {
            gd_get(xhat, a.x, a.dtype, token * a.x_stride + column, INT64_MAX);
            xhat[0] *= ((const A *)a.rstd)[token * a.heads + column / a.cols];
            if (a.round_before_weight) gd_round_to(xhat, a.y_dtype);
        }
        sum[0] += dy[0] * xhat[0]; /* [db] */
    }
};

// ---- Launching ----------------------------------------------------------------------------------

template <class Call>
static cudaError_t run_rows(void (*kernel)(Call), const Call &a, cudaStream_t stream)
{
    const int64_t warps = ceil_div(a.cols, 128); // about four columns a thread
    const unsigned threads = 32 * (unsigned)(warps < 16 ? warps < 1 ? 1 : warps : 16);
    kernel<<<gd_blocks(a.rows, 1), threads, 0, stream>>>(a);
    return cudaGetLastError();
}

cudaError_t plain_forward(const Forward &a, cudaStream_t stream)
{
    return run_rows(a.is_double ? forward_kernel<double> : forward_kernel<float>, a, stream);
}

cudaError_t plain_dx(const Backward &a, cudaStream_t stream)
{
    return run_rows(a.is_double ? dx_kernel<double> : dx_kernel<float>, a, stream);
}

cudaError_t plain_partials(const Backward &a, bool of_bias, cudaStream_t stream)
{
    const auto run = [&](auto zero) {
        using A = decltype(zero);
        return gd_sum_pieces<1>(a.rows / a.heads, a.heads * a.cols, Terms<A>{a, of_bias},
                                (A *)a.workspace, stream);
    };
    return a.is_double ? run(double()) : run(float());
}

} // namespace gd_rms
