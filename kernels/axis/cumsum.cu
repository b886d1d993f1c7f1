// cumsum.cu - the CUDA kernel of cumsum, forward and backward.
#include "axis/lines.cuh"

// A warp has a line, 32 elements of it at a time: their sums up to each by shuffles, and what came
// before on top. `reversed`: from the end.
template <class T>
static __global__ void cumsum_kernel(T *to, const T *from, axis_lines l, bool add, bool reversed)
{
    gd_in_turn();
    using C = gd_compute<T>;
    const int64_t n = l.n[TO];
    GD_EACH_WARP(number, l.walk.count)
    {
        const axis_line line(l, number);
        C before = 0;
        for (int64_t first = 0; first < n; first += 32) {
            const int64_t i = first + threadIdx.x % 32, k = reversed ? n - 1 - i : i;
            const C own = i < n ? (C)gd_load(from[line.at(FROM, k)]) : (C)0;
            const C sum = gd_sum_up_to(own) + before;
            before = __shfl_sync(0xffffffffu, sum, 31);
            if (i >= n) continue;
            T *out = to + line.at(TO, k);
            *out = gd_store<T>(add ? gd_load(*out) + sum : sum);
        }
    }
}

template <class T>
static gd_status cumsum(const gd_call *call, const gd_tensor *to, bool add, const gd_tensor *from,
                        bool reversed)
{
    if (!to || gd_tensor_count(to) == 0) return GD_OK;
    const axis_lines l = lines_of(call, to, {to, from, to});
    return gd_launch(call, gd_grid_of_warps(l.walk.count), cumsum_kernel<T>, gd_ptr<T>(to),
                     gd_ptr<const T>(from), l, add, reversed);
}

GD_CUDA_KERNEL_OF_T(cumsum_forward, cumsum<T>(call, call->output[0], false, call->input[0], false))
GD_CUDA_KERNEL_OF_T(cumsum_backward,
                    cumsum<T>(call, call->dinput[0], call->accumulate[0], call->doutput[0], true))
