// reduce.cu - the CUDA kernels of sum, mean, max, logsumexp, any and all.
#include "reduce/result.cuh"

namespace gd_reductions
{

// ---- Forward ------------------------------------------------------------------------------------

template <class V>
struct mean_of : gd_sum_of<V, gd_itself> {
    V n; // 1 for the sum

    __device__ V result(V sum, int64_t) const
    {
        return sum / n;
    }
};

template <class T>
static gd_status sum_over(const gd_call *call, bool mean)
{
    const result_layout layout = layout_of_result(call);
    mean_of<gd_compute<T>> reduction = {};
    reduction.n = mean ? (gd_compute<T>)layout.n : 1;
    const gd_layout in[] = {gd_cuda_layout(call->input[0])};
    return gd_cuda_reduce<T>(call, gd_ptr<T>(call->output[0]), false, layout.of(nullptr),
                             call->input[0], in, reduction);
}

template <class V>
struct largest {
    gd_itself term;
    bool finite; // 0 instead of an infinite maximum

    __device__ V identity() const
    {
        return -(V)INFINITY;
    }
    __device__ V combine(V a, V b) const
    {
        return gd_larger()(a, b);
    }
    __device__ V result(V max, int64_t) const
    {
        return finite && isinf(max) ? 0 : max;
    }
};

// It has type Out, since for logsumexp it is not to be rounded to 16 bits.
template <class T, class Out>
static gd_status max_over(const gd_call *call, const result_layout &layout, Out *max, bool finite)
{
    const largest<gd_compute<T>> reduction = {{}, finite};
    const gd_layout in[] = {gd_cuda_layout(call->input[0])};
    return gd_cuda_reduce<T>(call, max, false, layout.of(nullptr), call->input[0], in, reduction);
}

GD_MAP_FUNCTION(exp_shifted, exp(x - shift), REAL shift, REAL x)

template <class V>
struct log_of_sum : gd_sum_of<V, exp_shifted> {
    const V *shift;

    __device__ V result(V sum, int64_t r) const
    {
        return shift[r] + log(sum);
    }
};

// ln(sum e^x) = m + ln(sum e^(x - m)) with m = max x, or 0 if that is infinite.
template <class T>
static gd_status logsumexp(const gd_call *call)
{
    const result_layout layout = layout_of_result(call);
    using V = gd_compute<T>;
    V *shift = (V *)gd_call_scratch(call, (size_t)layout.count * sizeof(V));
    if (!shift) return gd_error_status(call->context);
    const gd_status status = max_over<T>(call, layout, shift, true);
    if (status) return status;
    log_of_sum<V> reduction = {};
    reduction.shift = shift;
    const gd_layout in[] = {layout.of(shift), gd_cuda_layout(call->input[0])};
    return gd_cuda_reduce<T, V>(call, gd_ptr<T>(call->output[0]), false, layout.of(nullptr),
                                call->input[0], in, reduction);
}

// ---- Backward -----------------------------------------------------------------------------------

template <class V>
struct repeat {
    V n;

    __device__ V operator()(V dy) const
    {
        return mean_share<V, V>(dy, n);
    }
};

// Each element of x has the gradient dy of its result: the whole, or of a mean 1 / n of it.
template <class T>
static gd_status spread(const gd_call *call, bool mean)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    const repeat<gd_compute<T>> f = {mean ? (gd_compute<T>)layout.n : 1};
    const gd_layout in[] = {layout.of(gd_tensor_data(call->doutput[0]))};
    return gd_map(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], call->input[0], in, f);
}

GD_MAP_FUNCTION(is_largest, reduce_same(x, y) ? 1 : 0, REAL x, REAL y)

// dy / k, k the number of elements that are equal to the maximum.
template <class T>
struct share_of_largest : gd_sum_of<gd_compute<T>, is_largest> {
    const T *dy;

