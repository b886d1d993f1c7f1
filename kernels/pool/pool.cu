// pool.cu - the CUDA kernels of max_pool2d and avg_pool2d. A thread has one element of the result, of
// y or of dx, and every sum has one writer.
#include "cuda.cuh"
#include "pool/pool.h"

namespace
{

constexpr int threads = 256;

// Geometry in Index, unsigned where the planes have fewer than 2^31 elements: 64-bit divisions take
// longer than the memory does.
template <class Index>
struct pool_sizes {
    Index size[POOL_AXES], pooled[POOL_AXES];
    int kernel[POOL_AXES], stride[POOL_AXES], padding[POOL_AXES];

    // Places first to end - 1 along an axis: of window i, those in x.
    struct span {
        int64_t first, end;
    };
    __device__ span places(int axis, Index i) const
    {
        const int64_t first = (int64_t)i * stride[axis] - padding[axis];
        return {max(first, (int64_t)0), min(first + kernel[axis], (int64_t)size[axis])};
    }
    // The windows that contain place i.
    __device__ span windows(int axis, Index i) const
    {
        const Index at = i + padding[axis], before = at + 1 - kernel[axis];
        const Index first =
            at + 1 > (Index)kernel[axis] ? gd_ceil_div(before, (Index)stride[axis]) : 0;
        return {(int64_t)first, min((int64_t)pooled[axis], (int64_t)(at / stride[axis] + 1))};
    }
    // Element e of planes of a size: its plane, row and column.
    struct place {
        Index plane, row, col;
    };
    static __device__ place place_of(Index e, const Index (&in)[POOL_AXES])
    {
        const Index row = e / in[POOL_COLS], plane = row / in[POOL_ROWS];
        return {plane, row - plane * in[POOL_ROWS], e - row * in[POOL_COLS]};
    }
};

// y, and its place in the plane if it is wanted: of equal elements the first, of NaNs the last.
template <class T, class Index>
__global__ void __launch_bounds__(threads)
    max_kernel(T *y, int32_t *place, const T *x, Index count, pool_sizes<Index> p)
{
    GD_EACH(e, count)
    {
        const auto at = p.place_of((Index)e, p.pooled);
        const auto rows = p.places(POOL_ROWS, at.row), cols = p.places(POOL_COLS, at.col);
        const int64_t W = p.size[POOL_COLS];
        const T *plane = x + (int64_t)at.plane * p.size[POOL_ROWS] * W;
        gd_compute<T> most = -INFINITY;
        int64_t where = rows.first * W + cols.first;
        for (int64_t a = rows.first; a < rows.end; a++) {
            for (int64_t b = cols.first; b < cols.end; b++) {
                const gd_compute<T> value = gd_load(plane[a * W + b]);
                if (value > most || value != value) most = value, where = a * W + b;
            }
        }
        y[e] = gd_store<T>(most);
        if (place) place[e] = (int32_t)where;
    }
}

template <class T, class Index>
__global__ void __launch_bounds__(threads)
    max_gradient_kernel(T *dx, bool add, const T *dy, const int32_t *place, Index count,
                        pool_sizes<Index> p)
{
    GD_EACH(e, count)
    {
        const auto at = p.place_of((Index)e, p.size);
        const auto rows = p.windows(POOL_ROWS, at.row), cols = p.windows(POOL_COLS, at.col);
        const int32_t own = (int32_t)(at.row * p.size[POOL_COLS] + at.col);
        const int64_t n = p.pooled[POOL_COLS], plane = at.plane * (p.pooled[POOL_ROWS] * n);
        gd_compute<T> sum = 0;
        for (int64_t i = rows.first; i < rows.end; i++)
            for (int64_t j = cols.first; j < cols.end; j++)
                if (place[plane + i * n + j] == own)
                    sum += gd_load(dy[plane + i * n + j]); /* [max_pool2d] */
        dx[e] = gd_store<T>(add ? gd_load(dx[e]) + sum : sum);
    }
}

template <class T, class Index>
__global__ void __launch_bounds__(threads)
    avg_kernel(T *y, const T *x, Index count, pool_sizes<Index> p, gd_compute<T> size)
{
    GD_EACH(e, count)
    {
        const auto at = p.place_of((Index)e, p.pooled);
        const auto rows = p.places(POOL_ROWS, at.row), cols = p.places(POOL_COLS, at.col);
        const int64_t W = p.size[POOL_COLS];
        const T *plane = x + (int64_t)at.plane * p.size[POOL_ROWS] * W;
        gd_long_sum<gd_compute<T>> sum;
        for (int64_t a = rows.first; a < rows.end; a++)
            for (int64_t b = cols.first; b < cols.end; b++) sum.add(gd_load(plane[a * W + b]));
        y[e] = gd_store<T>(sum.value() / size);
    }
}

template <class T, class Index>
__global__ void __launch_bounds__(threads)
    avg_gradient_kernel(T *dx, bool add, const T *dy, Index count, pool_sizes<Index> p,
                        gd_compute<T> size)
{
    GD_EACH(e, count)
    {
        const auto at = p.place_of((Index)e, p.size);
        const auto rows = p.windows(POOL_ROWS, at.row), cols = p.windows(POOL_COLS, at.col);
        const int64_t n = p.pooled[POOL_COLS], plane = at.plane * (p.pooled[POOL_ROWS] * n);
        gd_compute<T> sum = 0;
        for (int64_t i = rows.first; i < rows.end; i++)
            for (int64_t j = cols.first; j < cols.end; j++)
                sum += gd_load(dy[plane + i * n + j]); /* [avg_pool2d] */
        sum /= size;
        dx[e] = gd_store<T>(add ? gd_load(dx[e]) + sum : sum);
    }
}

template <class Index>
pool_sizes<Index> sizes_of(const gd_pool_planes &p)
{
    pool_sizes<Index> s;
    for (int axis = 0; axis < POOL_AXES; axis++) {
        s.size[axis] = (Index)p.size[axis];
        s.pooled[axis] = (Index)p.pooled[axis];
        s.kernel[axis] = (int)p.args.kernel[axis];
        s.stride[axis] = (int)p.args.stride[axis];
        s.padding[axis] = (int)p.args.padding[axis];
    }
    return s;
}

// Calls launch(zero, count, sizes, blocks) with a T and sizes in the Index that x and y need, unless
// `to` has no elements.
template <class Launch>
gd_status by_index(const gd_call *call, const gd_tensor *x, const gd_tensor *y, const gd_tensor *to,
                   Launch launch)
{
    const gd_pool_planes p = gd_pool_planes_of(call, x, y);
    const int64_t count = gd_tensor_count(to);
    if (count == 0) return GD_OK;
    const unsigned blocks = gd_blocks(count, threads);
    const bool small = gd_tensor_count(x) <= INT32_MAX && gd_tensor_count(y) <= INT32_MAX;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        if (small)
            launch(zero, (unsigned)count, sizes_of<unsigned>(p), blocks);
        else
            launch(zero, count, sizes_of<int64_t>(p), blocks);
        return gd_launched(call);
    });
}

