// reduce.cu - the CUDA kernels of sum, mean, max, logsumexp, var and std.
//
// As in reduce_cpu.c, `result` stands for anything of the shape of y with the reduced axes kept at
// size 1: over the shape of x it is broadcast along them. Forward reduces (reduce.cuh), backward
// repeats (map.cuh).
#include "reduce/reduce.cuh"
#include "reduce/reduce.h"

namespace gd_reductions
{

// The shape and packed strides of a result, and n, the number of elements of x behind each.
struct result_layout {
    int ndim;
    int64_t shape[GD_MAX_DIMS], strides[GD_MAX_DIMS];
    int64_t count, n;

    gd_layout of(const void *data) const
    {
        return {(void *)data, GD_FLOAT32, ndim, shape, strides};
    }
};

static result_layout layout_of_result(const gd_call *call)
{
    const gd_tensor *x = call->input[0];
    result_layout layout = {};
    layout.ndim = gd_tensor_ndim(x);
    layout.count = layout.n = 1;
    const unsigned reduced = gd_reduced_axes((const gd_reduce_args *)call->args, layout.ndim);
    for (int d = layout.ndim - 1; d >= 0; d--) {
        const int64_t size = gd_tensor_shape(x)[d];
        layout.shape[d] = reduced >> d & 1 ? 1 : size;
        layout.strides[d] = layout.count ? layout.count : 1;
        layout.count *= layout.shape[d];
        layout.n *= reduced >> d & 1 ? size : 1;
    }
    return layout;
}

// ---- Forward ------------------------------------------------------------------------------------

template <class V>
struct mean_of : gd_sum_of<V, gd_itself> {
    V n; // 1 for the sum

    __device__ V result(V sum, int64_t) const
    {
        return sum / n;
    }
};

static gd_status sum_over(const gd_call *call, bool mean)
{
    const result_layout layout = layout_of_result(call);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        mean_of<gd_compute<T>> reduction = {};
        reduction.n = mean ? (gd_compute<T>)layout.n : 1;
        const gd_layout in[] = {gd_cuda_layout(call->input[0])};
        return gd_cuda_reduce<T>(call, gd_ptr<T>(call->output[0]), false, layout.of(nullptr),
                                 call->input[0], in, reduction);
    });
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

// Of type Out, since for logsumexp it is not to be rounded to 16 bits.
template <class T, class Out>
static gd_status max_over(const gd_call *call, const result_layout &layout, Out *max, bool finite)
{
    const largest<gd_compute<T>> reduction = {{}, finite};
    const gd_layout in[] = {gd_cuda_layout(call->input[0])};
    return gd_cuda_reduce<T>(call, max, false, layout.of(nullptr), call->input[0], in, reduction);
}

struct exp_shifted {
    template <class V>
    __device__ V operator()(V shift, V x) const
    {
        return exp(x - shift);
    }
};

template <class V>
struct log_of_sum : gd_sum_of<V, exp_shifted> {
    const V *shift;

    __device__ V result(V sum, int64_t r) const
    {
        return shift[r] + log(sum);
    }
};

// ln(sum e^x) = m + ln(sum e^(x - m)) with m = max x, or 0 if that is infinite.
static gd_status logsumexp(const gd_call *call)
{
    const result_layout layout = layout_of_result(call);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
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
    });
}

// ---- Backward -----------------------------------------------------------------------------------

template <class V>
struct repeat {
    V n;

    __device__ V operator()(V dy) const
    {
        return dy / n; /* [sum] [mean] */
    }
};

// Each element of x has the gradient dy of its result: the whole, or of a mean 1 / n of it.
static gd_status spread(const gd_call *call, bool mean)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const repeat<gd_compute<T>> f = {mean ? (gd_compute<T>)layout.n : 1};
        const gd_layout in[] = {layout.of(gd_tensor_data(call->doutput[0]))};
        return gd_map(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], call->input[0], in, f);
    });
}

// A NaN result came from the NaN elements.
template <class V>
__device__ inline bool same(V x, V y)
{
    return x == y || (x != x && y != y);
}

struct is_largest {
    template <class V>
    __device__ V operator()(V x, V y) const
    {
        return same(x, y) ? 1 : 0;
    }
};

// dy / k, k the number of elements that are equal to the maximum.
template <class T>
struct share_of_largest : gd_sum_of<gd_compute<T>, is_largest> {
    const T *dy;

    __device__ gd_compute<T> result(gd_compute<T> k, int64_t r) const
    {
        return gd_load(dy[r]) / k; /* [max share] */
    }
};

struct give_share {
    template <class V>
    __device__ V operator()(V share, V x, V y) const
    {
        return same(x, y) ? share : 0; /* [max] */
    }
};

