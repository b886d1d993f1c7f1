// variance.cu - the CUDA kernels of var and std.
//
// Squares of float overflow from 1e19 on and vanish below 1e-23, and a mean of float is off by far
// more than a deviation that is small beside it. So x is multiplied by a power of two, exactly,
// with which no square overflows, or vanishes if it counts; and the mean is the sum of two numbers,
// of which the first is close to it: distances from that are small and mostly exact.
//
//     distance of x from the mean, scaled:  (x scale - mean) - rest
#include "reduce/result.cuh"

namespace gd_reductions
{

// formula.h's distance, in two parts and scaled.
template <class V>
__device__ inline V distance(V mean, V rest, V scale, V x)
{
    return (x * scale - mean) - rest;
}

// n elements: their mean and the squares of their distances from it.
template <class V>
struct spread_of {
    V n, scale, mean, rest, squares;

    __device__ spread_of scaled(V to) const
    {
        if (scale == to) return *this;
        const V by = to / scale;
        return {n, to, mean * by, rest * by, squares * by * by};
    }
};

__device__ inline float share_of_one(float n)
{
    return __fdividef(1, n);
}
__device__ inline double share_of_one(double n)
{
    return 1 / n;
}

// x is read once: an element moves the mean of those before it (Welford 1962), and two means meet
// by the sizes of their groups (Chan, Golub and LeVeque 1979). All that is added to the squares is
// positive, so nothing cancels. What is infinite or NaN is added to them alone, and is the mean.
template <class V>
struct variance_of {
    gd_itself term;
    V divisor;
    bool root;
    V *saved[VARIANCE_SAVES]; // may be NULL

    static constexpr bool wide = sizeof(V) == sizeof(double);
    static constexpr V step = wide ? 0x1p-256 : 0x1p-32, most = wide ? 0x1p128 : 0x1p20;
    static constexpr V least = step * step * step;

    __device__ spread_of<V> identity() const
    {
        return {0, (V)INFINITY, 0, 0, 0};
    }
    // With the scale that x needs, and the first element as the mean. That of an infinite x is the
    // least, so that the squares, to which it is added, are not scaled any more.
    __device__ static spread_of<V> made_for(spread_of<V> a, V x)
    {
        V scale = min(a.scale, 1 / least);
        while (fabs(x) * scale > most && scale > least) scale *= step;
        a = a.scaled(scale);
        if (a.n == 0 && isfinite(x)) a.mean = x * scale;
        return a;
    }
    __device__ spread_of<V> combine(spread_of<V> a, V x) const
    {
        if (!(fabs(x) * a.scale <= most)) {
            a = made_for(a, x);
            if (!isfinite(x)) a.squares += x, x = 0;
        }
        const V d = distance(a.mean, a.rest, a.scale, x);
        a.n += 1;
        const V moved = d * share_of_one(a.n);
        a.rest += moved;
        a.squares += d * (d - moved);
        return a;
    }
    __device__ spread_of<V> combine(spread_of<V> a, spread_of<V> b) const
    {
        if (a.n == 0 || b.n == 0) return a.n == 0 ? b : a;
        const V scale = min(a.scale, b.scale), n = a.n + b.n, part = b.n * share_of_one(n);
        a = a.scaled(scale);
        b = b.scaled(scale);
        const V apart = (b.mean - a.mean) + (b.rest - a.rest), rest = a.rest + apart * part;
        const V mean = a.mean + rest, added = mean - a.mean; // and what the sum has lost
        return {n, scale, mean, (a.mean - (mean - added)) + (rest - added),
                (a.squares + b.squares) + apart * apart * (a.n * part)};
    }
    __device__ V result(spread_of<V> all, int64_t r) const
    {
        if (!isfinite(all.squares)) all = {all.n, all.scale, all.squares, 0, (V)NAN};
        const V unit = 1 / all.scale, value = all.squares / divisor, deviation = sqrt(value);
        if (saved[SAVE_MEAN]) saved[SAVE_MEAN][r] = all.mean;
        if (saved[SAVE_REST]) saved[SAVE_REST][r] = all.rest;
        if (saved[SAVE_SCALE]) saved[SAVE_SCALE][r] = all.scale;
        if (saved[SAVE_DEVIATION]) saved[SAVE_DEVIATION][r] = deviation;
        return root ? deviation * unit : value * unit * unit;
    }
};

template <class T>
static gd_status variance(const gd_call *call, bool root)
{
    using V = gd_compute<T>;
    const double divisor =
        gd_variance_divisor((const gd_variance_args *)call->args, result(call).n);
    variance_of<V> reduction = {};
    reduction.divisor = (V)divisor;
    reduction.root = root;
    for (int i = 0; i < VARIANCE_SAVES; i++) reduction.saved[i] = gd_ptr<V>(call->save[i]);
    return reduce<T>(call, gd_ptr<T>(call->output[0]), reduction);
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
