// batch_norm.cu - the CUDA kernels of batch_norm. The forward reads x twice, for the sums and for y;
// the backward reads x and dy twice. Between them a kernel on C numbers makes of the sums what the
// second pass needs, so that it is a product and a sum for each element (map.cuh).
#include "batch_norm/batch_norm.h"
#include "channel_sum.cuh"
#include "map.cuh"
#include "mean_parts.cuh"

namespace gd_batch
{

// A vector [C] of any real dtype, or NULL.
struct vector {
    void *data;
    gd_dtype dtype;

    template <class C>
    __device__ C at(int64_t channel, int64_t channels, C otherwise) const
    {
        if (!data) return otherwise;
        C value[1];
        gd_get(value, data, dtype, channel, channels);
        return value[0];
    }
    template <class C>
    __device__ void put(int64_t channel, int64_t channels, bool add, C value) const
    {
        const C values[1] = {value};
        if (data) gd_put(data, dtype, channel, channels, add, values);
    }
};

vector vector_of(const gd_tensor *t)
{
    if (!t) return {nullptr, GD_FLOAT32};
    return {gd_tensor_data(t), gd_tensor_dtype(t)};
}

// What the second pass needs of each channel: y = (x - center) scale + offset; in the backward
// dx = dy scale + (x - center) slope + offset.
template <class C>
struct factors {
    C *center, *scale, *offset, *slope;
};

template <class C>
factors<C> make_factors(const gd_call *call, int64_t channels)
{
    C *data = (C *)gd_call_scratch(call, 4 * (size_t)channels * sizeof(C));
    if (!data) return {};
    return {data, data + channels, data + 2 * channels, data + 3 * channels};
}

// A vector [C] beside x [B, C, ...].
struct beside {
    int64_t shape[GD_MAX_DIMS], strides[GD_MAX_DIMS];
    int ndim;

    explicit beside(const gd_tensor *x) : shape(), strides(), ndim(gd_tensor_ndim(x) - 1)
    {
        for (int d = 0; d < ndim; d++) shape[d] = 1;
        shape[0] = gd_tensor_shape(x)[1];
        strides[0] = 1;
    }
    gd_layout of(const void *data) const
    {
        return {(void *)data, GD_FLOAT32, ndim, shape, strides};
    }
};

template <class T>
struct terms_of_x {
    const T *x;
    const gd_compute<T> *center;

    template <int V>
    __device__ void add(int64_t channel, int64_t i, gd_compute<T> (&sum)[2]) const
    {
        const gd_pack<T, V> px = gd_load_pack<T, V>(x + i, 0);
        const gd_compute<T> near = center[channel];
#pragma unroll
        for (int v = 0; v < V; v++) {
            const gd_compute<T> d = gd_load(px.element[v]) - near;
            sum[0] += d;
            sum[1] += d * d;
        }
    }
};

template <class T>
struct terms_of_dy {
    const T *x, *dy;
    const mean_kept<gd_compute<T>> *mean;

    template <int V>
    __device__ void add(int64_t channel, int64_t i, gd_compute<T> (&sum)[2]) const
    {
        const gd_pack<T, V> px = gd_load_pack<T, V>(x + i, 0), pd = gd_load_pack<T, V>(dy + i, 0);
        const auto m = saved_mean(mean[channel]);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const gd_compute<T> d = gd_load(pd.element[v]);
            sum[0] += d;
            sum[1] += d * m.from(gd_load(px.element[v]));
        }
    }
};

// ---- Statistics ---------------------------------------------------------------------------------

// A number near the mean: the mean of 32 elements from all over the channel. Sums of distances from
// it do not cancel.
template <class T>
__global__ void center_kernel(gd_compute<T> *center, const T *x, gd_channels s)
{
    using C = gd_compute<T>;
    GD_EACH_CHANNEL(channel, s.C)
    {
        const int64_t n = s.B * s.S, i = n * (threadIdx.x % 32) / 32, b = i / s.S;
        const C own = gd_load(x[(b * s.C + channel) * s.S + (i - b * s.S)]);
        const C mean = gd_warp_reduce(own * (C)(1.0 / 32), gd_plus());
        if (threadIdx.x % 32 == 0) center[channel] = mean;
    }
}

