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
    mean_of<gd_compute<T>> reduction = {};
    reduction.n = mean ? (gd_compute<T>)result(call).n : 1;
    return reduce<T>(call, gd_ptr<T>(call->output[0]), reduction);
}

template <class V>
struct largest {
    gd_itself term;

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
        return max;
    }
};

// ln(sum e^x) = m + ln(sum e^(x - m)), m = max x; of several sums, those of a smaller m are scaled.
template <class V>
struct log_of_sum {
    struct total {
        V max, sum;
    };
    gd_itself term;

    __device__ total identity() const
    {
        return {-(V)INFINITY, 0};
    }
    __device__ total combine(total a, total b) const
    {
        const bool first = a.max >= b.max;
        const V factor = a.max == b.max ? (V)1 : exp(first ? b.max - a.max : a.max - b.max);
        return first ? total{a.max, a.sum + b.sum * factor} : total{b.max, a.sum * factor + b.sum};
    }
    __device__ total combine(total a, V x) const
    {
        return combine(a, {x, 1});
    }
    __device__ V result(total all, int64_t) const
    {
        return all.max + log(all.sum);
    }
};

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
    const result layout(call);
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
    const result layout(call);
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
    const result layout(call);
    const gd_layout in[] = {layout.of(gd_tensor_data(call->doutput[0])), gd_cuda_layout(x),
                            layout.of(gd_tensor_data(call->output[0]))};
    return gd_map(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], x, in, softmax_weight());
}

// ---- any and all --------------------------------------------------------------------------------

GD_MAP_FUNCTION(is_zero, x == 0 ? 1 : 0, REAL x)

template <class V, class Term>
struct how_many : gd_sum_of<V, Term> {
    bool some; // whether there are, else whether there are none

    __device__ V result(V count, int64_t) const
    {
        return (count > 0) == some;
    }
};

template <class Term, class T>
static gd_status find(const gd_call *call, bool some)
{
    how_many<gd_compute<T>, Term> reduction = {};
    reduction.some = some;
    return reduce<T>(call, gd_ptr<int32_t>(call->output[0]), reduction);
}

// ---- The kernels --------------------------------------------------------------------------------

GD_CUDA_KERNEL_OF_T(sum_forward, sum_over<T>(call, false))
GD_CUDA_KERNEL_OF_T(sum_backward, spread<T>(call, false))
GD_CUDA_KERNEL_OF_T(mean_forward, sum_over<T>(call, true))
GD_CUDA_KERNEL_OF_T(mean_backward, spread<T>(call, true))
GD_CUDA_KERNEL_OF_T(max_forward,
                    reduce<T>(call, gd_ptr<T>(call->output[0]), largest<gd_compute<T>>{}))
GD_CUDA_KERNEL_OF_T(max_backward, max_backward<T>(call))
GD_CUDA_KERNEL_OF_T(logsumexp_forward,
                    reduce<T>(call, gd_ptr<T>(call->output[0]), log_of_sum<gd_compute<T>>{}))
GD_CUDA_KERNEL_OF_T(logsumexp_backward, logsumexp_backward<T>(call))
GD_CUDA_KERNEL_OF_T(any_forward, find<is_not_zero, T>(call, true))
GD_CUDA_KERNEL_OF_T(all_forward, find<is_zero, T>(call, false))

} // namespace gd_reductions
