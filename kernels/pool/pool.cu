// pool.cu - the CUDA kernels of max_pool2d and avg_pool2d. A thread has elements of the result, of
// y or of dx, and every sum has one writer. Windows of 2 x 2 side by side, the usual ones, have
// kernels of their own, which move whole packs: on an H200 1.2 to 2.3 times as fast.
#include "planes.cuh"
#include "pool/pool.h"

namespace
{

// Geometry in Index, unsigned for fewer than 2^31 elements: 64-bit arithmetic takes longer than the
// memory does.
template <class Index>
struct pool_sizes {
    Index size[POOL_AXES], pooled[POOL_AXES], kernel[POOL_AXES], stride[POOL_AXES],
        padding[POOL_AXES];

    struct span {
        Index first, end;
    };
    // The places of window i that are in x.
    __device__ span places(int axis, Index i) const
    {
        const Index from = i * stride[axis], skip = padding[axis], end = from + kernel[axis];
        return {from > skip ? from - skip : 0, end > skip ? min(end - skip, size[axis]) : (Index)0};
    }
    // The windows that contain place i.
    __device__ span windows(int axis, Index i) const
    {
        const Index at = i + padding[axis], last = quotient(at, axis);
        if (kernel[axis] <= stride[axis]) { // at most one
            const bool inside = last < pooled[axis] && at - last * stride[axis] < kernel[axis];
            return {last, inside ? last + 1 : last};
        }
        const Index first =
            at + 1 > kernel[axis] ? quotient(at - kernel[axis] + stride[axis], axis) : 0;
        return {first, min(pooled[axis], last + 1)};
    }
    // x / stride; most are 1 or 2.
    __device__ Index quotient(Index x, int axis) const
    {
        return stride[axis] == 1 ? x : stride[axis] == 2 ? x / 2 : x / stride[axis];
    }
};

// y of the maximum, with its place in the plane if it is wanted: of equal elements the first, of
// NaNs the last; or of the mean.
template <bool MAX, class T, class Planes, class Index = typename Planes::Index>
__global__ void __launch_bounds__(gd_threads)
    window_kernel(T *y, int32_t *saved, const T *x, Planes w, pool_sizes<Index> p,
                  gd_compute<T> size)
{
    gd_in_turn();
    constexpr int PLANES = Planes::PLANES;
    const Index H = p.size[POOL_ROWS], W = p.size[POOL_COLS];
    GD_EACH(place, w.places)
    {
        const gd_plane_place<Index> at((Index)place, p.pooled[POOL_ROWS], p.pooled[POOL_COLS]);
        const auto rows = p.places(POOL_ROWS, at.row), cols = p.places(POOL_COLS, at.col);
        const T *from = x + (int64_t)at.plane * (H * W);
        for (int64_t e = place; e < w.count; e += w.step(), from += w.from_step()) {
            gd_compute<T> most[PLANES];
            gd_long_sum<gd_compute<T>> sum[PLANES];
            Index where[PLANES];
#pragma unroll
            for (int k = 0; k < PLANES; k++)
                most[k] = -INFINITY, where[k] = rows.first * W + cols.first;
            for (Index a = rows.first; a < rows.end; a++) {
                for (Index i = a * W + cols.first; i < a * W + cols.end; i++) {
                    T element[PLANES];
                    w.load(element, e, from + i);
#pragma unroll
                    for (int k = 0; k < PLANES; k++) {
                        const gd_compute<T> value = gd_load(element[k]);
                        if (!MAX) sum[k].add(value);
                        if (MAX && (value > most[k] || value != value))
                            most[k] = value, where[k] = i;
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < PLANES; k++) {
                if (!w.has(e, k)) continue;
                y[e + k * w.apart] = gd_store<T>(MAX ? most[k] : sum[k].value() / size);
                if (MAX && saved) saved[e + k * w.apart] = (int32_t)where[k];
            }
        }
    }
}

// What arrives at a place: the sum over the windows that contain it, of a maximum over those whose
// largest element it is. share: of a mean, 1 / K.
template <bool MAX, class T, class Planes, class Index = typename Planes::Index>
__global__ void __launch_bounds__(gd_threads)
    gradient_kernel(T *dx, bool add, const T *dy, const int32_t *saved, Planes w,
                    pool_sizes<Index> p, gd_compute<T> share)
{
    gd_in_turn();
    constexpr int PLANES = Planes::PLANES;
    const Index n = p.pooled[POOL_COLS];
    GD_EACH(place, w.places)
    {
        const gd_plane_place<Index> at((Index)place, p.size[POOL_ROWS], p.size[POOL_COLS]);
        const auto rows = p.windows(POOL_ROWS, at.row), cols = p.windows(POOL_COLS, at.col);
        const int32_t own = (int32_t)(at.row * p.size[POOL_COLS] + at.col);
        int64_t from = (int64_t)at.plane * (p.pooled[POOL_ROWS] * n);
        for (int64_t e = place; e < w.count; e += w.step(), from += w.from_step()) {
            gd_compute<T> sum[PLANES] = {};
            for (Index i = rows.first; i < rows.end; i++) {
                for (Index j = i * n + cols.first; j < i * n + cols.end; j++) {
                    T arrives[PLANES];
                    int32_t largest[PLANES];
                    w.load(arrives, e, dy + (from + j));
                    if (MAX) w.load(largest, e, saved + (from + j));
#pragma unroll
                    for (int k = 0; k < PLANES; k++) {
                        if (!MAX) sum[k] += gd_load(arrives[k]) * share;
                        if (MAX && largest[k] == own) sum[k] += gd_load(arrives[k]);
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < PLANES; k++) {
                if (!w.has(e, k)) continue;
                T *to = dx + (e + k * w.apart);
                *to = gd_store<T>(add ? gd_load(*to) + sum[k] : sum[k]);
            }
        }
    }
}

// ---- Windows of 2 x 2 side by side --------------------------------------------------------------

// A thread has V neighbours of each of two rows of x, and with them V / 2 windows. H is even: row 2
// l of all planes one below the other is the first of line l of windows.
template <int V, class Index>
struct quads {
    Index packs, width, lines; // packs and elements of a row of x; lines of windows of a plane

    struct place {
        Index line, col;
    };
    __device__ place at(Index pack) const
    {
        const Index line = pack / packs;
        return {line, (pack - line * packs) * V};
    }
    // The index of the first of them in its plane of x.
    __device__ Index in_plane(const place &at) const
    {
        return at.line % lines * 2 * width + at.col;
    }
};

template <bool MAX, int V, class T, class Index>
__global__ void __launch_bounds__(gd_threads)
    quads_kernel(T *y, int32_t *saved, const T *x, Index count, quads<V, Index> q)
{
    gd_in_turn();
    using C = gd_compute<T>;
    GD_EACH(e, count)
    {
        const auto at = q.at((Index)e);
        gd_pack<T, V> row[2];
        for (int r = 0; r < 2; r++)
            row[r] = gd_pack<T, V>::load(x + (2 * at.line + r) * (int64_t)q.width, at.col / V);
        const Index first = MAX ? q.in_plane(at) : 0;
        gd_pack<T, V / 2> out;
        gd_pack<int32_t, V / 2> place;
#pragma unroll
        for (int w = 0; w < V / 2; w++) {
            C most = -INFINITY;
            int best = 0;
            gd_long_sum<C> sum;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const C value = gd_load(row[k / 2][2 * w + k % 2]);
                if (!MAX) sum.add(value);
                if (value > most || value != value) most = value, best = k;
            }
            out[w] = gd_store<T>(MAX ? most : sum.value() / 4);
            place[w] = (int32_t)(first + 2 * w + best / 2 * q.width + best % 2);
        }
        out.store(y, e);
        if (MAX && saved) place.store(saved, e);
    }
}

// The gradient of the maximum if there is `saved`, else of the mean.
template <int V, class T, class Index>
__global__ void __launch_bounds__(gd_threads)
    quads_gradient_kernel(T *dx, bool add, const T *dy, const int32_t *saved, Index count,
                          quads<V, Index> q)
{
    gd_in_turn();
    using C = gd_compute<T>;
    GD_EACH(e, count)
    {
        const auto at = q.at((Index)e);
        const gd_pack<T, V / 2> d = gd_pack<T, V / 2>::load(dy, e);
        gd_pack<int32_t, V / 2> place = {};
        if (saved) place = gd_pack<int32_t, V / 2>::load(saved, e);
        const Index first = saved ? q.in_plane(at) : 0;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            T *to = dx + (2 * at.line + r) * (int64_t)q.width;
            gd_pack<T, V> out = {};
            if (add) out = gd_pack<T, V>::load(to, at.col / V);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C arrives = gd_load(d[v / 2]);
                C sum = 0;
                if (!saved)
                    sum += arrives * (C)0.25;
                else if (place[v / 2] == (int32_t)(first + r * q.width + v))
                    sum += arrives;
                out[v] = gd_store<T>(add ? gd_load(out[v]) + sum : sum);
            }
            out.store(to, at.col / V);
        }
    }
}

// ---- Launching ----------------------------------------------------------------------------------

// Elements of a pack of dx, or of a row of quads.
template <class T>
constexpr int pack = 16 / sizeof(T) < 4 ? 16 / sizeof(T) : 4;

// Whether windows are 2 x 2 side by side, and planes and `small` (y or dy, and what is saved) can
// be moved by packs.
template <class T, class Index>
bool has_quads(const pool_sizes<Index> &p, const T *plane, const void *small, const int32_t *saved)
{
    constexpr int V = pack<T>;
    for (int axis = 0; axis < POOL_AXES; axis++)
        if (p.kernel[axis] != 2 || p.stride[axis] != 2 || p.padding[axis] != 0 || p.size[axis] % 2)
            return false;
    return !(p.size[POOL_COLS] % V || (uintptr_t)plane % (V * sizeof(T)) ||
             (uintptr_t)small % (V / 2 * sizeof(T)) ||
             (uintptr_t)saved % (V / 2 * sizeof(int32_t)));
}

template <class T, class Index>
quads<pack<T>, Index> quads_of(const pool_sizes<Index> &p)
{
    return {p.size[POOL_COLS] / pack<T>, p.size[POOL_COLS], p.pooled[POOL_ROWS]};
}

template <class Index>
pool_sizes<Index> sizes_of(const gd_pool_planes &p)
{
    pool_sizes<Index> s;
    for (int axis = 0; axis < POOL_AXES; axis++) {
        s.size[axis] = (Index)p.size[axis];
        s.pooled[axis] = (Index)p.pooled[axis];
        s.kernel[axis] = (Index)p.args.kernel[axis];
        s.stride[axis] = (Index)p.args.stride[axis];
        s.padding[axis] = (Index)p.args.padding[axis];
    }
    return s;
}

// Calls launch(zero, planes, sizes) with a T, the planes of `to` that are made of the other's, and
// sizes in their Index.
template <class Launch>
gd_status by_planes(const gd_call *call, const gd_tensor *x, const gd_tensor *y,
                    const gd_tensor *to, Launch launch)
{
    const gd_pool_planes p = gd_pool_planes_of(call, x, y);
    // A window may reach beyond x by its kernel.
    const int64_t reach = p.args.kernel[POOL_ROWS] + p.args.kernel[POOL_COLS] +
                          p.args.stride[POOL_ROWS] + p.args.stride[POOL_COLS];
    return gd_by_planes(call, to, to == x ? y : x, p.planes, reach, [&](auto zero, auto planes) {
        return launch(zero, planes, sizes_of<typename decltype(planes)::Index>(p));
    });
}

double window_size(const gd_call *call)
{
    const conv_args *args = (const conv_args *)call->args;
    return (double)(args->kernel[POOL_ROWS] * args->kernel[POOL_COLS]);
}

template <bool MAX>
gd_status pool_forward(const gd_call *call)
{
    const gd_tensor *in = call->input[0], *out = call->output[0];
    return by_planes(call, in, out, out, [&](auto zero, auto planes, auto sizes) {
        using T = decltype(zero);
        using Planes = decltype(planes);
        using Index = typename Planes::Index;
        const T *x = gd_ptr<const T>(in);
        T *y = gd_ptr<T>(out);
        int32_t *saved = MAX ? gd_ptr<int32_t>(call->save[0]) : nullptr;
        if (!has_quads(sizes, x, y, saved))
            return gd_launch(call, gd_grid_for(planes.places), window_kernel<MAX, T, Planes>, y,
                             saved, x, planes, sizes, (gd_compute<T>)window_size(call));
        const Index n = (Index)(planes.count / (pack<T> / 2));
        return gd_launch(call, gd_grid_for(n), quads_kernel<MAX, pack<T>, T, Index>, y, saved, x, n,
                         quads_of<T>(sizes));
    });
}

template <bool MAX>
gd_status pool_backward(const gd_call *call)
{
    const gd_tensor *in = call->dinput[0], *out = call->doutput[0];
    if (!in) return GD_OK;
    return by_planes(call, in, out, in, [&](auto zero, auto planes, auto sizes) {
        using T = decltype(zero);
        using Planes = decltype(planes);
        using Index = typename Planes::Index;
        const T *dy = gd_ptr<const T>(out);
        const int32_t *saved = MAX ? gd_ptr<const int32_t>(call->save[0]) : nullptr;
        T *dx = gd_ptr<T>(in);
        const bool add = call->accumulate[0];
        if (!has_quads(sizes, dx, dy, saved))
            return gd_launch(call, gd_grid_for(planes.places), gradient_kernel<MAX, T, Planes>, dx,
                             add, dy, saved, planes, sizes, (gd_compute<T>)(1 / window_size(call)));
        const Index n = (Index)(planes.count / (2 * pack<T>));
        return gd_launch(call, gd_grid_for(n), quads_gradient_kernel<pack<T>, T, Index>, dx, add,
                         dy, saved, n, quads_of<T>(sizes));
    });
}

} // namespace

GD_CUDA_KERNEL(max_pool2d_forward, pool_forward<true>(call))
GD_CUDA_KERNEL(max_pool2d_backward, pool_backward<true>(call))
GD_CUDA_KERNEL(avg_pool2d_forward, pool_forward<false>(call))
GD_CUDA_KERNEL(avg_pool2d_backward, pool_backward<false>(call))