    __device__ gd_compute<T> result(gd_compute<T> k, int64_t r) const
    {
        using V = gd_compute<T>;
        return max_share<V, V>(gd_load(dy[r]), k);
    }
};

GD_MAP_FUNCTION(give_share, max_dx(share, x, y), REAL share, REAL x, REAL y)

template <class T>
static gd_status max_backward(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const gd_tensor *x = call->input[0];
    const result_layout layout = layout_of_result(call);
    const gd_layout x_layout = gd_cuda_layout(x), y = layout.of(gd_tensor_data(call->output[0]));
    using V = gd_compute<T>;
    V *share = (V *)gd_call_scratch(call, (size_t)layout.count * sizeof(V));
    if (!share) return gd_error_status(call->context);
    share_of_largest<T> reduction = {};
    reduction.dy = gd_ptr<T>(call->doutput[0]);
    const gd_layout in[] = {x_layout, y};
    const gd_status status =
        gd_cuda_reduce<T>(call, share, false, layout.of(nullptr), x, in, reduction);
    if (status) return status;
    const gd_layout from[] = {layout.of(share), x_layout, y};
    return gd_map<T, V>(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], x, from,
                        give_share());
}

// formula.h's logsumexp, written out: as a call it compiles to other code.
GD_MAP_FUNCTION(softmax_weight, y == -(REAL)INFINITY ? 0 : dy * exp(x - y), REAL dy, REAL x, REAL y)

// dy/dx_j = e^(x_j - y). Where y is -inf, no element has an influence.
template <class T>
static gd_status logsumexp_backward(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const gd_tensor *x = call->input[0];
    const result_layout layout = layout_of_result(call);
    const gd_layout in[] = {layout.of(gd_tensor_data(call->doutput[0])), gd_cuda_layout(x),
                            layout.of(gd_tensor_data(call->output[0]))};
    return gd_map(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], x, in, softmax_weight());
}

// ---- any and all --------------------------------------------------------------------------------

template <class V>
struct found {
    struct {
        bool zero; // look for zeros, else for others

        __device__ V operator()(V x) const
        {
            return (x == 0) == zero;
        }
    } term;

    __device__ V identity() const
    {
        return 0;
    }
    __device__ V combine(V a, V b) const
    {
        return a > b ? a : b;
    }
    __device__ V result(V any, int64_t) const
    {
        return term.zero ? 1 - any : any;
    }
};

template <class T>
static gd_status find(const gd_call *call, bool zero)
{
    const result_layout layout = layout_of_result(call);
    const gd_layout in[] = {gd_cuda_layout(call->input[0])};
    const found<gd_compute<T>> reduction = {{zero}};
    return gd_cuda_reduce<T>(call, gd_ptr<int32_t>(call->output[0]), false, layout.of(nullptr),
                             call->input[0], in, reduction);
}

// ---- The kernels --------------------------------------------------------------------------------

GD_CUDA_KERNEL_OF_T(sum_forward, sum_over<T>(call, false))
GD_CUDA_KERNEL_OF_T(sum_backward, spread<T>(call, false))
GD_CUDA_KERNEL_OF_T(mean_forward, sum_over<T>(call, true))
GD_CUDA_KERNEL_OF_T(mean_backward, spread<T>(call, true))
GD_CUDA_KERNEL_OF_T(max_forward,
                    max_over<T>(call, layout_of_result(call), gd_ptr<T>(call->output[0]), false))
GD_CUDA_KERNEL_OF_T(max_backward, max_backward<T>(call))
GD_CUDA_KERNEL_OF_T(logsumexp_forward, logsumexp<T>(call))
GD_CUDA_KERNEL_OF_T(logsumexp_backward, logsumexp_backward<T>(call))
GD_CUDA_KERNEL_OF_T(any_forward, find<T>(call, false))
GD_CUDA_KERNEL_OF_T(all_forward, find<T>(call, true))

} // namespace gd_reductions
