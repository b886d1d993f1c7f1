// norm.cu - the CUDA kernels of norm.
#include "reduce/result.cuh"

namespace gd_reductions
{

// The largest |x|, or the smallest. With `scale`, a power of two that brings it to between 0.5 and 1
// (if it is a number other than 0) instead.
template <class V>
struct extreme_size {
    struct {
        __device__ V operator()(V x) const
        {
            return fabs(x);
        }
    } term;
    bool smallest, scale;
    V *save; // may be NULL

    __device__ V identity() const
    {
        return smallest ? (V)INFINITY : 0;
    }
    __device__ V combine(V a, V b) const
    {
        return smallest ? -gd_larger()(-a, -b) : gd_larger()(a, b);
    }
    __device__ V result(V size, int64_t r) const
    {
        const int most = sizeof(V) == sizeof(double) ? 1022 : 126;
        int exponent;
        if (scale) {
            number_of(size, &exponent);
            return ldexp((V)1, max(-most, min(most, -exponent)));
        }
        if (save) save[r] = size;
        return size;
    }
};

template <class V>
struct power_term {
    V p;

    __device__ V operator()(V scale, V x) const
    {
        const V size = fabs(x) * scale;
        return p == 0 ? (V)(x != 0) : p == 1 ? size : p == 2 ? size * size : pow(size, p);
    }
};

template <class V>
struct norm_of : gd_sum_of<V, power_term<V>> {
    V one_by_p, *save; // may be NULL
    const V *scale;

    __device__ V result(V sum, int64_t r) const
    {
        const V p = this->term.p, root = p == 2 ? sqrt(sum) : pow(sum, one_by_p);
        const V y = p == 0 ? sum : (p == 1 ? sum : root) / scale[r];
        if (save) save[r] = y;
        return y;
    }
};

static double p_of(const gd_call *call)
{
    return ((const gd_norm_args *)call->args)->p;
}

template <class T>
static gd_status norm_of_type(const gd_call *call)
{
    using V = gd_compute<T>;
    const gd_tensor *x = call->input[0];
    const result_layout layout = layout_of_result(call);
    const gd_layout result = layout.of(nullptr), alone[] = {gd_cuda_layout(x)};
    const double p = p_of(call);
    T *y = gd_ptr<T>(call->output[0]);
    V *save = gd_ptr<V>(call->save[0]);
    const extreme_size<V> extreme = {{}, p < 0, !isinf(p), save};
    if (isinf(p)) return gd_cuda_reduce<T>(call, y, false, result, x, alone, extreme);

    V *scale = (V *)gd_call_scratch(call, (size_t)layout.count * sizeof(V));
    if (!scale) return gd_error_status(call->context);
    const gd_status status = gd_cuda_reduce<T>(call, scale, false, result, x, alone, extreme);
    if (status) return status;
    norm_of<V> norm = {};
    norm.term.p = (V)p;
    norm.one_by_p = (V)(p == 0 ? 0 : 1 / p);
    norm.save = save;
    norm.scale = scale;
    const gd_layout in[] = {layout.of(scale), alone[0]};
    return gd_cuda_reduce<T, V>(call, y, false, result, x, in, norm);
}

static gd_status norm(const gd_call *call)
{
    return gd_by_kernel_dtype(call, [&](auto zero) { return norm_of_type<decltype(zero)>(call); });
}

// How many elements have the largest (or smallest) size.
struct is_of_size {
    template <class V>
    __device__ V operator()(V y, V x) const
    {
        return same(fabs(x), y) ? 1 : 0;
    }
};

template <class T>
struct share_of_extreme : gd_sum_of<gd_compute<T>, is_of_size> {
    const T *dy;

    __device__ gd_compute<T> result(gd_compute<T> k, int64_t r) const
    {
        return gd_load(dy[r]) / k;
    }
};

template <class V>
struct norm_slope {
    V p;

    __device__ V operator()(V y, V share, V x) const
    {
        const V sign = x > 0 ? 1 : x < 0 ? -1 : x * 0;
        if (y == 0 || p == 0 || (x == 0 && p < 1)) return 0;      /* [norm at 0] */
        if (isinf(p)) return same(fabs(x), y) ? share * sign : 0; /* [norm max] */
        if (p == 1) return share * sign;
        if (p == 2) return share * (x / y);
        return share * (sign * pow(fabs(x) / y, p - 1)); /* [norm] */
    }
};

template <class T>
static gd_status norm_backward_of_type(const gd_call *call)
{
    using V = gd_compute<T>;
    const gd_tensor *x = call->input[0];
    const result_layout layout = layout_of_result(call);
    const gd_layout y = layout.of(gd_tensor_data(call->save[0])), x_layout = gd_cuda_layout(x);
    const norm_slope<V> slope = {(V)p_of(call)};
    T *dx = gd_ptr<T>(call->dinput[0]);
    if (!isinf(p_of(call))) {
        const gd_layout in[] = {y, layout.of(gd_tensor_data(call->doutput[0])), x_layout};
        return gd_map<T, V>(call, dx, call->accumulate[0], x, in, slope);
    }
    V *share = (V *)gd_call_scratch(call, (size_t)layout.count * sizeof(V));
    if (!share) return gd_error_status(call->context);
    share_of_extreme<T> reduction = {};
    reduction.dy = gd_ptr<T>(call->doutput[0]);
    const gd_layout sizes[] = {y, x_layout}, in[] = {y, layout.of(share), x_layout};
    const gd_status status =
        gd_cuda_reduce<T, V>(call, share, false, layout.of(nullptr), x, sizes, reduction);
    return status ? status : gd_map<T, V, 2>(call, dx, call->accumulate[0], x, in, slope);
}

static gd_status norm_backward(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    return gd_by_kernel_dtype(
        call, [&](auto zero) { return norm_backward_of_type<decltype(zero)>(call); });
}

} // namespace gd_reductions

extern "C" gd_status norm_forward_cuda(const gd_call *call)
{
    return gd_reductions::norm(call);
}

extern "C" gd_status norm_backward_cuda(const gd_call *call)
{
    return gd_reductions::norm_backward(call);
}
