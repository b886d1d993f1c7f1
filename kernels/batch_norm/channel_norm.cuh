// channel_norm.cuh - what batch_norm and group_norm share on a GPU: sums of each channel, and the second
// pass over x, which is a product and a sum for each element.
#ifndef GD_CHANNEL_NORM_CUH
#define GD_CHANNEL_NORM_CUH

#include "batch_norm/batch_norm.h"
#include "channel_sum.cuh"
#include "map.cuh"
#include "mean_parts.cuh"

namespace gd_channel
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

// A number for each channel beside x [B, C, ...]: of all examples, [C], or of each, [B, C].
struct beside {
    int64_t shape[GD_MAX_DIMS], strides[GD_MAX_DIMS];
    int ndim;

    beside(const gd_tensor *x, int64_t examples) : shape(), strides(), ndim(gd_tensor_ndim(x))
    {
        const int64_t channels = gd_tensor_shape(x)[1];
        for (int d = 2; d < ndim; d++) shape[d] = 1;
        shape[0] = examples, strides[0] = channels;
        shape[1] = channels, strides[1] = 1;
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
    int64_t group; // channels that have one center

    template <int V>
    __device__ void add(int64_t channel, int64_t i, gd_compute<T> (&sum)[2]) const
    {
        const gd_pack<T, V> px = gd_load_pack<T, V>(x + i, 0);
        const gd_compute<T> near = center[channel / group];
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
    int64_t group; // channels that have one mean

    template <int V>
    __device__ void add(int64_t channel, int64_t i, gd_compute<T> (&sum)[2]) const
    {
        const gd_pack<T, V> px = gd_load_pack<T, V>(x + i, 0), pd = gd_load_pack<T, V>(dy + i, 0);
        const auto m = saved_mean(mean[channel / group]);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const gd_compute<T> d = gd_load(pd.element[v]);
            sum[0] += d;
            sum[1] += d * m.from(gd_load(px.element[v]));
        }
    }
};

// The sums of all pieces, [2, pieces, C], of a Value on packs of x. NULL: no memory.
template <class T, class Value>
gd_compute<T> *sum_up(const gd_call *call, const gd_channels &s, int pack, const Value &value,
                      int64_t *pieces)
{
    using C = gd_compute<T>;
    const gd_channel_plan p = gd_plan_channels(s.B, s.C, s.S, pack);
    C *partial = (C *)gd_call_scratch(call, 2 * (size_t)(p.pieces * p.C) * sizeof(C));
    if (!partial) return nullptr;
    *pieces = p.pieces;
    if (p.columns == 0) return partial;
    const dim3 blocks((unsigned)p.columns, (unsigned)p.pieces);
    if (pack > 1)
        gd_sum_channels<2, gd_pack_size<T>>
            <<<blocks, GD_CHANNEL_THREADS, 0, gd_stream(call)>>>(partial, p, value);
    else
        gd_sum_channels<2, 1>
            <<<blocks, GD_CHANNEL_THREADS, 0, gd_stream(call)>>>(partial, p, value);
    return partial;
}

template <class T>
inline int pack_of(const gd_channels &s, const T *x, const T *dy)
{
    return gd_rows_pack<T>(s.S, x, dy) ? gd_pack_size<T> : 1;
}

struct normalize {
    template <class C>
    __device__ C operator()(C center, C scale, C offset, C x) const
    {
        return (x - center) * scale + offset;
    }
};

struct gradient {
    template <class C>
    __device__ C operator()(C center, C scale, C slope, C offset, C dy, C x) const
    {
        return dy * scale + ((x - center) * slope + offset); /* [dx] */
    }
};

} // namespace gd_channel

#endif
