// variance.cu - the CUDA kernels of var and std.
//
// Squares of float overflow from 1e19 on and vanish below 1e-23, and a mean of float is off by far
// more than a deviation that is small beside it. So x is multiplied by a power of two, exactly, so
// that the largest element of a group is between 2 and 4; and the mean is the sum of two numbers:
// the rounded mean, and the mean of the distances from that, which are small and mostly exact.
//
//     distance of x from the mean, scaled:  (x scale - mean) - rest
#include "reduce/result.cuh"

namespace gd_reductions
{

// A group's power of two. That of the smallest numbers would be infinite: less is enough.
template <class V>
struct scale_of_largest : extreme_size<V> {
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

// formula.h's distance, in two parts and scaled.
template <class V>
__device__ inline V distance(V mean, V rest, V scale, V x)
{
    return (x * scale - mean) - rest;
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
static gd_status variance(const gd_call *call, bool root)
{
    using V = gd_compute<T>;
    const result layout(call);
    const gd_layout x = gd_cuda_layout(call->input[0]), result = layout.of(nullptr);
    V *const mean = saved<V>(call, SAVE_MEAN, layout.count);
    V *const rest = saved<V>(call, SAVE_REST, layout.count);
    V *const scale = saved<V>(call, SAVE_SCALE, layout.count);
    if (!mean || !rest || !scale) return gd_error_status(call->context);

    const gd_layout with_scale[] = {layout.of(scale), x};
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
    gd_status status = reduce<T>(call, scale, scale_of_largest<V>());
    if (!status)
        status = gd_cuda_reduce<T, V>(call, mean, false, result, like, with_scale, average);
    if (!status)
        status = gd_cuda_reduce<T, V, 2>(call, rest, false, result, like, with_mean, difference);
    if (status) return status;
    return gd_cuda_reduce<T, V, 3>(call, gd_ptr<T>(call->output[0]), false, result, like, with_all,
                                   variance);
}

// The distance's weight: of var 2 dy / divisor, in x's units; of std dy / (divisor deviation), both
// scaled. Equal elements have the deviation 0 and get 0. (formula.h's var and std in one.)
template <class V>
struct weighted_distance {
    V numerator; // 2 / divisor, 1 / divisor

    // unit: the scale, the scaled deviation
    __device__ V operator()(V mean, V rest, V scale, V unit, V dy, V x) const
    {
        const V share = unit == 0 ? 0 : dy * (numerator / unit);
        return var_dx<V, V>(share, distance(mean, rest, scale, x));
    }
};

template <class T>
static gd_status variance_backward(const gd_call *call, bool root)
{
    if (!call->dinput[0]) return GD_OK;
    const gd_tensor *x = call->input[0];
    const result layout(call);
    const double divisor = gd_variance_divisor((const gd_variance_args *)call->args, layout.n);
    const auto part = [&](int i) { return layout.of(gd_tensor_data(call->save[i])); };
    const gd_layout in[] = {part(SAVE_MEAN),
                            part(SAVE_REST),
                            part(SAVE_SCALE),
                            part(root ? SAVE_DEVIATION : SAVE_SCALE),
                            layout.of(gd_tensor_data(call->doutput[0])),
                            gd_cuda_layout(x)};
    using V = gd_compute<T>;
    const weighted_distance<V> f = {(V)((root ? 1 : 2) / divisor)};
    return gd_map<T, V, 4>(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], x, in, f);
}

GD_CUDA_KERNEL_OF_T(var_forward, variance<T>(call, false))
GD_CUDA_KERNEL_OF_T(var_backward, variance_backward<T>(call, false))
GD_CUDA_KERNEL_OF_T(std_forward, variance<T>(call, true))
GD_CUDA_KERNEL_OF_T(std_backward, variance_backward<T>(call, true))

} // namespace gd_reductions
