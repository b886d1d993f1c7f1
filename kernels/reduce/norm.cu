// norm.cu - the CUDA kernels of norm.
#include <float.h>

#include "reduce/result.cuh"

namespace gd_reductions
{

// The largest |x|, or the smallest. With `scale`, a power of two that brings it to between 0.5 and 1
// (if it is a number other than 0; 0 for inf) instead.
template <class V>
struct extreme_size {
    absolute term;
    bool smallest, scale;

    __device__ V identity() const
    {
        return smallest ? (V)INFINITY : 0;
    }
    __device__ V combine(V a, V b) const
    {
        return smallest ? -gd_larger()(-a, -b) : gd_larger()(a, b);
    }
    __device__ V result(V size, int64_t) const
    {
        const int most = sizeof(V) == sizeof(double) ? 1022 : 126;
        int exponent;
        if (!scale || isnan(size)) return size;
        number_of(size, &exponent);
        return isinf(size) ? 0 : ldexp((V)1, max(-most, min(most, -exponent)));
    }
};

// (a / b)^p of a and b of at least 0, also where the quotient is beyond the range of its type.
template <class V>
__device__ V power_of_quotient(V a, V b, V p)
{
    const V least = sizeof(V) == sizeof(double) ? (V)DBL_MIN : (V)FLT_MIN;
    const V quotient = a / b, most = 1 / least;
    if (!(quotient < least || quotient > most)) return pow(quotient, p);
    V power = pow(sqrt(sqrt(a)) / sqrt(sqrt(b)), p);
    power *= power;
    return power * power;
}

template <class V>
struct power_term {
    V p;

    __device__ V operator()(V unit, V x) const
    {
        const V size = fabs(x);
        return p == 1   ? size * unit
               : p == 2 ? (size * unit) * (size * unit)
                        : power_of_quotient(size, unit, p);
    }
};

// As reduce_cpu.c has it. Where the extreme is 0, infinite or NaN, so is m.
template <class V>
struct norm_of : gd_sum_of<V, power_term<V>> {
    V one_by_p, slope_power; // 1 / p - 1
    V *slope;                // may be NULL
    const V *unit;

    __device__ V result(V s, int64_t r) const
    {
        const V p = this->term.p, u = unit[r];
        const bool whole = p == 1 || p == 2;
        const V m = !whole ? u : u == 0 ? (V)INFINITY : s;
        const bool number = m > 0 && !isinf(m);
        const V root = p == 1 ? s : p == 2 ? sqrt(s) : pow(s, one_by_p);
        const V by_m = p == 1 ? (V)1 : p == 2 ? 1 / root : pow(s, slope_power);
        if (slope) slope[r] = p == 1 || isinf(m) ? (V)1 : number ? by_m : m;
        return !number ? m : whole ? root / u : root * u;
    }
};

GD_MAP_FUNCTION(is_not_0, x != 0 ? 1 : 0, REAL x)

static double p_of(const gd_call *call)
{
    return gd_option_of_dtype(call->dtype, ((const gd_norm_args *)call->args)->p);
}

// That of p = 0, or of an infinite p, which are saved as they are before they are rounded.
template <class V, class Reduction>
struct saved_as_unit : Reduction {
    V *unit; // may be NULL

    __device__ V result(V y, int64_t r) const
    {
        if (unit) unit[r] = y;
        return y;
    }
};

template <class T>
static gd_status norm(const gd_call *call)
{
    using V = gd_compute<T>;
    const gd_tensor *x = call->input[0];
    const result_layout layout = layout_of_result(call);
    const gd_layout result = layout.of(nullptr), alone[] = {gd_cuda_layout(x)};
    const double p = p_of(call);
    T *y = gd_ptr<T>(call->output[0]);
    V *unit = gd_ptr<V>(call->save[SAVE_UNIT]);
    const extreme_size<V> extreme = {{}, p < 0, p == 1 || p == 2};
    if (p == 0)
        return gd_cuda_reduce<T>(call, y, false, result, x, alone, gd_sum_of<V, is_not_0>());
    if (isinf(p)) {
        saved_as_unit<V, extreme_size<V>> saved = {extreme, unit};
        return gd_cuda_reduce<T>(call, y, false, result, x, alone, saved);
    }
    if (!unit) unit = (V *)gd_call_scratch(call, (size_t)layout.count * sizeof(V));
    if (!unit) return gd_error_status(call->context);
    const gd_status status = gd_cuda_reduce<T>(call, unit, false, result, x, alone, extreme);
    if (status) return status;
    norm_of<V> norm = {};
    norm.term.p = (V)p;
    norm.one_by_p = (V)(1 / p);
    norm.slope_power = (V)(1 / p - 1);
    norm.slope = gd_ptr<V>(call->save[SAVE_SLOPE]);
    norm.unit = unit;
    const gd_layout in[] = {layout.of(unit), alone[0]};
    return gd_cuda_reduce<T, V>(call, y, false, result, x, in, norm);
}

// How many elements have the largest (or smallest) size.
GD_MAP_FUNCTION(is_of_size, reduce_same(fabs(x), y) ? 1 : 0, REAL y, REAL x)

// formula.h's norm at 0, norm max and norm, times the share of dy; of the arguments, unit, and dy/dm or,
// for an infinite p, how many share dy.
template <class V>
struct norm_slope {
    V p;

    __device__ V operator()(V unit, V slope, V dy, V x) const
    {
        const V sign = reduce_sign(x);
        const bool shared = isinf(p);
        const V share = shared ? dy / slope : dy * slope;
        if (p == 0) return dy * 0;
        if (x == 0) return share * 0;
        if (shared) return share * (reduce_same((V)fabs(x), unit) ? sign : (V)0);
        if (p == 1) return share * sign;
        if (p == 2) return share * (x * unit);
        return share * (sign * power_of_quotient((V)fabs(x), unit, p - 1));
    }
};

template <class T>
static gd_status norm_backward(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    using V = gd_compute<T>;
    const gd_tensor *x = call->input[0];
    const result_layout layout = layout_of_result(call);
    const gd_layout unit = layout.of(gd_tensor_data(call->save[SAVE_UNIT]));
    const gd_layout x_layout = gd_cuda_layout(x);
    V *slope = gd_ptr<V>(call->save[SAVE_SLOPE]);
    if (isinf(p_of(call))) {
        slope = (V *)gd_call_scratch(call, (size_t)layout.count * sizeof(V));
        if (!slope) return gd_error_status(call->context);
        const gd_layout sizes[] = {unit, x_layout};
        const gd_status status = gd_cuda_reduce<T, V>(call, slope, false, layout.of(nullptr), x,
                                                      sizes, gd_sum_of<V, is_of_size>());
        if (status) return status;
    }
    const gd_layout in[] = {unit, layout.of(slope), layout.of(gd_tensor_data(call->doutput[0])),
                            x_layout};
    return gd_map<T, V, 2>(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], x, in,
                           norm_slope<V>{(V)p_of(call)});
}

GD_CUDA_KERNEL_OF_T(norm_forward, norm<T>(call))
GD_CUDA_KERNEL_OF_T(norm_backward, norm_backward<T>(call))

} // namespace gd_reductions
