// group_norm.cu - the CUDA kernels of group_norm. Sums are those of each channel of each example
// (channel_norm.cuh, with B C channels of one example); a warp for each group adds those of its
// channels, and leaves what the second pass needs.
#include "batch_norm/channel_norm.cuh"
#include "batch_norm/group_norm.h"

namespace
{

using namespace gd_channel;

// The sums of one channel of one example: all pieces.
template <class C>
struct channel_sums {
    const C *partial;
    int64_t pieces, channels;

    __device__ C at(int k, int64_t channel) const
    {
        C sum = 0;
        for (int64_t p = 0; p < pieces; p++) sum += partial[(k * pieces + p) * channels + channel];
        return sum;
    }
};

// A number near the mean of a group, as in batch_norm.
template <class T>
__global__ void center_kernel(gd_compute<T> *center, const T *x, gd_groups g)
{
    using C = gd_compute<T>;
    GD_EACH_CHANNEL(row, g.rows)
    {
        const C own = gd_load(x[row * g.size + g.size * (threadIdx.x % 32) / 32]);
        const C mean = gd_warp_reduce(own * (C)(1.0 / 32), gd_plus());
        if (threadIdx.x % 32 == 0) center[row] = mean;
    }
}

template <class C>
__global__ void statistics_kernel(factors<C> f, gd_groups g, const C *center, channel_sums<C> sums,
                                  vector weight, vector bias, C eps, mean_kept<C> *mean_out,
                                  C *rstd_out)
{
    const C n = (C)g.size;
    const int64_t channels = g.groups * g.channels;
    GD_EACH_CHANNEL(row, g.rows)
    {
        C sum = 0, squares = 0;
        for (int64_t c = threadIdx.x % 32; c < g.channels; c += 32) {
            sum += sums.at(0, row * g.channels + c);
            squares += sums.at(1, row * g.channels + c);
        }
        const C low = gd_warp_reduce(sum, gd_plus()) / n;
        const C var = gd_warp_reduce(squares, gd_plus()) / n - low * low;
        const C rstd = 1 / sqrt((var < 0 ? 0 : var) + eps);
        for (int64_t c = threadIdx.x % 32; c < g.channels; c += 32) {
            const int64_t to = row * g.channels + c, channel = row % g.groups * g.channels + c;
            f.center[to] = center[row];
            f.scale[to] = rstd * weight.at(channel, channels, (C)1);
            f.offset[to] = bias.at(channel, channels, (C)0) - low * f.scale[to];
        }
        if (threadIdx.x % 32 || !mean_out) continue;
        save_mean(mean_out + row, mean_parts<C>{center[row], low});
        rstd_out[row] = rstd;
    }
}

// dx = rstd (h - mean(h) - xhat mean(h xhat)), h = dy weight, as a product and a sum.
template <class C>
__global__ void factors_kernel(factors<C> f, gd_groups g, channel_sums<C> sums, vector weight,
                               const mean_kept<C> *mean_in, const C *rstd_in)
{
    const C n = (C)g.size;
    const int64_t channels = g.groups * g.channels;
    GD_EACH_CHANNEL(row, g.rows)
    {
        const mean_parts<C> mean = saved_mean(mean_in[row]);
        const C rstd = rstd_in[row];
        C sum = 0, product = 0;
        for (int64_t c = threadIdx.x % 32; c < g.channels; c += 32) {
            const C w = weight.at(row % g.groups * g.channels + c, channels, (C)1);
            sum += w * sums.at(0, row * g.channels + c);
            product += w * sums.at(1, row * g.channels + c);
        }
        const C mean_h = gd_warp_reduce(sum, gd_plus()) / n;
        const C mean_hx = gd_warp_reduce(product, gd_plus()) * rstd / n;
        for (int64_t c = threadIdx.x % 32; c < g.channels; c += 32) {
            const int64_t to = row * g.channels + c, channel = row % g.groups * g.channels + c;
            f.center[to] = mean.high;
            f.scale[to] = rstd * weight.at(channel, channels, (C)1);
            f.slope[to] = -rstd * mean_hx * rstd; /* [group_norm dx] */
            f.offset[to] = -rstd * mean_h - f.slope[to] * mean.low;
        }
    }
}

// dw and db: a warp for each channel, over the examples.
template <class C>
__global__ void weight_kernel(gd_groups g, channel_sums<C> sums, const C *rstd_in, vector dweight,
                              vector dbias, bool add_weight, bool add_bias)
{
    const int64_t channels = g.groups * g.channels, examples = g.size ? g.rows / g.groups : 0;
    GD_EACH_CHANNEL(channel, channels)
    {
        C dw = 0, db = 0;
        for (int64_t b = threadIdx.x % 32; b < examples; b += 32) {
            const C rstd = rstd_in[b * g.groups + channel / g.channels];
            db += sums.at(0, b * channels + channel);        /* [group_norm db] */
            dw += sums.at(1, b * channels + channel) * rstd; /* [group_norm dw] */
        }
        db = gd_warp_reduce(db, gd_plus());
        dw = gd_warp_reduce(dw, gd_plus());
        if (threadIdx.x % 32) continue;
        dweight.put(channel, channels, add_weight, dw);
        dbias.put(channel, channels, add_bias, db);
    }
}

template <class T, class Value>
channel_sums<gd_compute<T>> sums_of(const gd_call *call, const gd_groups &g, const T *x,
                                    const T *dy, const Value &value)
{
    const gd_channels s = {1, g.rows * g.channels, g.S};
    channel_sums<gd_compute<T>> sums = {nullptr, 0, s.C};
    sums.partial = sum_up<T>(call, s, pack_of<T>(s, x, dy), value, &sums.pieces);
    return sums;
}

template <class T>
gd_status forward(const gd_call *call)
{
    using C = gd_compute<T>;
    const gd_group_norm_args *args = (const gd_group_norm_args *)call->args;
    const gd_groups g = gd_groups_of(call);
    const gd_tensor *input = call->input[0];
    const T *x = gd_ptr<T>(input);
    const factors<C> f = make_factors<C>(call, g.rows * g.channels);
    C *center = (C *)gd_call_scratch(call, (size_t)g.rows * sizeof(C));
    if (!f.center || !center) return gd_error_status(call->context);
    const unsigned warps = gd_channel_warps(g.rows);
    center_kernel<T><<<warps, GD_CHANNEL_THREADS, 0, gd_stream(call)>>>(center, x, g);
    const auto sums = sums_of<T>(call, g, x, x, terms_of_x<T>{x, center, g.channels});
    if (!sums.partial) return gd_error_status(call->context);
    statistics_kernel<C><<<warps, GD_CHANNEL_THREADS, 0, gd_stream(call)>>>(
        f, g, center, sums, vector_of(call->input[1]), vector_of(call->input[2]), (C)args->eps,
        gd_ptr<mean_kept<C>>(call->save[0]), gd_ptr<C>(call->save[1]));
    if (gd_launched(call)) return gd_error_status(call->context);
    const beside channel(input, gd_tensor_shape(input)[0]);
    const gd_layout in[] = {channel.of(f.center), channel.of(f.scale), channel.of(f.offset),
                            gd_cuda_layout(input)};
    return gd_map<T, C, 3>(call, gd_ptr<T>(call->output[0]), false, input, in, normalize());
}

template <class T>
gd_status backward(const gd_call *call)
{
    using C = gd_compute<T>;
    const gd_groups g = gd_groups_of(call);
    const gd_tensor *input = call->input[0];
    const T *x = gd_ptr<T>(input), *dy = gd_ptr<T>(call->doutput[0]);
    const auto *mean = gd_ptr<mean_kept<C>>(call->save[0]);
    const C *rstd = gd_ptr<C>(call->save[1]);
    const factors<C> f = make_factors<C>(call, g.rows * g.channels);
    if (!f.center) return gd_error_status(call->context);
    const auto sums = sums_of<T>(call, g, x, dy, terms_of_dy<T>{x, dy, mean, g.channels});
    if (!sums.partial) return gd_error_status(call->context);
    const vector weight = vector_of(call->input[1]);
    const unsigned warps = gd_channel_warps(g.groups * g.channels);
    weight_kernel<C><<<warps, GD_CHANNEL_THREADS, 0, gd_stream(call)>>>(
        g, sums, rstd, vector_of(call->dinput[1]), vector_of(call->dinput[2]), call->accumulate[1],
        call->accumulate[2]);
    if (gd_launched(call) || !call->dinput[0] || g.rows * g.size == 0)
        return gd_error_status(call->context);
    factors_kernel<C><<<gd_channel_warps(g.rows), GD_CHANNEL_THREADS, 0, gd_stream(call)>>>(
        f, g, sums, weight, mean, rstd);
    if (gd_launched(call)) return gd_error_status(call->context);
    const beside channel(input, gd_tensor_shape(input)[0]);
    const gd_layout in[] = {channel.of(f.center),
                            channel.of(f.scale),
                            channel.of(f.slope),
                            channel.of(f.offset),
                            gd_cuda_layout(call->doutput[0]),
                            gd_cuda_layout(input)};
    return gd_map<T, C, 4>(call, gd_ptr<T>(call->dinput[0]), call->accumulate[0], input, in,
                           gradient());
}

} // namespace

extern "C" gd_status group_norm_forward_cuda(const gd_call *call)
{
    if (gd_tensor_count(call->input[0]) == 0) return GD_OK;
    return gd_by_kernel_dtype(call, [&](auto zero) { return forward<decltype(zero)>(call); });
}

extern "C" gd_status group_norm_backward_cuda(const gd_call *call)
{
    if (gd_tensor_dim(call->input[0], 1) == 0) return GD_OK;
    return gd_by_kernel_dtype(call, [&](auto zero) { return backward<decltype(zero)>(call); });
}
