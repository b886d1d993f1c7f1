// swiglu.cu - the CUDA kernels of swiglu: one pass each, in packs of 16 bytes (map.cuh).
#include "elementwise/functions.h"
#include "map.cuh"

namespace gd_swiglu_cuda
{

struct value {
    template <class V>
    __device__ V operator()(V z, V up) const
    {
        return (z < -(V)1e30 ? 0 : z * sigmoid(z)) *
               up; // -inf * 0 would be NaN, and the limit is 0
    }
};

// What the backward reads and writes. dgate and dup may be NULL, and may be the memory of gate and
// of dy.
template <class T>
struct backward {
    const T *dy, *gate, *up;
    T *dgate, *dup;
    bool add_gate, add_up;
};

// Elements i to i + N - 1, with s = sigmoid(gate):
//     dgate = dy up s (1 + gate (1 - s)),    dup = dy gate s.
template <int N, class T>
__device__ inline void backward_at(const backward<T> &b, int64_t i)
{
    using V = gd_compute<T>;
    V dy[N], gate[N], up[N], for_gate[N], for_up[N];
    gd_load_pack(dy, b.dy + i);
    gd_load_pack(gate, b.gate + i);
    gd_load_pack(up, b.up + i);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const V z = gate[j], s = sigmoid(z);
        const bool low = z < -(V)1e30; // where both derivatives are 0, and not 0 * inf
        for_gate[j] = low ? 0 : dy[j] * up[j] * s * (1 + z * (1 - s));
        for_up[j] = low ? 0 : dy[j] * z * s;
    }
    if (b.dgate) gd_store_pack(b.dgate + i, b.add_gate, for_gate);
    if (b.dup) gd_store_pack(b.dup + i, b.add_up, for_up);
}

template <class T>
__global__ void __launch_bounds__(GD_MAP_THREADS)
    backward_kernel(backward<T> b, int64_t n, bool aligned)
{
    constexpr int N = gd_pack_size<T>;
    GD_EACH(pack, (n + N - 1) / N)
    {
        const int64_t first = pack * N;
        if (aligned && first + N <= n)
            backward_at<N>(b, first);
        else
            for (int64_t i = first; i < n && i < first + N; i++) backward_at<1>(b, i);
    }
}

} // namespace gd_swiglu_cuda

extern "C" gd_status swiglu_forward_cuda(const gd_call *call)
{
    const int64_t n = gd_tensor_count(call->output[0]);
    return gd_by_storage(call, [&](auto zero) {
        using T = decltype(zero);
        const T *const in[] = {gd_ptr<T>(call->input[0]), gd_ptr<T>(call->input[1])};
        return gd_map_flat(call, gd_ptr<T>(call->output[0]), false, n, in, gd_swiglu_cuda::value());
    });
}

extern "C" gd_status swiglu_backward_cuda(const gd_call *call)
{
    using namespace gd_swiglu_cuda;
    const int64_t n = gd_tensor_count(call->input[0]);
    if (n == 0 || (!call->dinput[0] && !call->dinput[1])) return GD_OK;
    return gd_by_storage(call, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = gd_pack_size<T>;
        const backward<T> b = {gd_ptr<T>(call->doutput[0]), gd_ptr<T>(call->input[0]),
                               gd_ptr<T>(call->input[1]),   gd_ptr<T>(call->dinput[0]),
                               gd_ptr<T>(call->dinput[1]),  call->accumulate[0],
                               call->accumulate[1]};
        const T *const all[] = {b.dy, b.gate, b.up, b.dgate, b.dup};
        bool aligned = true;
        for (const T *data : all) aligned = aligned && gd_pack_aligned<T, N>(data);
        backward_kernel<<<gd_blocks(n, GD_MAP_THREADS * N), GD_MAP_THREADS, 0, gd_stream(call)>>>(
            b, n, aligned);
        return gd_launched(call);
    });
}