static gd_status max_backward(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const gd_tensor *x = call->input[0];
    const result_layout layout = layout_of_result(call);
    const gd_layout x_layout = gd_cuda_layout(x), y = layout.of(gd_tensor_data(call->output[0]));
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
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
    });
}

struct softmax_weight {
    template <class V>
    __device__ V operator()(V dy, V x, V y) const
    {
        return y == -(V)INFINITY ? 0 : dy * exp(x - y); /* [logsumexp] */
    }
};

// dy/dx_j = e^(x_j - y). Where y is -inf, no element has an influence.
static gd_status logsumexp_backward(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const gd_tensor *x = call->input[0];
    const result_layout layout = layout_of_result(call);
    const gd_layout in[] = {layout.of(gd_tensor_data(call->doutput[0])), gd_cuda_layout(x),
                            layout.of(gd_tensor_data(call->output[0]))};
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        return gd_map(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], x, in,
                      softmax_weight());
    });
}

// ---- var and std --------------------------------------------------------------------------------
//
// Squares of float overflow from 1e19 on and vanish below 1e-23, and a mean of float is off by far
// more than a deviation that is small beside it. So x is multiplied by a power of two, exactly, so
// that the largest element of a group is between 2 and 4; and the mean is the sum of two numbers:
// the rounded mean, and the mean of the distances from that, which are small and mostly exact.
//
//     distance of x from the mean, scaled:  (x scale - mean) - rest

// A group's power of two. That of the smallest numbers would be infinite: less is enough.
template <class V>
struct scale_of_largest {
    struct {
        __device__ V operator()(V x) const
        {
            return fabs(x);
        }
    } term;

    __device__ V identity() const
    {
        return 0;
    }
    __device__ V combine(V a, V b) const
    {
        return gd_larger()(a, b);
    }
    __device__ V result(V largest, int64_t) const
    {
        const int most = sizeof(V) == sizeof(double) ? 1022 : 126;
        int exponent;
        if (!(largest > 0) || isinf(largest)) return 1;
        frexp(largest, &exponent);
        return ldexp((V)1, min(2 - exponent, most));
    }
};

struct scaled {
    template <class V>
    __device__ V operator()(V scale, V x) const
    {
        return x * scale;
    }
    template <class V>
    __device__ V operator()(V mean, V scale, V x) const
    {
        return x * scale - mean;
    }
};

template <class V>
struct mean_of_scaled : gd_sum_of<V, scaled> {
    V n;

    __device__ V result(V sum, int64_t) const
    {
        return sum / n;
    }
};

// The mean of the distances from the rounded mean: 0 if that is infinite or NaN.
template <class V>
struct rest_of_mean : mean_of_scaled<V> {
    __device__ V result(V sum, int64_t) const
    {
        return isnan(sum) ? 0 : sum / this->n;
    }
};

template <class V>
__device__ inline V distance(V mean, V rest, V scale, V x)
{
    return (x * scale - mean) - rest; /* [distance] */
}

struct square {
    template <class V>
    __device__ V operator()(V mean, V rest, V scale, V x) const
    {
        const V d = distance(mean, rest, scale, x);
        return d * d;
    }
};

template <class V>
struct variance_of_squares : gd_sum_of<V, square> {
    V divisor;
    bool root;
    const V *scale;
    V *deviation; // scaled

    __device__ V result(V sum, int64_t r) const
    {
        const V unit = 1 / scale[r], value = sum / divisor;
        if (!root) return value * unit * unit;
        if (deviation) deviation[r] = sqrt(value);
        return sqrt(value) * unit;
    }
};

// Where save i is, or temporary memory if it is not needed.
template <class V>
static V *saved(const gd_call *call, int i, int64_t count)
{
    if (call->save[i]) return gd_ptr<V>(call->save[i]);
    return (V *)gd_call_scratch(call, (size_t)count * sizeof(V));
}

