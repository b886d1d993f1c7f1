// unary.cu - the CUDA kernels of the functions of one variable (unary.def): each is map.cuh's.
#include "elementwise/functions.h"
#include "map.cuh"

// ---- Functions, by table ------------------------------------------------------------------------

namespace gd_elementwise
{

// `x` of a gradient is x or y, whichever the table says.
#define UNARY(name, formula, value, gradient, ...)        \
    template <class REAL>                                 \
    struct name##_value {                                 \
        REAL p, q;                                        \
        __device__ REAL operator()(REAL x) const          \
        {                                                 \
            return value;                                 \
        }                                                 \
    };                                                    \
    template <class REAL>                                 \
    struct name##_gradient {                              \
        REAL p, q;                                        \
        __device__ REAL operator()(REAL dy, REAL x) const \
        {                                                 \
            [[maybe_unused]] const REAL y = x;            \
            return gradient;                              \
        }                                                 \
    };
#define SCALAR UNARY
#define RANGE UNARY
#include "elementwise/unary.def"
#undef UNARY
#undef SCALAR
#undef RANGE

// p and q of the row; 0 where it has none.
static double parameter(const gd_call *call, int i)
{
    return call->args ? gd_option_of_dtype(call->dtype, ((const double *)call->args)[i]) : 0;
}

template <template <class> class Value>
static gd_status unary_forward(const gd_call *call)
{
    const int64_t n = gd_tensor_count(call->output[0]);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const Value<gd_compute<T>> f = {(gd_compute<T>)parameter(call, 0),
                                        (gd_compute<T>)parameter(call, 1)};
        const T *const in[] = {gd_ptr<T>(call->input[0])};
        return gd_map_flat(call, gd_ptr<T>(call->output[0]), false, n, in, f);
    });
}

// The record says what the backward reads; if it reads only dy, dy is passed for it.
template <template <class> class Gradient>
static gd_status unary_backward(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const int64_t n = gd_tensor_count(call->dinput[0]);
    const gd_tensor *dy = call->doutput[0], *read = dy;
    if (call->op->backward_reads_inputs) read = call->input[0];
    if (call->op->backward_reads_outputs) read = call->output[0];
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const Gradient<gd_compute<T>> f = {(gd_compute<T>)parameter(call, 0),
                                           (gd_compute<T>)parameter(call, 1)};
        const T *const in[] = {gd_ptr<T>(dy), gd_ptr<T>(read)};
        return gd_map_flat(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], n, in, f);
    });
}

} // namespace gd_elementwise

// ---- The kernels --------------------------------------------------------------------------------

#define UNARY(name, ...)                                                              \
    extern "C" gd_status name##_forward_cuda(const gd_call *call)                     \
    {                                                                                 \
        return gd_elementwise::unary_forward<gd_elementwise::name##_value>(call);     \
    }                                                                                 \
    extern "C" gd_status name##_backward_cuda(const gd_call *call)                    \
    {                                                                                 \
        return gd_elementwise::unary_backward<gd_elementwise::name##_gradient>(call); \
    }
#define SCALAR UNARY
#define RANGE UNARY
#include "elementwise/unary.def"
