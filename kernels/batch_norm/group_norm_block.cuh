// group_norm_block.cuh - group_norm of groups that fit in shared memory: a block reads its group
// once, keeps it there, and has its mean and variance by sums over the block. In the backward x is
// kept; dy is read again, from L2, unless it fits too.
//
// The packs of a group are numbered through; pack p is of channel p / (packs of a channel).
// Thread t has packs t, t + threads, ... of all passes, so that what it keeps is its own. Only
// the sums of each channel of dy need another division: there a team of `lanes` threads has a
// channel at a time.
#ifndef GD_GROUP_NORM_BLOCK_CUH
#define GD_GROUP_NORM_BLOCK_CUH

#include "batch_norm/channel_norm.cuh"
#include "batch_norm/group_norm.h"
#include "launch.cuh"

namespace gd_channel
{

struct group_plan {
    int threads; // 0: a group does not fit
    int lanes;
    int shared; // bytes
    bool keep_dy;
    int packs; // of a channel
};

enum { MOST_GROUP_CHANNELS = 256 };

inline group_plan plan_group_blocks(const gd_groups &g, int pack, size_t element, bool backward)
{
    const gd_cuda_limits limits = gd_cuda_device_limits();
    const int64_t bytes = g.size * (int64_t)element, packs = g.S / pack;
    const int64_t sums = 4 * MOST_GROUP_CHANNELS * (int64_t)(element > 4 ? element : 4);
    group_plan p = {};
    if (g.rows == 0 || g.rows > INT32_MAX || g.channels > MOST_GROUP_CHANNELS || packs < 8 ||
        bytes + sums > limits.block_shared)
        return p;
    p.keep_dy = backward && 2 * (2 * bytes + sums) <= limits.multiprocessor_shared; // two blocks
    p.shared = (int)(p.keep_dy ? 2 * bytes : bytes);
    // A multiprocessor has 2048 threads: a sum over a block is faster in four blocks, if they fit.
    const int most = 4 * (p.shared + sums) <= limits.multiprocessor_shared ? 512 : 1024;
    p.threads = 128;
    while (p.threads < most && p.threads * 4 < packs * g.channels) p.threads *= 2;
    p.lanes = p.threads;
    while (p.lanes > 32 && p.threads / p.lanes < g.channels) p.lanes /= 2;
    p.packs = (int)packs;
    return p;
}

template <class T>
__device__ inline T *group_kept()
{
    extern __shared__ __align__(16) unsigned char gd_group_kept[];
    return (T *)gd_group_kept;
}

template <class T, int V>
__global__ void GD_LAUNCH_BOUNDS(1024, 2)
    group_forward_kernel(T *y, const T *x, gd_groups g, int packs, vector weight, vector bias,
                         gd_compute<T> eps, mean_kept<gd_compute<T>> *mean_out,
                         gd_compute<T> *rstd_out)
{
    using C = gd_compute<T>;
    __shared__ C shared[32], scale[MOST_GROUP_CHANNELS], offset[MOST_GROUP_CHANNELS];
    T *kept = group_kept<T>();
    const int64_t row = blockIdx.x;
    const int count = packs * (int)g.channels;
    const C n = (C)g.size;
    gd_async::wait_for_previous();
    C sum = 0, squares = 0;
#pragma unroll 4
    for (int p = threadIdx.x; p < count; p += blockDim.x) {
        const gd_pack<T, V> px = gd_pack<T, V>::load(x + row * g.size, p);
        px.store(kept, p);
#pragma unroll
        for (int v = 0; v < V; v++) sum += gd_load(px[v]);
    }
    mean_parts<C> mean = {gd_sum(sum, shared) / n, 0};
    sum = 0;
    for (int p = threadIdx.x; p < count; p += blockDim.x) {
        const gd_pack<T, V> px = gd_pack<T, V>::load(kept, p);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const C d = gd_load(px[v]) - mean.high;
            sum += d;
            squares += d * d;
        }
    }
    mean.low = gd_sum(sum, shared) / n;
    const C var = gd_sum(squares, shared) / n - mean.low * mean.low;
    const C rstd = 1 / sqrt((var < 0 ? 0 : var) + eps);
    for (int c = threadIdx.x; c < g.channels; c += blockDim.x) {
        const int64_t channel = row % g.groups * g.channels + c;
        scale[c] = rstd * weight.at(channel, (C)1);
        offset[c] = bias.at(channel, (C)0) - mean.low * scale[c];
    }
    if (threadIdx.x == 0 && mean_out) save_mean(mean_out + row, mean), rstd_out[row] = rstd;
    __syncthreads();
    for (int p = threadIdx.x; p < count; p += blockDim.x) {
        const int c = p / packs;
        gd_pack<T, V> px = gd_pack<T, V>::load(kept, p);
#pragma unroll
        for (int v = 0; v < V; v++)
            px[v] = gd_store<T>((gd_load(px[v]) - mean.high) * scale[c] + offset[c]);
        px.store(y + row * g.size, p);
    }
}

// Data that is not read again leaves L2 first, so that it does not push out dy, which is.
template <class T, int V>
__device__ inline gd_pack<T, V> load_once(const T *row, int p)
{
    if constexpr (sizeof(gd_pack<T, V>) == 16) {
        const uint4 raw = __ldcs((const uint4 *)row + p);
        return gd_raw<T, V>{{raw}}.elements();
    } else {
        return gd_pack<T, V>::load(row, p);
    }
}
template <class T, int V>
__device__ inline void store_once(T *row, int p, const gd_pack<T, V> &pack)
{
    if constexpr (sizeof(gd_pack<T, V>) == 16) {
        uint4 raw;
        memcpy(&raw, &pack, sizeof raw);
        __stcs((uint4 *)row + p, raw);
    } else {
        pack.store(row, p);
    }
}

