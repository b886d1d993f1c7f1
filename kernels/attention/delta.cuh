// delta.cuh - delta = sum of dy * y along a row, [B, H, T]: what softmax's gradient subtracts.
#ifndef GD_ATTENTION_DELTA_CUH
#define GD_ATTENTION_DELTA_CUH

#include "attention/heads.cuh"

// One warp per row.
template <class T>
static __global__ void __launch_bounds__(256)
    attention_delta_kernel(gd_compute<T> *delta, attention_heads<T> dy, attention_heads<T> y,
                           attention_sizes z)
{
    using A = gd_compute<T>;
    const int lane = threadIdx.x % 32;
    const int64_t rows = z.B * z.T * z.H, step = (int64_t)gridDim.x * 8;
    for (int64_t i = (int64_t)blockIdx.x * 8 + threadIdx.x / 32; i < rows; i += step) {
        const int64_t h = i % z.H, t = i / z.H % z.T, b = i / z.H / z.T;
        const T *dy_row = dy.at(b, t, h), *y_row = y.at(b, t, h);
        A sum = 0;
        /* [delta] */
        for (int64_t e = lane; e < z.E; e += 32) sum += gd_load(dy_row[e]) * gd_load(y_row[e]);
        sum = gd_warp_reduce(sum, gd_plus());
        if (lane == 0) delta[(b * z.H + h) * z.T + t] = sum;
    }
}

template <class T>
static gd_status attention_delta(const gd_call *call, const attention_heads<T> &dy,
                                 const attention_sizes &z, const gd_compute<T> **delta)
{
    using A = gd_compute<T>;
    const int64_t rows = z.B * z.H * z.T;
    A *room = (A *)gd_call_scratch(call, (size_t)rows * sizeof(A));
    if (!room) return gd_error_status(call->context);
    *delta = room;
    if (rows == 0) return GD_OK;
    attention_delta_kernel<T><<<gd_blocks(rows, 8), 256, 0, gd_stream(call)>>>(
        room, dy, attention_as_it_lies<T>(call->output[0]), z);
    return gd_launched(call);
}

#endif
