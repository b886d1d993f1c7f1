// rms_norm_op.cuh - the plain kernels of the ops rms_norm and add_rms_norm, a block a row:
//   forward_kernel   y and rstd, with a residual added first
//   dx_kernel        dx, added to what goes past the norm (dsum) or is there already
//   xhat_kernel      xhat alone
// They take weights per head and every tensor in its own dtype, chosen at run time: one load an
// element. Each row is read twice, the second time from the cache.
#ifndef GD_RMS_NORM_OP_CUH
#define GD_RMS_NORM_OP_CUH

#include "../cuda.cuh"
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

// Element i of an array of any real dtype.
template <class A>
__device__ inline A rms_get(const void *data, gd_dtype dtype, int64_t i)
{
    switch (dtype) {
    case GD_FLOAT64:
        return (A)((const double *)data)[i];
    case GD_BFLOAT16:
        return gd_load(((const __nv_bfloat16 *)data)[i]);
    case GD_FLOAT16:
        return gd_load(((const __half *)data)[i]);
    default:
        return ((const float *)data)[i];
    }
}

template <class A>
__device__ inline void rms_put(rms_packed to, int64_t i, A value)
{
    if (to.accumulate) value += rms_get<A>(to.data, to.dtype, i);
    switch (to.dtype) {
    case GD_FLOAT64:
        ((double *)to.data)[i] = gd_store<double>(value);
        break;
    case GD_BFLOAT16:
        ((__nv_bfloat16 *)to.data)[i] = gd_store<__nv_bfloat16>(value);
        break;
    case GD_FLOAT16:
        ((__half *)to.data)[i] = gd_store<__half>(value);
        break;
    default:
        ((float *)to.data)[i] = gd_store<float>(value);
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

// What xhat is multiplied by in column j; `row` is where the weights of this row begin.
template <class A>
__device__ inline A rms_gain(const rms_param &weight, int64_t row, int64_t j, double offset)
{
    return weight.data ? rms_get<A>(weight.data, weight.dtype, row + j) + (A)offset : (A)1;
}

// ---- Kernels ----------------------------------------------------------------------------------

// x, or x + residual rounded as the sum is stored.
template <class A>
__device__ inline A rms_input(const rms_forward &f, int64_t x, int64_t residual)
{
    A value = rms_get<A>(f.x.data, f.x.dtype, x);
    if (!f.residual.data) return value;
    value += rms_get<A>(f.residual.data, f.residual.dtype, residual);
    return rms_round(value, f.args.round_sum);
}

template <class A>
static __global__ void __launch_bounds__(512) forward_kernel(const __grid_constant__ rms_forward f)
{
    __shared__ A shared[32];
    for (int64_t row = blockIdx.x; row < f.M; row += gridDim.x) {
        const int64_t x = rms_row(f.x, row), residual = rms_row(f.residual, row);
        const int64_t weight = f.weight.data ? row % f.weight.heads * f.N : 0;
        const int64_t bias = f.bias.data ? row % f.bias.heads * f.N : 0;
        A sum = 0;
        for (int64_t j = threadIdx.x; j < f.N; j += blockDim.x) {
            const A value = rms_input<A>(f, x + j, residual + j);
            if (f.sum.data) rms_put(f.sum, row * f.N + j, value);
            sum += value * value;
        }
        sum = gd_block_reduce(sum, shared, gd_plus());
        const A rstd = (A)1 / sqrt(sum / (A)f.N + (A)f.args.eps);
        if (f.rstd && threadIdx.x == 0) ((A *)f.rstd)[row] = rstd;
        for (int64_t j = threadIdx.x; j < f.N; j += blockDim.x) {
            A y = rms_round(rms_input<A>(f, x + j, residual + j) * rstd, f.args.round_xhat);
            y *= rms_gain<A>(f.weight, weight, j, f.args.offset);
            if (f.bias.data) y += rms_get<A>(f.bias.data, f.bias.dtype, bias + j);
            rms_put(f.y, row * f.N + j, y);
        }
    }
}

// dx = rstd (h - xhat mean(h xhat)) + dsum with h = dy gain. dx may take the place of dy: a thread
// writes column j after it has read it, and all have read for the mean.
template <class A>
static __global__ void __launch_bounds__(512) dx_kernel(const __grid_constant__ rms_backward b)
{
    __shared__ A shared[32];
    for (int64_t row = blockIdx.x; row < b.M; row += gridDim.x) {
        const int64_t x = rms_row(b.x, row), at = row * b.N;
        const int64_t weight = b.weight.data ? row % b.weight.heads * b.N : 0;
        const A rstd = ((const A *)b.rstd)[row];
        A dot = 0;
        for (int64_t j = threadIdx.x; j < b.N; j += blockDim.x) {
            const A gain = rms_gain<A>(b.weight, weight, j, b.args.offset);
            const A h = rms_get<A>(b.dy.data, b.dy.dtype, at + j) * gain;
            dot += h * (rms_get<A>(b.x.data, b.x.dtype, x + j) * rstd);
        }
        const A mean = gd_block_reduce(dot, shared, gd_plus()) / (A)b.N;
        for (int64_t j = threadIdx.x; j < b.N; j += blockDim.x) {
            const A gain = rms_gain<A>(b.weight, weight, j, b.args.offset);
            const A h = rms_get<A>(b.dy.data, b.dy.dtype, at + j) * gain;
            const A xhat = rms_get<A>(b.x.data, b.x.dtype, x + j) * rstd;
            A dx = rstd * (h - xhat * mean);
            if (b.dsum.data) dx += rms_get<A>(b.dsum.data, b.dsum.dtype, at + j);
            if (b.dx.data) rms_put(b.dx, at + j, dx);
            if (b.dresidual.data) rms_put(b.dresidual, at + j, dx);
        }
    }
}

// xhat [M, N] as the weight met it.
template <class A>
static __global__ void __launch_bounds__(512)
    xhat_kernel(A *xhat, const __grid_constant__ rms_backward b)
{
    for (int64_t row = blockIdx.x; row < b.M; row += gridDim.x) {
        const int64_t x = rms_row(b.x, row);
        const A rstd = ((const A *)b.rstd)[row];
        for (int64_t j = threadIdx.x; j < b.N; j += blockDim.x) {
            const A value = rms_get<A>(b.x.data, b.x.dtype, x + j) * rstd;
            xhat[row * b.N + j] = rms_round(value, b.args.round_xhat);
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
