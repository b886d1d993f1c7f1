// rms_norm_op.cuh - the plain kernels of the ops rms_norm and add_rms_norm, a block a row:
//   forward_kernel   y and rstd, with a residual added first
//   dx_kernel        dx, added to what goes past the norm (dsum) or is there already
//   xhat_kernel      xhat alone
// They take weights per head and every tensor in its own dtype, chosen at run time, for four
// columns at once. Each row is read twice, the second time from the cache. Its sums are taken in
// double, as on the CPU: xhat, which may be rounded next, is then the same in nearly every bit.
#ifndef GD_RMS_NORM_OP_CUH
#define GD_RMS_NORM_OP_CUH

#include "cuda.cuh"
#include "rms_norm/rms_norm.h"

// ---- What the kernels get ---------------------------------------------------------------------

// M rows of N packed numbers: row r begins at element (r / inner) * stride + (r % inner) * step.
struct rms_rows {
    void *data; // NULL: absent
    gd_dtype dtype;
    int64_t inner, stride, step;
};

// weight or bias [heads, N]: row r of x meets row r % heads.
struct rms_param {
    const void *data; // NULL: absent
    gd_dtype dtype;
    int64_t heads;
};

// A packed tensor [M, N].
struct rms_packed {
    void *data; // NULL: absent
    gd_dtype dtype;
    bool accumulate;
};

struct rms_forward {
    int64_t M, N;
    rms_rows x, residual;
    rms_param weight, bias;
    rms_packed y, sum;
    void *rstd; // of the type that is computed in; or NULL
    gd_rms_norm_args args;
};

struct rms_backward {
    int64_t M, N;
    rms_rows x; // in add_rms_norm the sum
    rms_packed dy, dsum, dx, dresidual;
    const void *rstd;
    rms_param weight;
    gd_rms_norm_args args;
};

// Four neighbours, of which the last ones may be past the end of the row: then they are 0. They are
// read and written at once where they lie on a multiple of their size.
template <class A>
struct rms_four {
    A at[4];
};

template <class T>
struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) rms_neighbours {
    T at[4];
};

// How many of four columns there are where `rest` are left.
__device__ inline int rms_count(int64_t rest)
{
    return rest < 4 ? (int)rest : 4;
}

template <class T>
__device__ inline bool rms_at_once(const T *x, int n)
{
    return n == 4 && (uintptr_t)x % sizeof(rms_neighbours<T>) == 0;
}

template <class A, class T>
__device__ inline rms_four<A> rms_load(const T *x, int n)
{
    rms_neighbours<T> some = {};
    if (rms_at_once(x, n))
        some = *(const rms_neighbours<T> *)x;
    else
        for (int v = 0; v < 4; v++)
            if (v < n) some.at[v] = x[v];
    rms_four<A> four;
    for (int v = 0; v < 4; v++) four.at[v] = (A)gd_load(some.at[v]);
    return four;
}

template <class A, class T>
__device__ inline void rms_store(T *x, int n, const rms_four<A> &four)
{
    rms_neighbours<T> some;
    for (int v = 0; v < 4; v++) some.at[v] = gd_store<T>(four.at[v]);
    if (rms_at_once(x, n))
        *(rms_neighbours<T> *)x = some;
    else
        for (int v = 0; v < 4; v++)
            if (v < n) x[v] = some.at[v];
}

// Elements i to i + n of an array of any real dtype.
template <class A>
__device__ inline rms_four<A> rms_get(const void *data, gd_dtype dtype, int64_t i, int n)
{
    switch (dtype) {
    case GD_FLOAT64:
        return rms_load<A>((const double *)data + i, n);
    case GD_BFLOAT16:
        return rms_load<A>((const __nv_bfloat16 *)data + i, n);
    case GD_FLOAT16:
        return rms_load<A>((const __half *)data + i, n);
    default:
        return rms_load<A>((const float *)data + i, n);
    }
}

template <class A>
__device__ inline void rms_put(const rms_packed &to, int64_t i, int n, rms_four<A> four)
{
    if (to.accumulate) {
        const rms_four<A> before = rms_get<A>(to.data, to.dtype, i, n);
        for (int v = 0; v < 4; v++) four.at[v] += before.at[v];
    }
    switch (to.dtype) {
    case GD_FLOAT64:
        return rms_store((double *)to.data + i, n, four);
    case GD_BFLOAT16:
        return rms_store((__nv_bfloat16 *)to.data + i, n, four);
    case GD_FLOAT16:
        return rms_store((__half *)to.data + i, n, four);
    default:
        return rms_store((float *)to.data + i, n, four);
    }
}

template <class A>
__device__ inline A rms_round(A value, gd_dtype dtype)
{
    switch (dtype) {
    case GD_BFLOAT16:
        return gd_load(gd_store<__nv_bfloat16>(value));
    case GD_FLOAT16:
        return gd_load(gd_store<__half>(value));
    case GD_FLOAT32:
        return gd_store<float>(value);
    default:
        return value;
    }
}

__device__ inline int64_t rms_row(const rms_rows &rows, int64_t row)
{
    return rows.data ? row / rows.inner * rows.stride + row % rows.inner * rows.step : 0;
}

// What xhat is multiplied by from column j on; `row` is where the weights of this row begin.
template <class A>
__device__ inline rms_four<A> rms_gain(const rms_param &weight, int64_t row, int64_t j, int n,
                                       double offset)
{
    if (!weight.data) return {{1, 1, 1, 1}};
    rms_four<A> gain = rms_get<A>(weight.data, weight.dtype, row + j, n);
    for (int v = 0; v < 4; v++) gain.at[v] += (A)offset;
    return gain;
}

// ---- Kernels ----------------------------------------------------------------------------------

