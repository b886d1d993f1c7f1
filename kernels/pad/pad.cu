// pad.cu - the CUDA kernels of pad. A thread has one element of the result, and every
// sum one writer.
#include "cuda.cuh"
#include "pad/pad.h"
#include "plane_place.cuh"

namespace
{

template <class T, class Index>
__global__ void __launch_bounds__(gd_threads)
    pad_kernel(T *y, const T *x, Index count, gd_pad_planes p, T value)
{
    gd_in_turn();
    const gd_pad_axis &rows = p.axis[PAD_ROWS], &cols = p.axis[PAD_COLS];
    const Index H = (Index)gd_pad_size(&rows), W = (Index)gd_pad_size(&cols);
    GD_EACH(e, count)
    {
        const gd_plane_place<Index> at((Index)e, H, W);
        const int64_t row = gd_pad_source(&rows, at.row), col = gd_pad_source(&cols, at.col);
        y[e] = row < 0 || col < 0 ? value : x[((int64_t)at.plane * rows.n + row) * cols.n + col];
    }
}

template <class T, class Index>
__global__ void __launch_bounds__(gd_threads)
    gradient_kernel(T *dx, bool add, const T *dy, Index count, gd_pad_planes p)
{
    gd_in_turn();
    const gd_pad_axis &rows = p.axis[PAD_ROWS], &cols = p.axis[PAD_COLS];
    const int64_t H = gd_pad_size(&rows), W = gd_pad_size(&cols);
    GD_EACH(e, count)
    {
        const gd_plane_place<Index> at((Index)e, (Index)rows.n, (Index)cols.n);
        gd_pad_range over[PAD_RANGES], across[PAD_RANGES];
        gd_pad_images(&rows, at.row, over);
        gd_pad_images(&cols, at.col, across);
        gd_long_sum<gd_compute<T>> sum;
        if (add) sum.add(gd_load(dx[e]));
#pragma unroll
        for (int a = 0; a < PAD_RANGES; a++)
            for (int64_t i = over[a].first; i < over[a].end; i++)
#pragma unroll
                for (int b = 0; b < PAD_RANGES; b++)
                    for (int64_t j = across[b].first; j < across[b].end; j++)
                        sum.add(gd_load(dy[(at.plane * H + i) * W + j]));
        dx[e] = gd_store<T>(sum.value());
    }
}

// Calls launch(zero, count) with a T and the number of elements of `to` in the Index that both
// tensors need.
template <class Launch>
gd_status by_index(const gd_call *call, const gd_tensor *to, const gd_tensor *from, Launch launch)
{
    const int64_t count = gd_tensor_count(to);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        if (count <= INT32_MAX && gd_tensor_count(from) <= INT32_MAX)
            return launch(zero, (unsigned)count);
        return launch(zero, count);
    });
}

} // namespace

extern "C" gd_status pad_forward_cuda(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *y = call->output[0];
    const gd_pad_planes p = gd_pad_planes_of(call, x);
    return by_index(call, y, x, [&](auto zero, auto count) {
        using T = decltype(zero);
        return gd_launch(call, gd_grid_for(count), pad_kernel<T, decltype(count)>, gd_ptr<T>(y),
                         gd_ptr<const T>(x), count, p, (T)p.value);
    });
}

extern "C" gd_status pad_backward_cuda(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0], *dy = call->doutput[0];
    if (!dx) return GD_OK;
    const gd_pad_planes p = gd_pad_planes_of(call, call->input[0]);
    return by_index(call, dx, dy, [&](auto zero, auto count) {
        using T = decltype(zero);
        return gd_launch(call, gd_grid_for(count), gradient_kernel<T, decltype(count)>,
                         gd_ptr<T>(dx), call->accumulate[0], gd_ptr<const T>(dy), count, p);
    });
}
