// group_norm.cu - the CUDA kernels of group_norm. A group that fits in shared memory has a block,
// which reads it once (group_norm_block.cuh). For larger ones, sums are those of each channel of
// each example (channel_norm.cuh, with B C channels of one example); a warp for each group adds
// those of its channels, and leaves what the second pass needs.
#include "batch_norm/channel_norm.cuh"
#include "batch_norm/group_norm_block.cuh"

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
    gd_in_turn();
    using C = gd_compute<T>;
    GD_EACH_WARP(row, g.rows)
    {
        const C own = gd_load(x[row * g.size + g.size * (threadIdx.x % 32) / 32]);
        const C mean = gd_sum(own * (C)(1.0 / 32));
        if (threadIdx.x % 32 == 0) center[row] = mean;
    }
}

template <class C>
__global__ void statistics_kernel(factors<C> f, gd_groups g, const C *center, channel_sums<C> sums,
                                  vector weight, vector bias, C eps, mean_kept<C> *mean_out,
                                  C *rstd_out)
{
    gd_in_turn();
    const C n = (C)g.size;
    GD_EACH_WARP(row, g.rows)
    {
        C sum = 0, squares = 0;
        for (int64_t c = threadIdx.x % 32; c < g.channels; c += 32) {
            sum += sums.at(0, row * g.channels + c);
            squares += sums.at(1, row * g.channels + c);
        }
        const C low = gd_sum(sum) / n;
        const C var = gd_sum(squares) / n - low * low;
        const C rstd = 1 / sqrt((var < 0 ? 0 : var) + eps);
        for (int64_t c = threadIdx.x % 32; c < g.channels; c += 32) {
            const int64_t to = row * g.channels + c, channel = row % g.groups * g.channels + c;
            f.center[to] = center[row];
            f.scale[to] = rstd * weight.at(channel, (C)1);
            f.offset[to] = bias.at(channel, (C)0) - low * f.scale[to];
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
    gd_in_turn();
    const C n = (C)g.size;
    GD_EACH_WARP(row, g.rows)
    {
        const mean_parts<C> mean = saved_mean(mean_in[row]);
        const C rstd = rstd_in[row];
        C sum = 0, product = 0;
        for (int64_t c = threadIdx.x % 32; c < g.channels; c += 32) {
            const C w = weight.at(row % g.groups * g.channels + c, (C)1);
            sum += w * sums.at(0, row * g.channels + c);
            product += w * sums.at(1, row * g.channels + c);
        }
        const C mean_h = gd_sum(sum) / n;
        const C mean_hx = gd_sum(product) * rstd / n;
        for (int64_t c = threadIdx.x % 32; c < g.channels; c += 32) {
            const int64_t to = row * g.channels + c, channel = row % g.groups * g.channels + c;
            f.center[to] = mean.high;
            f.scale[to] = rstd * weight.at(channel, (C)1);
            f.slope[to] = norm_slope(rstd, mean_hx, rstd);
            f.offset[to] = norm_offset(rstd, mean_h, f.slope[to], mean.low);
        }
    }
}

// dw and db: a block for each channel, over the examples.
template <class C>
__global__ void __launch_bounds__(gd_threads)
    weight_kernel(gd_groups g, channel_sums<C> sums, const C *rstd_in, vector dweight, vector dbias,
                  bool add_weight, bool add_bias)
{
    gd_in_turn();
    __shared__ C shared[32];
    const int64_t channels = g.groups * g.channels, examples = g.size ? g.rows / g.groups : 0;
    for (int64_t channel = blockIdx.x; channel < channels; channel += gridDim.x) {
        const int64_t group = channel / g.channels;
        C dw = 0, db = 0;
        for (int64_t b = threadIdx.x; b < examples; b += gd_threads) {
            const C rstd = rstd_in[b * g.groups + group];
            db += sums.at(0, b * channels + channel);
            dw += sums.at(1, b * channels + channel) * rstd;
        }
        db = gd_sum(db, shared);
        dw = gd_sum(dw, shared);
        if (threadIdx.x > 0) continue;
        dweight.put(channel, add_weight, dw);
        dbias.put(channel, add_bias, db);
    }
}

gd_channels channels_of(const gd_groups &g)
{
    return {1, g.rows * g.channels, g.S};
}

template <class T, class Value>
channel_sums<gd_compute<T>> sums_of(const gd_call *call, const gd_groups &g, const T *x,
                                    const T *dy, const Value &value)
{
    const gd_channels s = channels_of(g);
    channel_sums<gd_compute<T>> sums = {nullptr, 0, s.C};
    sums.partial = sum_up<T>(call, s, pack_of<T>(s, x, dy), value, &sums.pieces);
    return sums;
}

template <class T>
gd_status forward(const gd_call *call)
{
    using C = gd_compute<T>;
    if (gd_tensor_count(call->input[0]) == 0) return GD_OK;
    const C eps = (C)gd_option_of_dtype(call->dtype, ((const gd_group_norm_args *)call->args)->eps);
    const gd_groups g = gd_groups_of(call);
    const T *x = gd_ptr<T>(call->input[0]);
    T *y = gd_ptr<T>(call->output[0]);
    const vector weight = vector_of(call->input[1]), bias = vector_of(call->input[2]);
    auto *mean = gd_ptr<mean_kept<C>>(call->save[0]);
    C *rstd = gd_ptr<C>(call->save[1]);
    const int pack = pack_of<T>(channels_of(g), x, y);
    if (const auto plan = plan_group_blocks(g, pack, sizeof(T), false); plan.threads)
        return group_blocks_forward<T>(call, plan, y, x, g, weight, bias, eps, mean, rstd);
    const factors<C> f = make_factors<C>(call, g.rows * g.channels);
    C *center = (C *)gd_call_scratch(call, (size_t)g.rows * sizeof(C));
    if (!f.center || !center) return gd_error_status(call->context);
    const gd_grid warps = gd_grid_of_warps(g.rows);
    gd_launch(call, warps, center_kernel<T>, center, x, g);
    const auto sums = sums_of<T>(call, g, x, x, terms_of_x<T>{x, center, g.channels});
    if (!sums.partial) return gd_error_status(call->context);
    if (gd_launch(call, warps, statistics_kernel<C>, f, g, center, sums, weight, bias, eps, mean,
                  rstd))
        return gd_error_status(call->context);
    return second_pass<T>(call, channels_of(g), f, y, false, x, nullptr);
}

template <class T>
gd_status backward(const gd_call *call)
{
    using C = gd_compute<T>;
    if (gd_tensor_dim(call->input[0], 1) == 0) return GD_OK;
    const gd_groups g = gd_groups_of(call);
    const T *x = gd_ptr<T>(call->input[0]), *dy = gd_ptr<T>(call->doutput[0]);
    T *dx = gd_ptr<T>(call->dinput[0]);
    const bool add = call->accumulate[0];
    const vector weight = vector_of(call->input[1]);
    const auto *mean = gd_ptr<mean_kept<C>>(call->save[0]);
    const C *rstd = gd_ptr<C>(call->save[1]);
    const int pack = pack_of<T>(channels_of(g), x, dy, dx);
    const auto plan = plan_group_blocks(g, pack, sizeof(T), true);
    channel_sums<C> sums = {nullptr, 1, g.rows * g.channels};
    if (plan.threads) {
        C *partial = (C *)gd_call_scratch(call, 2 * (size_t)sums.channels * sizeof(C));
        if (!partial) return gd_error_status(call->context);
        sums.partial = partial;
        if (group_blocks_backward<T>(call, plan, dx, add, x, dy, g, weight, mean, rstd, partial))
            return gd_error_status(call->context);
    } else {
        sums = sums_of<T>(call, g, x, dy, terms_of_dy<T>{x, dy, mean, g.channels});
        if (!sums.partial) return gd_error_status(call->context);
    }
    if (gd_launch(call, gd_grid_for(g.groups * g.channels, 1), weight_kernel<C>, g, sums, rstd,
                  vector_of(call->dinput[1]), vector_of(call->dinput[2]), call->accumulate[1],
                  call->accumulate[2]) ||
        plan.threads || !dx || g.rows * g.size == 0)
        return gd_error_status(call->context);
    const factors<C> f = make_factors<C>(call, g.rows * g.channels);
    if (!f.center) return gd_error_status(call->context);
    if (gd_launch(call, gd_grid_of_warps(g.rows), factors_kernel<C>, f, g, sums, weight, mean,
                  rstd))
        return gd_error_status(call->context);
    return second_pass<T>(call, channels_of(g), f, dx, add, x, dy);
}

} // namespace

GD_CUDA_KERNEL_OF_T(group_norm_forward, forward<T>(call))
GD_CUDA_KERNEL_OF_T(group_norm_backward, backward<T>(call))
