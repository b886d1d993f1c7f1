// batch_norm.cu - the CUDA kernels of batch_norm. The forward reads x twice, for the sums and for
// y; the backward reads x and dy twice. Between them a kernel on C numbers makes of the sums what
// the second pass needs, so that it is a product and a sum for each element.
#include "batch_norm/batch_norm.h"
#include "batch_norm/channel_norm.cuh"

namespace
{

using namespace gd_channel;

// ---- Statistics ---------------------------------------------------------------------------------

// A number near the mean: the mean of 32 elements from all over the channel. Sums of distances from
// it do not cancel.
template <class T>
__global__ void center_kernel(gd_compute<T> *center, const T *x, gd_channels s)
{
    gd_in_turn();
    using C = gd_compute<T>;
    GD_EACH_WARP(channel, s.C)
    {
        const int64_t n = s.B * s.S, i = n * (threadIdx.x % 32) / 32, b = i / s.S;
        const C own = gd_load(x[(b * s.C + channel) * s.S + (i - b * s.S)]);
        const C mean = gd_sum(own * (C)(1.0 / 32));
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
    gd_in_turn();
    const C n = (C)(s.shape.B * s.shape.S), part = s.momentum;
    const int64_t channels = s.shape.C;
    GD_EACH_WARP(c, channels)
    {
        C sum[2];
        gd_add_pieces(sum, partial, pieces, channels, c);
        if (threadIdx.x % 32 > 0) continue;
        const C low = sum[0] / n, var = sum[1] / n - low * low, variance = var < 0 ? 0 : var;
        const C rstd = 1 / sqrt(variance + s.eps);
        const mean_parts<C> mean = {f.center[c], low};
        f.scale[c] = rstd * s.weight.at(c, (C)1);
        f.offset[c] = s.bias.at(c, (C)0) - low * f.scale[c];
        if (mean_out) save_mean(mean_out + c, mean), rstd_out[c] = rstd;
        if (!s.running_mean.data) continue;
        const C old_mean = s.running_mean.at(c, (C)0);
        const C old_var = s.running_var.at(c, (C)0);
        const C new_mean = (1 - part) * old_mean + part * (mean.high + mean.low);
        const C new_var = (1 - part) * old_var + part * (variance * s.unbiased);
        if (!isfinite(new_mean) || !isfinite(new_var)) continue;
        s.running_mean.put(c, false, new_mean);
        s.running_var.put(c, false, new_var);
    }
}

// The same of running statistics.
template <class C>
__global__ void fixed_kernel(factors<C> f, statistics<C> s, mean_kept<C> *mean_out, C *rstd_out)
{
    gd_in_turn();
    GD_EACH(c, s.shape.C)
    {
        const mean_parts<C> mean = {s.running_mean.at(c, (C)0), 0};
        const C rstd = 1 / sqrt(s.running_var.at(c, (C)1) + s.eps);
        f.center[c] = mean.high;
        f.scale[c] = rstd * s.weight.at(c, (C)1);
        f.offset[c] = s.bias.at(c, (C)0);
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
            (C)gd_option_of_dtype(call->dtype, args->eps),
            (C)args->momentum,
            (C)gd_unbiased(1, shape.B * shape.S)};
}

// ---- Forward ------------------------------------------------------------------------------------

template <class T>
gd_status forward(const gd_call *call, bool fixed)
{
    using C = gd_compute<T>;
    if (gd_tensor_count(call->input[BATCH_X]) == 0) return GD_OK;
    const T *x = gd_ptr<T>(call->input[BATCH_X]);
    statistics<C> s = statistics_of<C>(call);
    const factors<C> f = make_factors<C>(call, s.shape.C);
    if (!f.center) return gd_error_status(call->context);
    const gd_grid warps = gd_grid_of_warps(s.shape.C);
    if (fixed) {
        gd_launch(call, gd_grid_for(s.shape.C), fixed_kernel<C>, f, s, nullptr, nullptr);
    } else {
        if (call->repeated) s.running_mean = s.running_var = vector_of(nullptr);
        gd_launch(call, warps, center_kernel<T>, f.center, x, s.shape);
        int64_t pieces;
        const C *partial = sum_up<T>(call, s.shape, pack_of<T>(s.shape, x, x),
                                     terms_of_x<T>{x, f.center, 1}, &pieces);
        if (!partial) return gd_error_status(call->context);
        gd_launch(call, warps, statistics_kernel<C>, f, s, partial, pieces,
                  gd_ptr<mean_kept<C>>(call->save[0]), gd_ptr<C>(call->save[1]));
    }
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    return second_pass<T>(call, s.shape, f, gd_ptr<T>(call->output[0]), false, x, nullptr);
}

// ---- Backward -----------------------------------------------------------------------------------

struct gradients {
    vector dweight, dbias;
    bool add_weight, add_bias, fixed;
};

// dw and db from the sums of a channel, and its part of dx.
template <class C>
__global__ void gradients_kernel(factors<C> f, gd_channels s, vector weight, gradients g,
                                 const C *partial, int64_t pieces, const mean_kept<C> *mean_in,
                                 const C *rstd_in)
{
    gd_in_turn();
    const C n = (C)(s.B * s.S);
    GD_EACH_WARP(c, s.C)
    {
        C sum[2];
        gd_add_pieces(sum, partial, pieces, s.C, c);
        if (threadIdx.x % 32 > 0) continue;
        const mean_parts<C> mean = saved_mean(mean_in[c]);
        const C rstd = rstd_in[c], dw = batch_norm_dw(sum[1], rstd, n);
        g.dweight.put(c, g.add_weight, dw);
        g.dbias.put(c, g.add_bias, sum[0]);
        const C mean_d = batch_norm_mean(sum[0], n, g.fixed);
        const C mean_dx = batch_norm_mean(dw, n, g.fixed);
        f.center[c] = mean.high;
        f.scale[c] = rstd * weight.at(c, (C)1);
        f.slope[c] = norm_slope(f.scale[c], mean_dx, rstd);
        f.offset[c] = norm_offset(f.scale[c], mean_d, f.slope[c], mean.low);
    }
}

// An array without elements gives zeros for dw and db.
template <class T>
gd_status backward(const gd_call *call, bool fixed)
{
    using C = gd_compute<T>;
    if (gd_tensor_dim(call->input[BATCH_X], 1) == 0) return GD_OK;
    const T *x = gd_ptr<T>(call->input[BATCH_X]), *dy = gd_ptr<T>(call->doutput[0]);
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
        gd_launch(call, gd_grid_for(s.shape.C), fixed_kernel<C>, f, s, mean, rstd);
    }
    int64_t pieces;
    const C *partial = sum_up<T>(call, s.shape, pack_of<T>(s.shape, x, dy),
                                 terms_of_dy<T>{x, dy, mean, 1}, &pieces);
    if (!partial) return gd_error_status(call->context);
    const gradients g = {vector_of(call->dinput[BATCH_WEIGHT]), vector_of(call->dinput[BATCH_BIAS]),
                         call->accumulate[BATCH_WEIGHT], call->accumulate[BATCH_BIAS], fixed};
    if (gd_launch(call, gd_grid_of_warps(s.shape.C), gradients_kernel<C>, f, s.shape, s.weight, g,
                  partial, pieces, mean, rstd) ||
        !call->dinput[BATCH_X])
        return gd_error_status(call->context);
    return second_pass<T>(call, s.shape, f, gd_ptr<T>(call->dinput[BATCH_X]),
                          call->accumulate[BATCH_X], x, dy);
}

} // namespace

// x says in which type a kernel computes; the vectors may have another.
#define BATCH_NORM(name, fixed)                                                                  \
    GD_CUDA_KERNEL(name##_forward,                                                               \
                   gd_by_dtype(gd_tensor_dtype(call->input[BATCH_X]),                            \
                               [&](auto zero) { return forward<decltype(zero)>(call, fixed); })) \
    GD_CUDA_KERNEL(name##_backward,                                                              \
                   gd_by_dtype(gd_tensor_dtype(call->input[BATCH_X]),                            \
                               [&](auto zero) { return backward<decltype(zero)>(call, fixed); }))
BATCH_NORM(batch_norm, false)
BATCH_NORM(batch_norm_fixed, true)
