// pad.cu - the CUDA kernels of pad. Every sum has one writer.
#include "pad/pad.h"
#include "planes.cuh"

namespace
{

template <class T, class Planes>
__global__ void __launch_bounds__(gd_threads)
    pad_kernel(T *y, const T *x, Planes w, gd_pad_planes p, T value)
{
    gd_in_turn();
    using Index = typename Planes::Index;
    const gd_pad_axis &rows = p.axis[PAD_ROWS], &cols = p.axis[PAD_COLS];
    GD_EACH(place, w.places)
    {
        const gd_plane_place<Index> at((Index)place, (Index)gd_pad_size(&rows),
                                       (Index)gd_pad_size(&cols));
        const int64_t row = gd_pad_source(&rows, at.row), col = gd_pad_source(&cols, at.col);
        const T *from = x + (at.plane * rows.n + row) * cols.n + col;
        for (int64_t e = place; e < w.count; e += w.step(), from += w.from_step()) {
            T shown[Planes::PLANES];
            if (row >= 0 && col >= 0) w.load(shown, e, from);
#pragma unroll
            for (int k = 0; k < Planes::PLANES; k++)
                if (w.has(e, k)) y[e + k * w.apart] = row < 0 || col < 0 ? value : shown[k];
        }
    }
}

template <class T, class Planes>
__global__ void __launch_bounds__(gd_threads)
    gradient_kernel(T *dx, bool add, const T *dy, Planes w, gd_pad_planes p)
{
    gd_in_turn();
    using Index = typename Planes::Index;
    constexpr int PLANES = Planes::PLANES;
    const gd_pad_axis &rows = p.axis[PAD_ROWS], &cols = p.axis[PAD_COLS];
    const int64_t H = gd_pad_size(&rows), W = gd_pad_size(&cols);
    GD_EACH(place, w.places)
    {
        const gd_plane_place<Index> at((Index)place, (Index)rows.n, (Index)cols.n);
        gd_pad_range over[PAD_RANGES], across[PAD_RANGES];
        gd_pad_images(&rows, at.row, over);
        gd_pad_images(&cols, at.col, across);
        const T *from = dy + at.plane * (H * W);
        for (int64_t e = place; e < w.count; e += w.step(), from += w.from_step()) {
            gd_long_sum<gd_compute<T>> sum[PLANES];
#pragma unroll
            for (int k = 0; k < PLANES; k++)
                if (add && w.has(e, k)) sum[k].add(gd_load(dx[e + k * w.apart]));
#pragma unroll
            for (int a = 0; a < PAD_RANGES; a++)
                for (int64_t i = over[a].first; i < over[a].end; i++)
#pragma unroll
                    for (int b = 0; b < PAD_RANGES; b++)
                        for (int64_t j = across[b].first; j < across[b].end; j++) {
                            T value[PLANES];
                            w.load(value, e, from + (i * W + j));
#pragma unroll
                            for (int k = 0; k < PLANES; k++)
                                if (w.has(e, k)) sum[k].add(gd_load(value[k]));
                        }
#pragma unroll
            for (int k = 0; k < PLANES; k++)
                if (w.has(e, k)) dx[e + k * w.apart] = gd_store<T>(sum[k].value());
        }
    }
}

} // namespace

extern "C" gd_status pad_forward_cuda(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *y = call->output[0];
    const gd_pad_planes p = gd_pad_planes_of(call, x);
    return gd_by_planes(call, y, x, p.planes, 0, [&](auto zero, auto planes) {
        using T = decltype(zero);
        return gd_launch(call, gd_grid_for(planes.places), pad_kernel<T, decltype(planes)>,
                         gd_ptr<T>(y), gd_ptr<const T>(x), planes, p, (T)p.value);
    });
}

extern "C" gd_status pad_backward_cuda(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0], *dy = call->doutput[0];
    if (!dx) return GD_OK;
    const gd_pad_planes p = gd_pad_planes_of(call, call->input[0]);
    return gd_by_planes(call, dx, dy, p.planes, 0, [&](auto zero, auto planes) {
        using T = decltype(zero);
        return gd_launch(call, gd_grid_for(planes.places), gradient_kernel<T, decltype(planes)>,
                         gd_ptr<T>(dx), call->accumulate[0], gd_ptr<const T>(dy), planes, p);
    });
}
