// binary.cu - the CUDA kernels of the functions of two variables (binary.def): maps (map.cuh), and
// sums over the axes along which an operand was broadcast (reduce.cuh).
#include "elementwise/functions.h"
#include "reduce/reduce.cuh"

// ---- Functions, by table ------------------------------------------------------------------------

namespace gd_elementwise
{

#define GRADIENT(name, gradient) \
    GD_MAP_FUNCTION(name, gradient, REAL dy, [[maybe_unused]] REAL a, [[maybe_unused]] REAL b)
#define BINARY(name, formula, value, da, db, ...)        \
    GD_MAP_FUNCTION(name##_value, value, REAL a, REAL b) \
    GRADIENT(name##_da, da)                              \
    GRADIENT(name##_db, db)
#include "elementwise/binary.def"
#undef BINARY

template <class Value, class T>
static gd_status binary_forward(const gd_call *call)
{
    const gd_layout in[] = {gd_cuda_layout(call->input[0]), gd_cuda_layout(call->input[1])};
    return gd_map(call, gd_ptr<T>(call->output[0]), false, call->output[0], in, Value());
}

// dy, a and b; dy again for inputs that the backward does not read: they may have been freed.
struct operands {
    gd_layout of[3];

    explicit operands(const gd_call *call)
    {
        const gd_tensor *dy = call->doutput[0];
        const bool reads = call->op->backward_reads_inputs != 0;
        of[0] = gd_cuda_layout(dy);
        for (int k = 0; k < 2; k++) of[1 + k] = gd_cuda_layout(reads ? call->input[k] : dy);
    }
};

// dx of input k. If the input was broadcast, dx is the sum over its copies.
template <class Gradient, class T>
static gd_status input_backward(const gd_call *call, int k)
{
    if (!call->dinput[k]) return GD_OK;
    const operands in(call);
    return gd_cuda_broadcast_gradient<T>(call, k, in.of, Gradient());
}

template <class ByA, class ByB>
struct both {
    template <class REAL>
    __device__ gd_two<REAL> operator()(REAL dy, REAL a, REAL b) const
    {
        return {ByA()(dy, a, b), ByB()(dy, a, b)};
    }
};

// Both gradients in one pass, if none is a sum. Else one of the two may be written over dy; the
// other one is computed first.
template <class ByA, class ByB, class T>
static gd_status binary_backward(const gd_call *call)
{
    const gd_tensor *dy = call->doutput[0], *da = call->dinput[0], *db = call->dinput[1];
    const int64_t n = gd_tensor_count(dy);
    if (da && db && gd_tensor_count(da) == n && gd_tensor_count(db) == n) {
        const operands in(call);
        const gd_results<T, 2> to = {{gd_ptr<T>(da), gd_ptr<T>(db)},
                                     {call->accumulate[0], call->accumulate[1]}};
        return gd_map<T>(call, to, dy, in.of, both<ByA, ByB>());
    }
    const bool b_first = da && gd_tensor_data(da) == gd_tensor_data(dy);
    const gd_status status =
        b_first ? input_backward<ByB, T>(call, 1) : input_backward<ByA, T>(call, 0);
    if (status) return status;
    return b_first ? input_backward<ByA, T>(call, 0) : input_backward<ByB, T>(call, 1);
}

// ---- The kernels --------------------------------------------------------------------------------

#define BINARY(name, ...)                                                      \
    GD_CUDA_KERNEL_OF_T(name##_forward, binary_forward<name##_value, T>(call)) \
    GD_CUDA_KERNEL_OF_T(name##_backward, binary_backward<name##_da, name##_db, T>(call))
#include "elementwise/binary.def"

} // namespace gd_elementwise
