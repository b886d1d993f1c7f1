// pool.cu - the CUDA kernels of max_pool2d and avg_pool2d. A thread has elements of the result, of
// y or of dx, and every sum has one writer. Windows of 2 x 2 side by side, the usual ones, have
// kernels of their own, which move whole packs: on an H100 1.2 to 2.9 times as fast.
#include "plane_place.cuh"
#include "pool/pool.h"
#include "team.cuh"

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
template <bool MAX, class T, class Index>
__global__ void __launch_bounds__(gd_threads)
    window_kernel(T *y, int32_t *saved, const T *x, Index count, pool_sizes<Index> p,
                  gd_compute<T> size)
{
    gd_in_turn();
    const Index H = p.size[POOL_ROWS], W = p.size[POOL_COLS];
    GD_EACH(e, count)
    {
        const gd_plane_place<Index> at((Index)e, p.pooled[POOL_ROWS], p.pooled[POOL_COLS]);
        const auto rows = p.places(POOL_ROWS, at.row), cols = p.places(POOL_COLS, at.col);
        const T *plane = x + (int64_t)at.plane * (H * W);
        gd_compute<T> most = -INFINITY;
        gd_long_sum<gd_compute<T>> sum;
        Index where = rows.first * W + cols.first;
        for (Index a = rows.first; a < rows.end; a++) {
            for (Index i = a * W + cols.first; i < a * W + cols.end; i++) {
                const gd_compute<T> value = gd_load(plane[i]);
                if (!MAX) sum.add(value);
                if (MAX && (value > most || value != value)) most = value, where = i;
            }
        }
        y[e] = gd_store<T>(MAX ? most : sum.value() / size);
        if (MAX && saved) saved[e] = (int32_t)where;
    }
}

// What arrives at a place: the sum over windows first to end - 1 of a row of dy.
template <bool MAX, class T>
struct pool_terms {
    const T *dy;
    const int32_t *saved; // of a maximum
    gd_compute<T> share;  // of a mean: 1 / K

    template <class Index>
    __device__ void add(gd_compute<T> &sum, int64_t plane, Index first, Index end, Index own) const
    {
        for (Index j = first; j < end; j++) {
            if (!MAX) sum += gd_load(dy[plane + j]) * share;
            if (MAX && saved[plane + j] == (int32_t)own) sum += gd_load(dy[plane + j]);
        }
    }
};

// A thread has V neighbours of a row of dx.
template <int V, class T, class Index, class Terms>
__global__ void __launch_bounds__(gd_threads)
    gradient_kernel(T *dx, bool add, Index packs, pool_sizes<Index> p, Terms terms)
{
    gd_in_turn();
    const Index W = p.size[POOL_COLS], n = p.pooled[POOL_COLS];
    GD_EACH(pack, packs)
    {
        const gd_plane_place<Index> at((Index)pack, p.size[POOL_ROWS], W / V);
        const auto rows = p.windows(POOL_ROWS, at.row);
        const int64_t plane = (int64_t)at.plane * (p.pooled[POOL_ROWS] * n);
        gd_compute<T> sum[V] = {};
#pragma unroll
        for (int v = 0; v < V; v++) {
            const Index col = at.col * V + v;
            const auto cols = p.windows(POOL_COLS, col);
            for (Index i = rows.first; i < rows.end; i++)
                terms.add(sum[v], plane, i * n + cols.first, i * n + cols.end, at.row * W + col);
        }
        gd_pack<T, V> out = {};
        if (add) out = gd_pack<T, V>::load(dx, pack);
#pragma unroll
        for (int v = 0; v < V; v++) out[v] = gd_store<T>(add ? gd_load(out[v]) + sum[v] : sum[v]);
        out.store(dx, pack);
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

// Calls launch(zero, count, sizes) with a T, the number of elements of `to` and sizes, in the Index
// that x and y need.
template <class Launch>
gd_status by_index(const gd_call *call, const gd_tensor *x, const gd_tensor *y, const gd_tensor *to,
                   Launch launch)
{
    const gd_pool_planes p = gd_pool_planes_of(call, x, y);
    const int64_t count = gd_tensor_count(to);
    // A window may reach beyond x by its kernel.
    const int64_t reach = p.args.kernel[POOL_ROWS] + p.args.kernel[POOL_COLS] +
                          p.args.stride[POOL_ROWS] + p.args.stride[POOL_COLS];
    const bool small = gd_tensor_count(x) + reach <= INT32_MAX && gd_tensor_count(y) <= INT32_MAX;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        return small ? launch(zero, (unsigned)count, sizes_of<unsigned>(p))
                     : launch(zero, count, sizes_of<int64_t>(p));
    });
}

double window_size(const gd_call *call)
{
    const gd_pool_args *args = (const gd_pool_args *)call->args;
    return (double)(args->kernel[POOL_ROWS] * args->kernel[POOL_COLS]);
}

template <bool MAX>
gd_status pool_forward(const gd_call *call)
{
    const gd_tensor *in = call->input[0], *out = call->output[0];
    return by_index(call, in, out, out, [&](auto zero, auto count, auto sizes) {
        using T = decltype(zero);
        using Index = decltype(count);
        const T *x = gd_ptr<const T>(in);
        T *y = gd_ptr<T>(out);
        int32_t *saved = MAX ? gd_ptr<int32_t>(call->save[0]) : nullptr;
        if (!has_quads(sizes, x, y, saved))
            return gd_launch(call, gd_grid_for(count), window_kernel<MAX, T, Index>, y, saved, x,
                             count, sizes, (gd_compute<T>)window_size(call));
        const Index n = count / (pack<T> / 2);
        return gd_launch(call, gd_grid_for(n), quads_kernel<MAX, pack<T>, T, Index>, y, saved, x, n,
                         quads_of<T>(sizes));
    });
}

template <bool MAX>
gd_status pool_backward(const gd_call *call)
{
    const gd_tensor *in = call->dinput[0], *out = call->doutput[0];
    if (!in) return GD_OK;
    return by_index(call, in, out, in, [&](auto zero, auto count, auto p) {
        using T = decltype(zero);
        using Index = decltype(count);
        constexpr int V = pack<T>;
        const pool_terms<MAX, T> terms = {gd_ptr<const T>(out),
                                          MAX ? gd_ptr<const int32_t>(call->save[0]) : nullptr,
                                          (gd_compute<T>)(1 / window_size(call))};
        T *dx = gd_ptr<T>(in);
        const bool add = call->accumulate[0];
        if (has_quads(p, dx, terms.dy, terms.saved)) {
            const Index n = count / (2 * V);
            return gd_launch(call, gd_grid_for(n), quads_gradient_kernel<V, T, Index>, dx, add,
                             terms.dy, terms.saved, n, quads_of<T>(p));
        }
        const bool packs = p.size[POOL_COLS] % V == 0 && (uintptr_t)dx % (V * sizeof(T)) == 0;
        const Index n = packs ? count / V : count;
        const auto kernel = packs ? gradient_kernel<V, T, Index, pool_terms<MAX, T>>
                                  : gradient_kernel<1, T, Index, pool_terms<MAX, T>>;
        return gd_launch(call, gd_grid_for(n), kernel, dx, add, n, p, terms);
    });
}

} // namespace

GD_CUDA_KERNEL(max_pool2d_forward, pool_forward<true>(call))
GD_CUDA_KERNEL(max_pool2d_backward, pool_backward<true>(call))
GD_CUDA_KERNEL(avg_pool2d_forward, pool_forward<false>(call))
GD_CUDA_KERNEL(avg_pool2d_backward, pool_backward<false>(call))
