// swiglu.cu - the CUDA kernels of swiglu: one pass each, in packs of 16 bytes (map.cuh).
#include "elementwise/functions.h"
#include "map.cuh"

namespace gd_swiglu_cuda
{

struct value {
    template <class V>
    __device__ V operator()(V z, V up) const
    {
        return silu(z) * up;
    }
};

// out[first + j] (+)= x[j]
template <class T, int N, class V>
__device__ inline void store(T *out, bool add, const V (&x)[N], int64_t first, int64_t n)
{
    T value[N] = {};
    if (add) gd_pack_load(value, out, first, n);
#pragma unroll
    for (int j = 0; j < N; j++) value[j] = gd_store<T>(add ? gd_load(value[j]) + x[j] : x[j]);
    gd_pack_store(out, value, first, n);
}

// With s = sigmoid(gate):  dgate = dy up s (1 + gate (1 - s)),  dup = dy gate s.
// dgate and dup may be NULL, and may be the memory of gate and of dy.
template <class T>
__global__ void __launch_bounds__(GD_MAP_THREADS)
    backward_kernel(T *dgate, T *dup, bool add_gate, bool add_up, const T *dy, const T *gate,
                    const T *up, int64_t n)
{
    constexpr int N = gd_pack_size<T>;
    using V = gd_compute<T>;
    GD_EACH(pack, gd_packs(n, N))
    {
        T dy_pack[N], gate_pack[N], up_pack[N];
        gd_pack_load(dy_pack, dy, pack * N, n);
        gd_pack_load(gate_pack, gate, pack * N, n);
        gd_pack_load(up_pack, up, pack * N, n);
        V for_gate[N], for_up[N];
#pragma unroll
        for (int j = 0; j < N; j++) {
            const V z = gd_load(gate_pack[j]), d = gd_load(dy_pack[j]);
            for_gate[j] = d * gd_load(up_pack[j]) * silu_slope(z);
            for_up[j] = d * silu(z);
        }
        if (dgate) store(dgate, add_gate, for_gate, pack * N, n);
        if (dup) store(dup, add_up, for_up, pack * N, n);
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
    const int64_t n = gd_tensor_count(call->input[0]);
    if (n == 0 || (!call->dinput[0] && !call->dinput[1])) return GD_OK;
    return gd_by_storage(call, [&](auto zero) {
        using T = decltype(zero);
        const unsigned blocks = gd_blocks(n, GD_MAP_THREADS * gd_pack_size<T>);
        gd_swiglu_cuda::backward_kernel<<<blocks, GD_MAP_THREADS, 0, gd_stream(call)>>>(
            gd_ptr<T>(call->dinput[0]), gd_ptr<T>(call->dinput[1]), call->accumulate[0],
            call->accumulate[1], (const T *)gd_ptr<T>(call->doutput[0]),
            (const T *)gd_ptr<T>(call->input[0]), (const T *)gd_ptr<T>(call->input[1]), n);
        return gd_launched(call);
    });
}
