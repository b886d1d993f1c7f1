// reduce.cu - the CUDA kernels of sum, mean, max, logsumexp, var, std, prod, norm, any and all.
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

// ---- prod ---------------------------------------------------------------------------------------

// number 2^exponent, which may be too large or too small for a V, of all terms but the zeros.
template <class V>
struct product {
    V number;
    int zeros; // 2 stands for more, too
    long long exponent;

    // A product of two whose numbers are from 0.5 to 1.
    __device__ static product of(V number, long long exponent, int zeros)
    {
        const bool small = fabs(number) < (V)0.5;
        return {small ? number * 2 : number, min(zeros, 2), small ? exponent - 1 : exponent};
    }
};

// The number from 0.5 to 1 of x, if that is finite.
template <class V>
__device__ inline V number_of(V x, int *exponent)
{
    *exponent = 0;
    return isfinite(x) ? frexp(x, exponent) : x;
}

template <class V>
__device__ inline V scaled_by(V number, V exponent)
{
    return ldexp(number, (int)fmax((V)-5000, fmin((V)5000, exponent)));
}

template <class V>
struct product_of {
    gd_itself term;
    V *save[PRODUCT_SAVES]; // may be NULL

    __device__ product<V> identity() const
    {
        return {1, 0, 0};
    }
    __device__ product<V> combine(product<V> a, V x) const
    {
        if (x == 0) return {a.number, min(a.zeros + 1, 2), a.exponent};
        int exponent;
        const V number = number_of(x, &exponent);
        return product<V>::of(a.number * number, a.exponent + exponent, a.zeros);
    }
    __device__ product<V> combine(product<V> a, product<V> b) const
    {
        return product<V>::of(a.number * b.number, a.exponent + b.exponent, a.zeros + b.zeros);
    }
    __device__ V result(product<V> total, int64_t r) const
    {
        const long long most = 1 << 20; // exact in float
        const V exponent = (V)max(-most, min(most, total.exponent));
        if (save[SAVE_NUMBER]) save[SAVE_NUMBER][r] = total.number;
        if (save[SAVE_EXPONENT]) save[SAVE_EXPONENT][r] = exponent;
        if (save[SAVE_ZEROS]) save[SAVE_ZEROS][r] = (V)total.zeros;
        return total.zeros ? 0 * total.number : scaled_by(total.number, exponent);
    }
};

static gd_status prod(const gd_call *call)
{
    const gd_layout in[] = {gd_cuda_layout(call->input[0])};
    const result_layout layout = layout_of_result(call);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        product_of<gd_compute<T>> reduction = {};
        for (int i = 0; i < PRODUCT_SAVES; i++)
            reduction.save[i] = gd_ptr<gd_compute<T>>(call->save[i]);
        return gd_cuda_reduce<T>(call, gd_ptr<T>(call->output[0]), false, layout.of(nullptr),
                                 call->input[0], in, reduction);
    });
}

// dy times the product of all elements of the group but x.
struct by_others {
    template <class V>
    __device__ V operator()(V number, V exponent, V zeros, V dy, V x) const
    {
        const V product = dy * number;
        int own;
        if (zeros > 1 || (zeros == 1 && x != 0)) return 0 * product; /* [prod zeros] */
        if (zeros == 1) x = 1;
        const V own_number = number_of(x, &own);
        return scaled_by(product / own_number, exponent - (V)own); /* [prod] */
    }
};

static gd_status prod_backward(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const gd_tensor *x = call->input[0];
    const result_layout layout = layout_of_result(call);
    const auto part = [&](const gd_tensor *t) { return layout.of(gd_tensor_data(t)); };
    const gd_layout in[] = {part(call->save[SAVE_NUMBER]), part(call->save[SAVE_EXPONENT]),
                            part(call->save[SAVE_ZEROS]), part(call->doutput[0]),
                            gd_cuda_layout(x)};
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        return gd_map<T, gd_compute<T>, 3>(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], x,
                                           in, by_others());
    });
}

// ---- norm ---------------------------------------------------------------------------------------

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

static gd_status find(const gd_call *call, bool zero)
{
    const result_layout layout = layout_of_result(call);
    const gd_layout in[] = {gd_cuda_layout(call->input[0])};
    return gd_by_kernel_dtype(call, [&](auto z) {
        using T = decltype(z);
        const found<gd_compute<T>> reduction = {{zero}};
        return gd_cuda_reduce<T>(call, gd_ptr<int32_t>(call->output[0]), false, layout.of(nullptr),
                                 call->input[0], in, reduction);
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

extern "C" gd_status prod_forward_cuda(const gd_call *call)
{
    return gd_reductions::prod(call);
}

extern "C" gd_status prod_backward_cuda(const gd_call *call)
{
    return gd_reductions::prod_backward(call);
}

extern "C" gd_status norm_forward_cuda(const gd_call *call)
{
    return gd_reductions::norm(call);
}

extern "C" gd_status norm_backward_cuda(const gd_call *call)
{
    return gd_reductions::norm_backward(call);
}

extern "C" gd_status any_forward_cuda(const gd_call *call)
{
    return gd_reductions::find(call, false);
}

extern "C" gd_status all_forward_cuda(const gd_call *call)
{
    return gd_reductions::find(call, true);
}