// dx = scale dy + slope (x - center) + offset of a group, whose dx begins at `begin`.
template <class T, int V, class C>
__device__ __forceinline__ void
store_group_dx(T *dx, int64_t begin, bool add, const T *x, const T *dy, const C *scale, int packs,
               const gd_groups &g, const mean_parts<C> &mean, C slope, C offset)
{
#pragma unroll 2
    for (int p = threadIdx.x; p < packs * (int)g.channels; p += blockDim.x) {
        const C factor = scale[p / packs];
        const gd_pack<T, V> px = gd_pack<T, V>::load(x, p), pd = gd_pack<T, V>::load(dy, p);
        gd_pack<T, V> out = {};
        if (add) out = gd_pack<T, V>::load(dx + begin, p);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const C d = gd_load(px[v]) - mean.high;
            const C value = norm_dx_fused(C(gd_load(pd[v])), factor, d, slope, offset);
            out[v] = gd_store<T>(add ? gd_load(out[v]) + value : value);
        }
        store_once<T, V>(dx + begin, p, out);
    }
}

// sums [2, channels of all rows]: of dy, and of dy (x - mean).
template <class T, int V, bool KEEP_DY>
__global__ void GD_LAUNCH_BOUNDS(1024, 2)
    group_backward_kernel(T *dx, bool add, const T *x, const T *dy, gd_groups g, int packs,
                          int lanes, vector weight, const mean_kept<gd_compute<T>> *mean_in,
                          const gd_compute<T> *rstd_in, gd_compute<T> *sums)
{
    using C = gd_compute<T>;
    __shared__ C part[2][MOST_GROUP_CHANNELS], scale[MOST_GROUP_CHANNELS];
    const int64_t row = blockIdx.x, all = g.rows * g.channels;
    T *kept = group_kept<T>(), *kept_dy = kept + g.size;
    x += row * g.size, dy += row * g.size;
    gd_async::wait_for_previous();
    const mean_parts<C> mean = saved_mean(mean_in[row]);
    const C rstd = rstd_in[row];
    const int lane = (int)threadIdx.x % lanes, warps = lanes / 32;
    for (int c = threadIdx.x / lanes; c < g.channels; c += blockDim.x / lanes) {
        C sum = 0, product = 0;
#pragma unroll 4
        for (int i = lane; i < packs; i += lanes) {
            const int p = c * packs + i;
            const gd_pack<T, V> px = load_once<T, V>(x, p), pd = gd_pack<T, V>::load(dy, p);
            px.store(kept, p);
            if (KEEP_DY) pd.store(kept_dy, p);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C d = gd_load(pd[v]);
                sum += d;
                product += d * mean.from(gd_load(px[v]));
            }
        }
        sum = gd_sum(sum);
        product = gd_sum(product);
        if (lane % 32 > 0) continue;
        part[0][c * warps + lane / 32] = sum;
        part[1][c * warps + lane / 32] = product;
    }
    __syncthreads();
    // Each warp adds up for itself; the first one leaves what others read.
    C mean_h = 0, mean_hx = 0;
    for (int c = threadIdx.x % 32; c < g.channels; c += 32) {
        C sum = 0, product = 0;
        for (int w = c * warps; w < (c + 1) * warps; w++) sum += part[0][w], product += part[1][w];
        const int64_t channel = row % g.groups * g.channels + c;
        const C w = weight.at(channel, (C)1);
        mean_h += w * sum;
        mean_hx += w * product;
        if (threadIdx.x >= 32) continue;
        scale[c] = rstd * w;
        sums[row * g.channels + c] = sum;
        sums[all + row * g.channels + c] = product;
    }
    if (!dx) return;
    mean_h = gd_sum(mean_h) / (C)g.size;
    mean_hx = gd_sum(mean_hx) * rstd / (C)g.size;
    const C slope = norm_slope(rstd, mean_hx, rstd);
    const C offset = norm_offset(rstd, mean_h, slope, mean.low);
    __syncthreads();
    store_group_dx<T, V>(dx, row * g.size, add, kept, KEEP_DY ? kept_dy : dy, scale, packs, g, mean,
                         slope, offset);
}

template <class T>
gd_status group_blocks_forward(const gd_call *call, const group_plan &p, T *y, const T *x,
                               const gd_groups &g, vector weight, vector bias, gd_compute<T> eps,
                               mean_kept<gd_compute<T>> *mean, gd_compute<T> *rstd)
{
    const auto launch = [&](auto pack) {
        return gd_launch_large<group_forward_kernel<T, pack>>(
            call, {g.rows, p.threads, p.shared}, y, x, g, p.packs, weight, bias, eps, mean, rstd);
    };
    return p.packs < g.S ? launch(gd_number<gd_pack_size<T>>()) : launch(gd_number<1>());
}

template <class T>
gd_status group_blocks_backward(const gd_call *call, const group_plan &p, T *dx, bool add,
                                const T *x, const T *dy, const gd_groups &g, vector weight,
                                const mean_kept<gd_compute<T>> *mean, const gd_compute<T> *rstd,
                                gd_compute<T> *sums)
{
    auto launch = [&](auto pack, auto keep) {
        return gd_launch_large<group_backward_kernel<T, pack, keep>>(
            call, {g.rows, p.threads, p.shared}, dx, add, x, dy, g, p.packs, p.lanes, weight, mean,
            rstd, sums);
    };
    const gd_number<gd_pack_size<T>> most;
    const gd_number<1> one;
    if (p.keep_dy)
        return p.packs < g.S ? launch(most, gd_flag<true>()) : launch(one, gd_flag<true>());
    return p.packs < g.S ? launch(most, gd_flag<false>()) : launch(one, gd_flag<false>());
}

} // namespace gd_channel

#endif