template <class C>
struct statistics {
    gd_channels shape;
    vector weight, bias, running_mean, running_var;
    C eps, momentum, unbiased; // the factor from the variance to the unbiased one
};

template <class C>
__global__ void statistics_kernel(factors<C> f, statistics<C> s, const C *partial, int64_t pieces,
                                  mean_kept<C> *mean_out, C *rstd_out)
{
    const C n = (C)(s.shape.B * s.shape.S), part = s.momentum;
    const int64_t channels = s.shape.C;
    GD_EACH_CHANNEL(c, channels)
    {
        C sum[2];
        gd_add_pieces(sum, partial, pieces, channels, c);
        if (threadIdx.x % 32 > 0) continue;
        const C low = sum[0] / n, var = sum[1] / n - low * low, variance = var < 0 ? 0 : var;
        const C rstd = 1 / sqrt(variance + s.eps);
        const mean_parts<C> mean = {f.center[c], low};
        f.scale[c] = rstd * s.weight.at(c, channels, (C)1);
        f.offset[c] = s.bias.at(c, channels, (C)0) - low * f.scale[c];
        if (mean_out) save_mean(mean_out + c, mean), rstd_out[c] = rstd;
        if (!s.running_mean.data) continue;
        const C old_mean = s.running_mean.at(c, channels, (C)0);
        const C old_var = s.running_var.at(c, channels, (C)0);
        s.running_mean.put(c, channels, false,
                           (1 - part) * old_mean + part * (mean.high + mean.low));
        s.running_var.put(c, channels, false,
                          (1 - part) * old_var + part * (variance * s.unbiased));
    }
}

// The same of running statistics.
template <class C>
__global__ void fixed_kernel(factors<C> f, statistics<C> s, mean_kept<C> *mean_out, C *rstd_out)
{
    GD_EACH(c, s.shape.C)
    {
        const mean_parts<C> mean = {s.running_mean.at(c, s.shape.C, (C)0), 0};
        const C rstd = 1 / sqrt(s.running_var.at(c, s.shape.C, (C)1) + s.eps);
        f.center[c] = mean.high;
        f.scale[c] = rstd * s.weight.at(c, s.shape.C, (C)1);
        f.offset[c] = s.bias.at(c, s.shape.C, (C)0);
        if (mean_out) save_mean(mean_out + c, mean), rstd_out[c] = rstd;
    }
}

template <class C>
statistics<C> statistics_of(const gd_call *call)
{
    const gd_batch_norm_args *args = (const gd_batch_norm_args *)call->args;
    const gd_channels shape = gd_channels_of(call->input[BATCH_X]);
    return {shape,
            vector_of(call->input[BATCH_WEIGHT]),
            vector_of(call->input[BATCH_BIAS]),
            vector_of(call->input[BATCH_MEAN]),
            vector_of(call->input[BATCH_VAR]),
            (C)args->eps,
            (C)args->momentum,
            (C)gd_unbiased(1, shape.B * shape.S)};
}

// The sums of all pieces, [2, pieces, C], of a Value on packs of x. NULL: no memory.
template <class T, class Value>
gd_compute<T> *sum_up(const gd_call *call, const gd_channels &s, int pack, const Value &value,
                      int64_t *pieces)
{
    using C = gd_compute<T>;
    const gd_channel_plan p = gd_plan_channels(s.B, s.C, s.S, pack);
    C *partial = (C *)gd_call_scratch(call, 2 * (size_t)(p.pieces * p.C) * sizeof(C));
    if (!partial) return nullptr;
    const dim3 blocks((unsigned)p.columns, (unsigned)p.pieces);
    if (pack > 1)
        gd_sum_channels<2, gd_pack_size<T>>
            <<<blocks, GD_CHANNEL_THREADS, 0, gd_stream(call)>>>(partial, p, value);
    else
        gd_sum_channels<2, 1>
            <<<blocks, GD_CHANNEL_THREADS, 0, gd_stream(call)>>>(partial, p, value);
    *pieces = p.pieces;
    return partial;
}

