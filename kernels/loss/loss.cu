// loss.cu - the CUDA kernels of the losses of pairs (loss.def): maps (map.cuh), and sums of all
// elements (reduce.cuh).
#include "loss/functions.h"
#include "loss/loss.h"
#include "reduce/reduce.cuh"

namespace gd_loss
{

// ---- Functions, by table ------------------------------------------------------------------------

// A w that is absent is 1; something else is passed for it.
#define VALUE(struct_name, value)                                \
    template <class REAL>                                        \
    struct struct_name {                                         \
        REAL p;                                                  \
        bool weighted;                                           \
        __device__ REAL operator()(REAL x, REAL t, REAL w) const \
        {                                                        \
            w = weighted ? w : 1;                                \
            return value;                                        \
        }                                                        \
    };
#define SLOPE(struct_name, slope)                                                             \
    template <class REAL>                                                                     \
    struct struct_name {                                                                      \
        REAL p, divisor;                                                                      \
        bool weighted;                                                                        \
        __device__ REAL operator()(REAL dy, [[maybe_unused]] REAL x, [[maybe_unused]] REAL t, \
                                   [[maybe_unused]] REAL w) const                             \
        {                                                                                     \
            w = weighted ? w : 1;                                                             \
            return loss_divided(dy, divisor) * (slope);                                       \
        }                                                                                     \
    };
#define LOSS(name, formula, value, dx, dt, dw, ...) \
    VALUE(name##_value, value)                      \
    SLOPE(name##_dx, dx)                            \
    SLOPE(name##_dt, dt)                            \
    SLOPE(name##_dw, dw)
#include "loss/loss.def"
#undef LOSS

template <class V, class Term>
struct divided_sum : gd_sum_of<V, Term> {
    V divisor;

    __device__ V result(V sum, int64_t) const
    {
        return loss_divided(sum, divisor);
    }
};

// ---- Both passes --------------------------------------------------------------------------------

static const gd_loss_args *args_of(const gd_call *call)
{
    return (const gd_loss_args *)call->args;
}

static const gd_tensor *weight_of(const gd_call *call)
{
    return call->inputs > 2 ? call->input[2] : nullptr;
}

template <template <class> class Value, class T>
static gd_status loss_forward(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *w = weight_of(call), *y = call->output[0];
    const gd_layout in[] = {gd_cuda_layout(x), gd_cuda_layout(call->input[1]),
                            gd_cuda_layout(w ? w : x)};
    using V = gd_compute<T>;
    const Value<V> f = {(V)gd_loss_parameter(call), w != nullptr};
    if (args_of(call)->reduction == GD_NONE) return gd_map(call, gd_ptr<T>(y), false, x, in, f);
    divided_sum<V, Value<V>> sum = {};
    sum.term = f;
    sum.divisor = (V)gd_loss_divisor(call);
    return gd_cuda_reduce<T>(call, gd_ptr<T>(y), false, gd_cuda_layout(y), x, in, sum);
}

template <template <class> class Slope, class T>
static gd_status input_backward(const gd_call *call, int k)
{
    if (k >= call->inputs || !call->dinput[k]) return GD_OK;
    const gd_tensor *x = call->input[0], *w = weight_of(call);
    const gd_layout in[] = {gd_cuda_layout(call->doutput[0]), gd_cuda_layout(x),
                            gd_cuda_layout(call->input[1]), gd_cuda_layout(w ? w : x)};
    using V = gd_compute<T>;
    const Slope<V> f = {(V)gd_loss_parameter(call), (V)gd_loss_divisor(call), w != nullptr};
    return gd_map(call, gd_ptr<T>(call->dinput[k]), call->accumulate[k], x, in, f);
}

template <template <class> class DX, template <class> class DT, template <class> class DW, class T>
static gd_status loss_backward(const gd_call *call)
{
    gd_status status = input_backward<DX, T>(call, 0);
    if (!status) status = input_backward<DT, T>(call, 1);
    return status ? status : input_backward<DW, T>(call, 2);
}

#define LOSS(name, ...)                                                      \
    GD_CUDA_KERNEL_OF_T(name##_forward, loss_forward<name##_value, T>(call)) \
    GD_CUDA_KERNEL_OF_T(name##_backward, loss_backward<name##_dx, name##_dt, name##_dw, T>(call))
#include "loss/loss.def"

} // namespace gd_loss
