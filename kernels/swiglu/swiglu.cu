// swiglu.cu - the CUDA kernels of swiglu: one pass each, in packs of 16 bytes (pack.cuh).
#include "async.cuh"
#include "launch.cuh"
#include "pack.cuh"
#include "swiglu/formula.h"
#include "swiglu/swiglu.h"

namespace gd_swiglu_cuda
{

// Pack `pack` of all rows: its row, and the element of the row with which it begins.
struct row_pack {
    int64_t row, first;

    __device__ row_pack(int64_t pack, int64_t packs, int size)
    {
        row = pack < packs ? 0 : pack < INT32_MAX ? (int)pack / (int)packs : pack / packs;
        first = (pack - row * packs) * size;
    }
};

template <class T>
__global__ void __launch_bounds__(gd_threads)
    forward_kernel(T *y, const T *gate, const T *up, swiglu_rows r)
{
    constexpr int N = gd_pack_size<T>;
    using V = gd_compute<T>;
    const int64_t packs = gd_packs(r.n, N);
    gd_async::let_next_start();
    gd_async::wait_for_previous();
    GD_EACH(i, r.rows * packs)
    {
        const row_pack at(i, packs, N);
        T gate_pack[N], up_pack[N];
        gd_load_guarded(gate_pack, gate + at.row * r.step, at.first, r.n);
        gd_load_guarded(up_pack, up + at.row * r.step, at.first, r.n);
#pragma unroll
        for (int j = 0; j < N; j++) {
            gate_pack[j] = gd_store<T>(swiglu((V)gd_load(gate_pack[j]), (V)gd_load(up_pack[j])));
        }
        gd_store_guarded(y + at.row * r.n, gate_pack, at.first, r.n);
    }
}

// out[first + j] (+)= x[j]
template <class T, int N, class V>
__device__ inline void store(T *out, bool add, const V (&x)[N], int64_t first, int64_t n)
{
    T value[N] = {};
    if (add) gd_load_guarded(value, out, first, n);
#pragma unroll
    for (int j = 0; j < N; j++) value[j] = gd_store<T>(add ? gd_load(value[j]) + x[j] : x[j]);
    gd_store_guarded(out, value, first, n);
}

// dgate and dup may be NULL, and may be the memory of gate and of up or dy.
template <class T>
__global__ void __launch_bounds__(gd_threads)
    backward_kernel(T *dgate, T *dup, bool add_gate, bool add_up, const T *dy, const T *gate,
                    const T *up, swiglu_rows r)
{
    gd_in_turn();
    constexpr int N = gd_pack_size<T>;
    using V = gd_compute<T>;
    const int64_t packs = gd_packs(r.n, N);
    GD_EACH(i, r.rows * packs)
    {
        const row_pack at(i, packs, N);
        const int64_t first = at.first, row = at.row * r.step;
        T dy_pack[N], gate_pack[N], up_pack[N];
        gd_load_guarded(dy_pack, dy + at.row * r.n, first, r.n);
        gd_load_guarded(gate_pack, gate + row, first, r.n);
        gd_load_guarded(up_pack, up + row, first, r.n);
        V for_gate[N], for_up[N];
#pragma unroll
        for (int j = 0; j < N; j++) {
            const V z = gd_load(gate_pack[j]), d = gd_load(dy_pack[j]);
            for_gate[j] = swiglu_dgate(d, z, (V)gd_load(up_pack[j]));
            for_up[j] = swiglu_dup(d, z);
        }
        if (dgate) store(dgate + row, add_gate, for_gate, first, r.n);
        if (dup) store(dup + row, add_up, for_up, first, r.n);
    }
}

} // namespace gd_swiglu_cuda

extern "C" gd_status swiglu_forward_cuda(const gd_call *call)
{
    const swiglu_rows r = swiglu_rows_of(call);
    if (r.rows * r.n == 0) return GD_OK;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const T *gate = gd_ptr<T>(call->input[0]);
        const T *up = r.halves ? gate + r.n : gd_ptr<T>(call->input[1]);
        return gd_launch(call, gd_grid_for(r.rows * gd_packs(r.n, gd_pack_size<T>)),
                         gd_swiglu_cuda::forward_kernel<T>, gd_ptr<T>(call->output[0]), gate, up,
                         r);
    });
}

extern "C" gd_status swiglu_backward_cuda(const gd_call *call)
{
    const swiglu_rows r = swiglu_rows_of(call);
    if (r.rows * r.n == 0 || (!call->dinput[0] && !call->dinput[1])) return GD_OK;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const T *gate = gd_ptr<T>(call->input[0]);
        const T *up = r.halves ? gate + r.n : gd_ptr<T>(call->input[1]);
        T *dgate = gd_ptr<T>(call->dinput[0]);
        T *dup = r.halves ? dgate + r.n : gd_ptr<T>(call->dinput[1]);
        const gd_grid grid = gd_grid_for(r.rows * gd_packs(r.n, gd_pack_size<T>));
        return gd_launch(call, grid, gd_swiglu_cuda::backward_kernel<T>, dgate, dup,
                         call->accumulate[0], call->accumulate[r.halves ? 0 : 1],
                         (const T *)gd_ptr<T>(call->doutput[0]), gate, up, r);
    });
}
