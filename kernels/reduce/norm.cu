// norm.cu - the CUDA kernels of norm.
#include <float.h>

#include "reduce/result.cuh"

namespace gd_reductions
{

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
        return power_of_quotient((V)fabs(x), unit, p);
    }
};

// What the backward reads of a norm (formula.h).
template <class V>
struct norm_saves {
    V *unit, *slope; // may be NULL

    __device__ void save(int64_t r, V u, V by_m) const
    {
        if (unit) unit[r] = u;
        if (slope) slope[r] = by_m;
    }
};

// As reduce_cpu.c has it. Where the extreme is 0, infinite or NaN, so is m.
template <class V>
struct norm_of : gd_sum_of<V, power_term<V>> {
    V one_by_p, slope_power; // 1 / p - 1
    norm_saves<V> saves;     // the unit is there already

    __device__ V result(V s, int64_t r) const
    {
        const V m = saves.unit[r];
        const bool number = m > 0 && !isinf(m);
        saves.save(r, m, isinf(m) ? (V)1 : number ? pow(s, slope_power) : m);
        return number ? pow(s, one_by_p) * m : m;
    }
};

// p = 1
template <class V>
struct sum_of_sizes : gd_sum_of<V, absolute> {
    norm_saves<V> saves;

    __device__ V result(V sum, int64_t r) const
    {
        saves.save(r, 1, 1);
        return sum;
    }
};

// p = 2, in one pass: sums of squares as they are, of x times a large power of two, and of x times
// a small one. The first is the one to take unless it is so small or large that squares have
// vanished that count, or overflowed; then one of the others has neither.
template <class V>
struct three_sums {
    V plain, of_small, of_large;
};
template <class V>
struct root_of_squares {
    gd_itself term;
    norm_saves<V> saves;

    static constexpr V power = sizeof(V) == sizeof(double) ? 0x1p600 : 0x1p80;

    __device__ three_sums<V> identity() const
    {
        return {0, 0, 0};
    }
    __device__ three_sums<V> combine(three_sums<V> a, three_sums<V> b) const
    {
        return {a.plain + b.plain, a.of_small + b.of_small, a.of_large + b.of_large};
    }
    __device__ three_sums<V> combine(three_sums<V> sums, V x) const
    {
        const V more = x * power, less = x * (1 / power);
        return {sums.plain + x * x, sums.of_small + more * more, sums.of_large + less * less};
    }
    __device__ V result(three_sums<V> sums, int64_t r) const
    {
        const bool small = sums.plain < 1 / power;
        const bool large = sums.plain > power;
        const V unit = small ? power : large ? 1 / power : 1;
        const V root = sqrt(small ? sums.of_small : large ? sums.of_large : sums.plain);
        const bool infinite = isinf(root); // an x is
        saves.save(r, infinite ? 0 : unit, infinite ? 1 : root > 0 ? 1 / root : root);
        return root / unit;
    }
};

static double p_of(const gd_call *call)
{
    return gd_option_of_dtype(call->dtype, ((const gd_norm_args *)call->args)->p);
}

// That of an infinite p, which is saved as it is before it is rounded.
template <class V>
struct saved_as_unit : extreme_size<V> {
    norm_saves<V> saves;

    __device__ V result(V y, int64_t r) const
    {
        if (saves.unit) saves.unit[r] = y;
        return y;
    }
};

template <class T>
static gd_status norm(const gd_call *call)
{
    using V = gd_compute<T>;
    const double p = p_of(call);
    T *y = gd_ptr<T>(call->output[0]);
    norm_saves<V> saves = {gd_ptr<V>(call->save[SAVE_UNIT]), gd_ptr<V>(call->save[SAVE_SLOPE])};
    const extreme_size<V> extreme = {{}, p < 0};
    if (p == 0) return reduce<T>(call, y, gd_sum_of<V, is_not_zero>());
    if (p == 1) return reduce<T>(call, y, sum_of_sizes<V>{{}, saves});
    if (p == 2) return reduce<T>(call, y, root_of_squares<V>{{}, saves});
    if (isinf(p)) return reduce<T>(call, y, saved_as_unit<V>{extreme, saves});
    const result layout(call);
    if (!saves.unit) saves.unit = (V *)gd_call_scratch(call, (size_t)layout.count * sizeof(V));
    if (!saves.unit) return gd_error_status(call->context);
    const gd_status status = reduce<T>(call, saves.unit, extreme);
    if (status) return status;
    norm_of<V> norm = {};
    norm.term.p = (V)p;
    norm.one_by_p = (V)(1 / p);
    norm.slope_power = (V)(1 / p - 1);
    norm.saves = saves;
    const gd_layout in[] = {layout.of(saves.unit), gd_cuda_layout(call->input[0])};
    return gd_cuda_reduce<T, V>(call, y, false, layout.of(nullptr), call->input[0], in, norm);
}

// How many elements have the largest (or smallest) size.
GD_MAP_FUNCTION(is_of_size, reduce_same(fabs(x), y) ? 1 : 0, REAL y, REAL x)

// formula.h's norm at 0, norm max and norm, times the share of dy; of the arguments, unit, and
// dy/dm or, for an infinite p, how many share dy.
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
    const result layout(call);
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