template <class T>
int pack_of(const gd_channels &s, const T *x, const T *dy)
{
    return gd_rows_pack<T>(s.S, x, dy) ? gd_pack_size<T> : 1;
}

// ---- Forward ------------------------------------------------------------------------------------

struct normalize {
    template <class C>
    __device__ C operator()(C center, C scale, C offset, C x) const
    {
        return (x - center) * scale + offset;
    }
};

template <class T>
gd_status forward(const gd_call *call, bool fixed)
{
    using C = gd_compute<T>;
    const gd_tensor *input = call->input[BATCH_X];
    const T *x = gd_ptr<T>(input);
    statistics<C> s = statistics_of<C>(call);
    const factors<C> f = make_factors<C>(call, s.shape.C);
    if (!f.center) return gd_error_status(call->context);
    const unsigned warps = gd_channel_warps(s.shape.C);
    if (fixed) {
        fixed_kernel<C>
            <<<gd_blocks(s.shape.C, 256), 256, 0, gd_stream(call)>>>(f, s, nullptr, nullptr);
    } else {
        if (call->repeated) s.running_mean = s.running_var = vector_of(nullptr);
        center_kernel<T><<<warps, GD_CHANNEL_THREADS, 0, gd_stream(call)>>>(f.center, x, s.shape);
        int64_t pieces;
        const C *partial = sum_up<T>(call, s.shape, pack_of<T>(s.shape, x, x),
                                     terms_of_x<T>{x, f.center}, &pieces);
        if (!partial) return gd_error_status(call->context);
        statistics_kernel<C><<<warps, GD_CHANNEL_THREADS, 0, gd_stream(call)>>>(
            f, s, partial, pieces, gd_ptr<mean_kept<C>>(call->save[0]), gd_ptr<C>(call->save[1]));
    }
    if (gd_launched(call)) return gd_error_status(call->context);
    const beside channel(input);
    const gd_layout in[] = {channel.of(f.center), channel.of(f.scale), channel.of(f.offset),
                            gd_cuda_layout(input)};
    return gd_map<T, C, 3>(call, gd_ptr<T>(call->output[0]), false, input, in, normalize());
}

gd_status forward_of_dtype(const gd_call *call, bool fixed)
{
    const gd_tensor *x = call->input[BATCH_X];
    if (gd_tensor_count(x) == 0) return GD_OK;
    return gd_by_dtype(gd_tensor_dtype(x),
                       [&](auto zero) { return forward<decltype(zero)>(call, fixed); });
}

// ---- Backward -----------------------------------------------------------------------------------

struct gradients {
    vector dweight, dbias;
    bool add_weight, add_bias, fixed;
};

// dw and db from the sums of a channel, and its part of dx:
//
//     dx = scale (dy - mean(dy) - xhat mean(dy xhat)),    xhat = (x - center - low) rstd
template <class C>
__global__ void gradients_kernel(factors<C> f, gd_channels s, vector weight, gradients g,
                                 const C *partial, int64_t pieces, const mean_kept<C> *mean_in,
                                 const C *rstd_in)
{
    const C n = (C)(s.B * s.S);
    GD_EACH_CHANNEL(c, s.C)
    {
        C sum[2];
        gd_add_pieces(sum, partial, pieces, s.C, c);
        if (threadIdx.x % 32 > 0) continue;
        const mean_parts<C> mean = saved_mean(mean_in[c]);
        const C rstd = rstd_in[c], dw = n > 0 ? sum[1] * rstd : 0;
        g.dweight.put(c, s.C, g.add_weight, dw); /* [dw] */
        g.dbias.put(c, s.C, g.add_bias, sum[0]); /* [db] */
        C mean_d = sum[0] / n, mean_dx = dw / n; /* [means] */
        if (g.fixed) mean_d = mean_dx = 0;       /* [batch_norm_fixed] */
        f.center[c] = mean.high;
        f.scale[c] = rstd * weight.at(c, s.C, (C)1);
        f.slope[c] = -f.scale[c] * mean_dx * rstd; /* [xhat] */
        f.offset[c] = -f.scale[c] * mean_d - f.slope[c] * mean.low;
    }
}

