// binary.cu - the CUDA kernels of the functions of two variables (binary.def): maps (map.cuh), and
// sums over the axes along which an operand was broadcast (reduce.cuh).
#include "elementwise/functions.h"
#include "reduce/reduce.cuh"

// ---- Functions, by table ------------------------------------------------------------------------

namespace gd_elementwise
{

#define GRADIENT(gradient_name, gradient)                            \
    struct gradient_name {                                           \
        template <class REAL>                                        \
        __device__ REAL operator()(REAL dy, [[maybe_unused]] REAL a, \
                                   [[maybe_unused]] REAL b) const    \
        {                                                            \
            return gradient;                                         \
        }                                                            \
    };

#define BINARY(name, formula, value, da, db, ...)        \
    struct name##_value {                                \
        template <class REAL>                            \
        __device__ REAL operator()(REAL a, REAL b) const \
        {                                                \
            return value;                                \
        }                                                \
    };                                                   \
    GRADIENT(name##_da, da)                              \
    GRADIENT(name##_db, db)
#include "elementwise/binary.def"
#undef BINARY

template <class Value>
static gd_status binary_forward(const gd_call *call)
{
    const gd_layout in[] = {gd_cuda_layout(call->input[0]), gd_cuda_layout(call->input[1])};
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        return gd_map(call, gd_ptr<T>(call->output[0]), false, call->output[0], in, Value());
    });
}

// dx of input k. If the input was broadcast, dx is the sum over its copies.
template <class Gradient>
static gd_status input_backward(const gd_call *call, int k)
{
    const gd_tensor *dy = call->doutput[0];
    if (!call->dinput[k]) return GD_OK;
    const bool reads = call->op->backward_reads_inputs != 0;
    const gd_tensor *a = reads ? call->input[0] : dy; // unread inputs may have been freed
    const gd_tensor *b = reads ? call->input[1] : dy;
    const gd_layout in[] = {gd_cuda_layout(dy), gd_cuda_layout(a), gd_cuda_layout(b)};
    return gd_by_kernel_dtype(call, [&](auto zero) {
        return gd_cuda_broadcast_gradient<decltype(zero)>(call, k, in, Gradient());
    });
}

// One of the two may be written over dy; the other one is computed first.
template <class ByA, class ByB>
static gd_status binary_backward(const gd_call *call)
{
    const gd_tensor *da = call->dinput[0];
    if (da && gd_tensor_data(da) == gd_tensor_data(call->doutput[0])) {
        const gd_status status = input_backward<ByB>(call, 1);
        return status ? status : input_backward<ByA>(call, 0);
    }
    const gd_status status = input_backward<ByA>(call, 0);
    return status ? status : input_backward<ByB>(call, 1);
}

// ---- The kernels --------------------------------------------------------------------------------

#define BINARY(name, ...)                                              \
    GD_CUDA_KERNEL(name##_forward, binary_forward<name##_value>(call)) \
    GD_CUDA_KERNEL(name##_backward, binary_backward<name##_da, name##_db>(call))
#include "elementwise/binary.def"

} // namespace gd_elementwise