double window_size(const gd_call *call)
{
    const gd_pool_args *args = (const gd_pool_args *)call->args;
    return (double)(args->kernel[POOL_ROWS] * args->kernel[POOL_COLS]);
}

} // namespace

extern "C" gd_status max_pool2d_forward_cuda(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *y = call->output[0], *place = call->save[0];
    return by_index(call, x, y, y, [&](auto zero, auto count, auto sizes, unsigned blocks) {
        using T = decltype(zero);
        max_kernel<<<blocks, threads, 0, gd_stream(call)>>>(
            gd_ptr<T>(y), place ? gd_ptr<int32_t>(place) : nullptr, gd_ptr<const T>(x), count,
            sizes);
    });
}

extern "C" gd_status max_pool2d_backward_cuda(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0], *dy = call->doutput[0];
    if (!dx) return GD_OK;
    return by_index(call, dx, dy, dx, [&](auto zero, auto count, auto sizes, unsigned blocks) {
        using T = decltype(zero);
        max_gradient_kernel<<<blocks, threads, 0, gd_stream(call)>>>(
            gd_ptr<T>(dx), call->accumulate[0], gd_ptr<const T>(dy),
            gd_ptr<const int32_t>(call->save[0]), count, sizes);
    });
}

extern "C" gd_status avg_pool2d_forward_cuda(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *y = call->output[0];
    return by_index(call, x, y, y, [&](auto zero, auto count, auto sizes, unsigned blocks) {
        using T = decltype(zero);
        avg_kernel<<<blocks, threads, 0, gd_stream(call)>>>(
            gd_ptr<T>(y), gd_ptr<const T>(x), count, sizes, (gd_compute<T>)window_size(call));
    });
}

extern "C" gd_status avg_pool2d_backward_cuda(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0], *dy = call->doutput[0];
    if (!dx) return GD_OK;
    return by_index(call, dx, dy, dx, [&](auto zero, auto count, auto sizes, unsigned blocks) {
        using T = decltype(zero);
        avg_gradient_kernel<<<blocks, threads, 0, gd_stream(call)>>>(
            gd_ptr<T>(dx), call->accumulate[0], gd_ptr<const T>(dy), count, sizes,
            (gd_compute<T>)window_size(call));
    });
}