// x, or x + residual rounded as the sum is stored.
template <class A>
__device__ inline rms_four<A> rms_input(const rms_forward &f, int64_t x, int64_t residual, int n)
{
    rms_four<A> value = rms_get<A>(f.x.data, f.x.dtype, x, n);
    if (!f.residual.data) return value;
    const rms_four<A> more = rms_get<A>(f.residual.data, f.residual.dtype, residual, n);
    for (int v = 0; v < 4; v++) value.at[v] = rms_round(value.at[v] + more.at[v], f.args.round_sum);
    return value;
}

template <class A>
static __global__ void __launch_bounds__(512) forward_kernel(const __grid_constant__ rms_forward f)
{
    __shared__ double shared[32];
    const int64_t step = 4 * (int64_t)blockDim.x;
    for (int64_t row = blockIdx.x; row < f.M; row += gridDim.x) {
        const int64_t x = rms_row(f.x, row), residual = rms_row(f.residual, row);
        const int64_t weight = f.weight.data ? row % f.weight.heads * f.N : 0;
        const int64_t bias = f.bias.data ? row % f.bias.heads * f.N : 0;
        double sum = 0;
        for (int64_t j = 4 * threadIdx.x; j < f.N; j += step) {
            const int n = rms_count(f.N - j);
            const rms_four<A> value = rms_input<A>(f, x + j, residual + j, n);
            if (f.sum.data) rms_put(f.sum, row * f.N + j, n, value);
            for (int v = 0; v < 4; v++) sum += (double)value.at[v] * (double)value.at[v];
        }
        sum = gd_block_reduce(sum, shared, gd_plus());
        const A rstd = (A)rsqrt(sum / (double)f.N + f.args.eps);
        if (f.rstd && threadIdx.x == 0) ((A *)f.rstd)[row] = rstd;
        for (int64_t j = 4 * threadIdx.x; j < f.N; j += step) {
            const int n = rms_count(f.N - j);
            const rms_four<A> gain = rms_gain<A>(f.weight, weight, j, n, f.args.offset);
            rms_four<A> y = rms_input<A>(f, x + j, residual + j, n), add = {};
            if (f.bias.data) add = rms_get<A>(f.bias.data, f.bias.dtype, bias + j, n);
            for (int v = 0; v < 4; v++)
                y.at[v] = rms_round(y.at[v] * rstd, f.args.round_xhat) * gain.at[v] + add.at[v];
            rms_put(f.y, row * f.N + j, n, y);
        }
    }
}

// dx = rstd (h - xhat mean(h xhat)) + dsum with h = dy gain. dx may take the place of dy: a thread
// writes its columns after it has read them, and all have read for the mean.
template <class A>
static __global__ void __launch_bounds__(512) dx_kernel(const __grid_constant__ rms_backward b)
{
    __shared__ double shared[32];
    const int64_t step = 4 * (int64_t)blockDim.x;
    for (int64_t row = blockIdx.x; row < b.M; row += gridDim.x) {
        const int64_t x_row = rms_row(b.x, row), at = row * b.N;
        const int64_t weight = b.weight.data ? row % b.weight.heads * b.N : 0;
        const A rstd = ((const A *)b.rstd)[row];
        double dot = 0;
        for (int64_t j = 4 * threadIdx.x; j < b.N; j += step) {
            const int n = rms_count(b.N - j);
            const rms_four<A> gain = rms_gain<A>(b.weight, weight, j, n, b.args.offset);
            const rms_four<A> dy = rms_get<A>(b.dy.data, b.dy.dtype, at + j, n);
            const rms_four<A> x = rms_get<A>(b.x.data, b.x.dtype, x_row + j, n);
            for (int v = 0; v < 4; v++) dot += (double)(dy.at[v] * gain.at[v] * (x.at[v] * rstd));
        }
        const A mean = (A)(gd_block_reduce(dot, shared, gd_plus()) / (double)b.N);
        for (int64_t j = 4 * threadIdx.x; j < b.N; j += step) {
            const int n = rms_count(b.N - j);
            const rms_four<A> gain = rms_gain<A>(b.weight, weight, j, n, b.args.offset);
            const rms_four<A> dy = rms_get<A>(b.dy.data, b.dy.dtype, at + j, n);
            const rms_four<A> x = rms_get<A>(b.x.data, b.x.dtype, x_row + j, n);
            rms_four<A> dx, past = {};
            if (b.dsum.data) past = rms_get<A>(b.dsum.data, b.dsum.dtype, at + j, n);
            for (int v = 0; v < 4; v++)
                dx.at[v] = rstd * (dy.at[v] * gain.at[v] - x.at[v] * rstd * mean) + past.at[v];
            if (b.dx.data) rms_put(b.dx, at + j, n, dx);
            if (b.dresidual.data) rms_put(b.dresidual, at + j, n, dx);
        }
    }
}

// xhat [M, N] as the weight met it.
template <class A>
static __global__ void __launch_bounds__(512)
    xhat_kernel(A *xhat, const __grid_constant__ rms_backward b)
{
    for (int64_t row = blockIdx.x; row < b.M; row += gridDim.x) {
        const int64_t x_row = rms_row(b.x, row);
        const A rstd = ((const A *)b.rstd)[row];
        for (int64_t j = threadIdx.x; j < b.N; j += blockDim.x) {
            const A x = rms_get<A>(b.x.data, b.x.dtype, x_row + j, 1).at[0];
            xhat[row * b.N + j] = rms_round(x * rstd, b.args.round_xhat);
        }
    }
}

// Threads for a row: about four columns each.
static unsigned threads_for(int64_t N)
{
    const int64_t warps = (N + 127) / 128;
    return 32 * (unsigned)(warps < 16 ? warps : 16);
}

#endif