template <class T>
static gd_status variance_of(const gd_call *call, bool root)
{
    using V = gd_compute<T>;
    const result_layout layout = layout_of_result(call);
    const gd_layout x = gd_cuda_layout(call->input[0]), result = layout.of(nullptr);
    V *const mean = saved<V>(call, SAVE_MEAN, layout.count);
    V *const rest = saved<V>(call, SAVE_REST, layout.count);
    V *const scale = saved<V>(call, SAVE_SCALE, layout.count);
    if (!mean || !rest || !scale) return gd_error_status(call->context);

    const gd_layout alone[] = {x}, with_scale[] = {layout.of(scale), x};
    const gd_layout with_mean[] = {layout.of(mean), layout.of(scale), x};
    const gd_layout with_all[] = {layout.of(mean), layout.of(rest), layout.of(scale), x};
    mean_of_scaled<V> average = {};
    rest_of_mean<V> difference = {};
    average.n = difference.n = (V)layout.n;
    variance_of_squares<V> variance = {};
    variance.divisor = (V)gd_variance_divisor((const gd_variance_args *)call->args, layout.n);
    variance.root = root;
    variance.scale = scale;
    variance.deviation =
        call->save[SAVE_DEVIATION] ? gd_ptr<V>(call->save[SAVE_DEVIATION]) : nullptr;

    const gd_tensor *like = call->input[0];
    gd_status status =
        gd_cuda_reduce<T>(call, scale, false, result, like, alone, scale_of_largest<V>());
    if (!status)
        status = gd_cuda_reduce<T, V>(call, mean, false, result, like, with_scale, average);
    if (!status)
        status = gd_cuda_reduce<T, V, 2>(call, rest, false, result, like, with_mean, difference);
    if (status) return status;
    return gd_cuda_reduce<T, V, 3>(call, gd_ptr<T>(call->output[0]), false, result, like, with_all,
                                   variance);
}

static gd_status variance(const gd_call *call, bool root)
{
    return gd_by_kernel_dtype(call,
                              [&](auto zero) { return variance_of<decltype(zero)>(call, root); });
}

// The distance's weight: of var 2 dy / divisor, in x's units; of std dy / (divisor deviation), both
// scaled. Equal elements have the deviation 0 and get 0.
template <class V>
struct weighted_distance {
    V numerator; // 2 / divisor, 1 / divisor

    // unit: the scale, the scaled deviation
    __device__ V operator()(V mean, V rest, V scale, V unit, V dy, V x) const
    {
        const V share = unit == 0 ? 0 : dy * (numerator / unit); /* [var_factor] [std_factor] */
        return share * distance(mean, rest, scale, x);           /* [var] [std] */
    }
};

static gd_status variance_backward(const gd_call *call, bool root)
{
    if (!call->dinput[0]) return GD_OK;
    const gd_tensor *x = call->input[0];
    const result_layout layout = layout_of_result(call);
    const double divisor = gd_variance_divisor((const gd_variance_args *)call->args, layout.n);
    const auto part = [&](int i) { return layout.of(gd_tensor_data(call->save[i])); };
    const gd_layout in[] = {part(SAVE_MEAN),
                            part(SAVE_REST),
                            part(SAVE_SCALE),
                            part(root ? SAVE_DEVIATION : SAVE_SCALE),
                            layout.of(gd_tensor_data(call->doutput[0])),
                            gd_cuda_layout(x)};
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        using V = gd_compute<T>;
        const weighted_distance<V> f = {(V)((root ? 1 : 2) / divisor)};
        return gd_map<T, V, 4>(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], x, in, f);
    });
}

} // namespace gd_reductions

// ---- The kernels --------------------------------------------------------------------------------

extern "C" gd_status sum_forward_cuda(const gd_call *call)
{
    return gd_reductions::sum_over(call, false);
}

extern "C" gd_status sum_backward_cuda(const gd_call *call)
{
    return gd_reductions::spread(call, false);
}

extern "C" gd_status mean_forward_cuda(const gd_call *call)
{
    return gd_reductions::sum_over(call, true);
}

extern "C" gd_status mean_backward_cuda(const gd_call *call)
{
    return gd_reductions::spread(call, true);
}

extern "C" gd_status max_forward_cuda(const gd_call *call)
{
    const gd_reductions::result_layout layout = gd_reductions::layout_of_result(call);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        return gd_reductions::max_over<T>(call, layout, gd_ptr<T>(call->output[0]), false);
    });
}

extern "C" gd_status max_backward_cuda(const gd_call *call)
{
    return gd_reductions::max_backward(call);
}

extern "C" gd_status logsumexp_forward_cuda(const gd_call *call)
{
    return gd_reductions::logsumexp(call);
}

extern "C" gd_status logsumexp_backward_cuda(const gd_call *call)
{
    return gd_reductions::logsumexp_backward(call);
}

extern "C" gd_status var_forward_cuda(const gd_call *call)
{
    return gd_reductions::variance(call, false);
}

extern "C" gd_status var_backward_cuda(const gd_call *call)
{
    return gd_reductions::variance_backward(call, false);
}

extern "C" gd_status std_forward_cuda(const gd_call *call)
{
    return gd_reductions::variance(call, true);
}

extern "C" gd_status std_backward_cuda(const gd_call *call)
{
    return gd_reductions::variance_backward(call, true);
}
