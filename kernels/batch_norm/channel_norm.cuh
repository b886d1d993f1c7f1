// channel_norm.cuh - what batch_norm and group_norm share on a GPU: sums of each channel, and the
// second pass over x, which is a product and a sum for each element.
#ifndef GD_CHANNEL_NORM_CUH
#define GD_CHANNEL_NORM_CUH

#include "batch_norm/batch_norm.h"
#include "batch_norm/formula.h"
#include "channel_sum.cuh"
#include "mean_parts.cuh"

namespace gd_channel
{

// A vector [C] of any real dtype, or NULL.
struct vector {
    void *data;
    gd_dtype dtype;

    template <class C>
    __device__ C at(int64_t channel, C otherwise) const
    {
        return data ? gd_get<C>(data, dtype, channel) : otherwise;
    }
    template <class C>
    __device__ void put(int64_t channel, bool add, C value) const
    {
        if (data) gd_put(data, dtype, channel, add, value);
    }
};

inline vector vector_of(const gd_tensor *t)
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

template <class T>
struct terms_of_x {
    const T *x;
    const gd_compute<T> *center;
    int64_t group; // channels that have one center

    template <int V>
    using packs = gd_raw<T, V>;
    template <int V>
    __device__ packs<V> load(int64_t i) const
    {
        return gd_raw<T, V>::load(x + i);
    }
    template <int V>
    __device__ void add(int64_t channel, const packs<V> &raw, gd_compute<T> (&sum)[2]) const
    {
        const gd_pack<T, V> px = raw.elements();
        const gd_compute<T> near = center[channel / group];
#pragma unroll
        for (int v = 0; v < V; v++) {
            const gd_compute<T> d = gd_load(px[v]) - near;
            sum[0] += d;
            sum[1] += d * d;
        }
    }
};

template <class T>
struct terms_of_dy {
    const T *x, *dy;
    const mean_kept<gd_compute<T>> *mean;
    int64_t group; // channels that have one mean

    template <int V>
    struct packs {
        gd_raw<T, V> x, dy;
    };
    template <int V>
    __device__ packs<V> load(int64_t i) const
    {
        return {gd_raw<T, V>::load(x + i), gd_raw<T, V>::load(dy + i)};
    }
    template <int V>
    __device__ void add(int64_t channel, const packs<V> &raw, gd_compute<T> (&sum)[2]) const
    {
        const gd_pack<T, V> px = raw.x.elements(), pd = raw.dy.elements();
        const auto m = saved_mean(mean[channel / group]);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const gd_compute<T> d = gd_load(pd[v]);
            sum[0] += d;
            sum[1] += d * m.from(gd_load(px[v]));
        }
    }
};

// The sums of all pieces, [2, pieces, C], of a Value on x. NULL: an error.
template <class T, class Value>
gd_compute<T> *sum_up(const gd_call *call, const gd_channels &s, int pack, const Value &value,
                      int64_t *pieces)
{
    return gd_channel_sums<2, T>(call, s.B, s.C, s.S, pack > 1, value, pieces);
}

template <class T>
inline int pack_of(const gd_channels &s, const T *a, const T *b = nullptr, const T *c = nullptr)
{
    return gd_rows_pack<T>(s.S, a, b, c) ? gd_pack_size<T> : 1;
}

// ---- The second pass ----------------------------------------------------------------------------

// Writes y, or dx if dy is given. Pieces are visited in reverse order, because the end of x is
// still in L2.
template <int V, bool GRADIENT, class T>
__global__ void __launch_bounds__(gd_threads)
    second_kernel(T *out, bool add, gd_channel_plan p, factors<gd_compute<T>> f, const T *x,
                  const T *dy)
{
    gd_in_turn();
    using C = gd_compute<T>;
    const gd_channel_work work(p, p.pieces - 1 - blockIdx.y);
    if (work.channel >= p.C) return;
    const C center = f.center[work.channel], scale = f.scale[work.channel],
            offset = f.offset[work.channel], slope = GRADIENT ? f.slope[work.channel] : 0;
    for (int64_t unit = work.end; unit-- > work.begin;) {
        const gd_channel_unit<V> at(p, work, unit);
        gd_raw<T, V> raw_x[GD_CHANNEL_PACKS], raw_dy[GD_CHANNEL_PACKS];
        // All loads first: out may be dy, so that the compiler would have a load wait for a store.
#pragma unroll
        for (int k = 0; k < GD_CHANNEL_PACKS; k++) {
            if (k * p.lanes >= at.packs) continue;
            raw_x[k] = gd_raw<T, V>::load(x + at.first + k * p.lanes * V);
            if (GRADIENT) raw_dy[k] = gd_raw<T, V>::load(dy + at.first + k * p.lanes * V);
        }
#pragma unroll
        for (int k = 0; k < GD_CHANNEL_PACKS; k++) {
            if (k * p.lanes >= at.packs) continue;
            gd_pack<T, V> px = raw_x[k].elements(), pd, old = {};
            if (GRADIENT) pd = raw_dy[k].elements();
            if (add) old = gd_pack<T, V>::load(out + at.first, k * p.lanes);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C d = gd_load(px[v]) - center;
                C value = d * scale + offset;
                if (GRADIENT) value = norm_dx_fused(C(gd_load(pd[v])), scale, d, slope, offset);
                px[v] = gd_store<T>(add ? gd_load(old[v]) + value : value);
            }
            px.store(out + at.first, k * p.lanes);
        }
    }
}

template <class T>
gd_status second_pass(const gd_call *call, const gd_channels &s, const factors<gd_compute<T>> &f,
                      T *out, bool add, const T *x, const T *dy)
{
    constexpr int most = gd_pack_size<T>;
    const int pack = pack_of<T>(s, x, dy, out);
    const gd_channel_plan p = gd_plan_channels(s.B, s.C, s.S, pack);
    if (p.S == 0) return GD_OK;
    const auto kernel = dy ? pack > 1 ? second_kernel<most, true, T> : second_kernel<1, true, T>
                        : pack > 1 ? second_kernel<most, false, T>
                                   : second_kernel<1, false, T>;
    return gd_launch(call, gd_channel_blocks(p), kernel, out, add, p, f, x, dy);
}

} // namespace gd_channel

#endif