struct gradient {
    template <class C>
    __device__ C operator()(C center, C scale, C slope, C offset, C dy, C x) const
    {
        return dy * scale + ((x - center) * slope + offset); /* [dx] */
    }
};

template <class T>
gd_status backward(const gd_call *call, bool fixed)
{
    using C = gd_compute<T>;
    const gd_tensor *input = call->input[BATCH_X];
    const T *x = gd_ptr<T>(input), *dy = gd_ptr<T>(call->doutput[0]);
    const statistics<C> s = statistics_of<C>(call);
    const factors<C> f = make_factors<C>(call, s.shape.C);
    if (!f.center) return gd_error_status(call->context);
    auto *mean = fixed ? nullptr : gd_ptr<mean_kept<C>>(call->save[0]);
    C *rstd = fixed ? nullptr : gd_ptr<C>(call->save[1]);
    if (fixed) {
        const size_t each = sizeof(mean_kept<C>) + sizeof(C);
        mean = (mean_kept<C> *)gd_call_scratch(call, (size_t)s.shape.C * each);
        if (!mean) return gd_error_status(call->context);
        rstd = (C *)(mean + s.shape.C);
        fixed_kernel<C><<<gd_blocks(s.shape.C, 256), 256, 0, gd_stream(call)>>>(f, s, mean, rstd);
    }
    int64_t pieces;
    const C *partial =
        sum_up<T>(call, s.shape, pack_of<T>(s.shape, x, dy), terms_of_dy<T>{x, dy, mean}, &pieces);
    if (!partial) return gd_error_status(call->context);
    const gradients g = {vector_of(call->dinput[BATCH_WEIGHT]), vector_of(call->dinput[BATCH_BIAS]),
                         call->accumulate[BATCH_WEIGHT], call->accumulate[BATCH_BIAS], fixed};
    gradients_kernel<C><<<gd_channel_warps(s.shape.C), GD_CHANNEL_THREADS, 0, gd_stream(call)>>>(
        f, s.shape, s.weight, g, partial, pieces, mean, rstd);
    if (gd_launched(call) || !call->dinput[BATCH_X]) return gd_error_status(call->context);
    const beside channel(input);
    const gd_layout in[] = {channel.of(f.center),
                            channel.of(f.scale),
                            channel.of(f.slope),
                            channel.of(f.offset),
                            gd_cuda_layout(call->doutput[0]),
                            gd_cuda_layout(input)};
    return gd_map<T, C, 4>(call, gd_ptr<T>(call->dinput[BATCH_X]), call->accumulate[BATCH_X], input,
                           in, gradient());
}

// Of an array without elements: zeros for dw and db.
gd_status backward_of_dtype(const gd_call *call, bool fixed)
{
    const gd_tensor *x = call->input[BATCH_X];
    if (gd_tensor_dim(x, 1) == 0) return GD_OK;
    return gd_by_dtype(gd_tensor_dtype(x),
                       [&](auto zero) { return backward<decltype(zero)>(call, fixed); });
}

} // namespace gd_batch

extern "C" gd_status batch_norm_forward_cuda(const gd_call *call)
{
    return gd_batch::forward_of_dtype(call, false);
}

extern "C" gd_status batch_norm_backward_cuda(const gd_call *call)
{
    return gd_batch::backward_of_dtype(call, false);
}

extern "C" gd_status batch_norm_fixed_forward_cuda(const gd_call *call)
{
    return gd_batch::forward_of_dtype(call, true);
}

extern "C" gd_status batch_norm_fixed_backward_cuda(const gd_call *call)
{
    return gd_batch::backward_of_dtype(call, true);
}
