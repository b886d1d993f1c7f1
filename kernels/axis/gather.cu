// gather.cu - the CUDA kernels of gather, scatter_add and one_hot. Every number has one writer, and every
// sum an order that the sizes decide.
#include "axis/lines.cuh"
#include "embedding/runs.cuh"

extern "C" gd_status same_order_backward_cuda(const gd_call *call); // kernels/shape: dx = dy

template <class T>
struct axis_move {
    axis_lines l;
    T *to;
    const T *from;
    const int32_t *index;
    int64_t *fault; // or NULL
    bool put, add;  // put: to[index[i]] += from[i]; else to[i] (+)= from[index[i]]
    uint32_t bad;   // larger than what may be in the index

    // k, element i of a line of the index; `bad` if `from` (put: `to`) has no such element, which is an error.
    __device__ uint32_t checked(int32_t k, const axis_line &line, int64_t i) const
    {
        if ((uint32_t)k < bad) return (uint32_t)k;
        if (fault) *fault = 1 + line.at(INDEX, i); // index is packed
        return bad;
    }
    __device__ uint32_t target(const axis_line &line, int64_t i) const
    {
        return checked(index[line.at(INDEX, i)], line, i);
    }
    __device__ void add_to(const axis_line &line, int64_t k, gd_compute<T> sum) const
    {
        T *out = to + line.at(TO, k);
        *out = gd_store<T>(gd_load(*out) + sum);
    }
};

template <class T>
static axis_move<T> move_of(const gd_call *call, const gd_tensor *like, const gd_tensor *to,
                            const gd_tensor *from, bool put, bool backward)
{
    const axis_lines l = lines_of(call, like, {to, from, call->input[1]});
    const int32_t *index = gd_ptr<const int32_t>(call->input[1]);
    const int64_t n = l.n[put ? TO : FROM];
    int64_t *fault = backward ? nullptr : gd_cuda_fault_word(call, n);
    const uint32_t bad = (uint32_t)gd_min64(n, (int64_t)1 << 31); // no index is larger
    return {l, gd_ptr<T>(to), gd_ptr<const T>(from), index, fault, put, put || backward, bad};
}

// A thread has one element of index. Where it puts, no two of a line are equal.
template <class T>
static __global__ void move_kernel(axis_move<T> w)
{
    gd_in_turn();
    const int64_t m = w.l.n[INDEX];
    GD_EACH(e, w.l.walk.count * m)
    {
        const int64_t number = e / m, i = e - number * m;
        const axis_line line(w.l, number);
        const int64_t k = w.target(line, i);
        const bool good = k != w.bad;
        if (!good && w.put) continue;
        T *out = w.to + line.at(TO, w.put ? k : i);
        const gd_compute<T> value = good ? gd_load(w.from[line.at(FROM, w.put ? i : k)]) : 0;
        *out = gd_store<T>(w.add ? gd_load(*out) + value : value);
    }
}

// A thread has a pack of a line of the index, which lies in memory as `to` does. The blocks of a line begin
// one after the other.
template <class T>
static __global__ void take_kernel(axis_move<T> w)
{
    gd_in_turn();
    constexpr int V = gd_pack_size<T>;
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V, m = w.l.n[INDEX];
    for (int64_t number = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; number < w.l.walk.count;
         number += (int64_t)gridDim.y * blockDim.y) {
        const axis_line line(w.l, number);
        T *const to = w.to + line.at(TO, i), value[V];
        int32_t index[V];
        gd_load_guarded(index, w.index + line.at(INDEX, i), 0, m - i);
        if (w.add) gd_load_guarded(value, to, 0, m - i);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const uint32_t k = i + v < m ? w.checked(index[v], line, i + v) : w.bad;
            const T taken = k == w.bad ? T(0.0f) : w.from[line.at(FROM, k)];
            value[v] = w.add ? gd_store<T>(gd_load(value[v]) + gd_load(taken)) : taken;
        }
        gd_store_guarded(to, value, 0, m - i);
    }
}

// to[i] (+)= from[index[i]]; index has the shape of `like`.
template <class T>
static gd_status take(const gd_call *call, const gd_tensor *like, const gd_tensor *to,
                      const gd_tensor *from, bool backward)
{
    const axis_move<T> w = move_of<T>(call, like, to, from, false, backward);
    if (w.l.step[TO] != 1 || w.l.step[INDEX] != 1)
        return gd_launch(call, gd_grid_for(gd_tensor_count(like)), move_kernel<T>, w);
    const int64_t threads = gd_packs(w.l.n[INDEX], gd_pack_size<T>);
    const unsigned x = (unsigned)gd_min64(threads, 512), y = x ? 512 / x : 1;
    const gd_grid grid = {{(unsigned)gd_ceil_div(threads, 512),
                           (unsigned)gd_min64(gd_ceil_div(w.l.walk.count, y), 65535)},
                          {x, y}};
    return gd_launch(call, grid, take_kernel<T>, w);
}

// ---- to[index[i]] += from[i], in the order of i, by one of three ways ---------------------------

constexpr int64_t most_scanned = 128; // elements of a line

// In short lines a thread has one element of `to` and looks for its index: neighbours read the same one.
template <class T>
static __global__ void put_kernel(axis_move<T> w)
{
    gd_in_turn();
    const int64_t n = w.l.n[TO], m = w.l.n[INDEX];
    GD_EACH(e, w.l.walk.count * n)
    {
        const int64_t number = e / n, k = e - number * n;
        const axis_line line(w.l, number);
        gd_compute<T> sum = 0;
        bool any = false;
        for (int64_t i = 0; i < m; i++) {
            const int64_t own = k == 0 ? w.target(line, i) : w.index[line.at(INDEX, i)];
            if (own != k) continue;
            sum += gd_load(w.from[line.at(FROM, i)]);
            any = true;
        }
        if (any) w.add_to(line, k, sum);
    }
}

// A block sorts a longer line of the index by where its elements point; the thread at which a run of equal
// ones begins adds up what they take.
template <class T, class Sort>
static __global__ void __launch_bounds__(Sort::threads) put_line_kernel(axis_move<T> w)
{
    gd_in_turn();
    __shared__ union {
        typename Sort::sort::TempStorage sort;
        struct {
            uint32_t target[Sort::most];
            uint16_t source[Sort::most];
        } sorted;
    } shared;
    auto &sorted = shared.sorted;
    const int first = (int)threadIdx.x * Sort::items, m = (int)w.l.n[INDEX];
    for (int64_t number = blockIdx.x; number < w.l.walk.count; number += gridDim.x) {
        const axis_line line(w.l, number);
        typename Sort::keys target;
        typename Sort::indices source;
        Sort::load(
            target, source, m, [&](int i) { return w.target(line, i); }, w.bad);
        typename Sort::sort(shared.sort).Sort(target, source, 0, 32 - __clz((int)w.bad));
        __syncthreads();
#pragma unroll
        for (int k = 0; k < Sort::items; k++)
            sorted.target[first + k] = target[k], sorted.source[first + k] = source[k];
        __syncthreads();
        for (int r = (int)threadIdx.x; r < m; r += Sort::threads) {
            const uint32_t own = sorted.target[r];
            if (own == w.bad || (r > 0 && sorted.target[r - 1] == own)) continue;
            gd_compute<T> sum = 0;
            for (int next = r; next < m && sorted.target[next] == own; next++)
                sum += gd_load(w.from[line.at(FROM, sorted.source[next])]);
            w.add_to(line, own, sum);
        }
        __syncthreads();
    }
}

// Lines longer than a block can sort, or sharing one index line, are sorted with one device-wide sort; a
// shared index is sorted once and each line is a column of the result.

constexpr int64_t most_sorted = 1 << 20; // at once, 16 bytes each, unless a line has more

template <class Type>
struct line_rows {
    using T = Type;
    using C = gd_compute<T>;
    static constexpr int V = 1;
    axis_move<T> w;
    int64_t first; // line of those that are sorted at once
    int64_t begin;
    bool add; // as always
    uint32_t bad;

    __device__ uint32_t id(int64_t row) const
    {
        const int64_t m = w.l.n[INDEX], line = (begin + row) / m;
        const uint32_t k = w.target({w.l, first + line}, begin + row - line * m);
        return k == w.bad ? bad : (uint32_t)(line * w.bad + k);
    }
    __device__ void load(T (&value)[V], int64_t row, int64_t column) const
    {
        const int64_t m = w.l.n[INDEX], line = (begin + row) / m;
        const axis_line from(w.l, first + line + column);
        value[0] = w.from[from.at(FROM, begin + row - line * m)];
    }
    __device__ void finish(uint32_t id, const C (&sum)[V], int64_t column) const
    {
        const int64_t line = id / w.bad;
        w.add_to({w.l, first + line + column}, id - line * w.bad, sum[0]);
    }
};

template <class T>
static gd_status put_sorted(const gd_call *call, const axis_move<T> &w, bool shared)
{
    const int64_t m = w.l.n[INDEX], lines = shared ? 1 : w.l.walk.count;
    line_rows<T> r = {w, 0, 0, true, 0};
    const int64_t most = gd_min64(most_sorted / m, UINT32_MAX / gd_max64(1, w.bad));
    const int64_t some = gd_min64(lines, gd_max64(1, most));
    r.bad = (uint32_t)(some * w.bad); // a line has w.bad ids
    gd_id_sort::sorter s = gd_id_sort::sorter_for(call, some * m);
    gd_status status = GD_OK;
    for (; !status && r.first < lines; r.first += some)
        status = gd_id_sort::sum_by_id(call, r, s, gd_min64(some, lines - r.first) * m,
                                       w.l.walk.count / lines);
    return status;
}

// The index has the shape of `like`, or is one line, which all lines share.
template <class T>
static gd_status put(const gd_call *call, const gd_tensor *like, const gd_tensor *to,
                     const gd_tensor *from, bool backward)
{
    const gd_axis_args *args = (const gd_axis_args *)call->args;
    if (gd_tensor_count(like) == 0) return GD_OK;
    const axis_move<T> w = move_of<T>(call, like, to, from, true, backward);
    const int64_t n = w.l.n[TO], m = w.l.n[INDEX], lines = w.l.walk.count;
    if (m == 1 || args->distinct)
        return gd_launch(call, gd_grid_for(gd_tensor_count(like)), move_kernel<T>, w);
    if (gd_max64(n, m) <= most_scanned)
        return gd_launch(call, gd_grid_for(lines * n), put_kernel<T>, w);
    if (args->shared || m > most_in_block) return put_sorted(call, w, args->shared);
    return by_line_sort<uint32_t, 8>(m, [&](auto sort) {
        using S = decltype(sort);
        return gd_launch(call, gd_grid_for(lines, 1, S::threads), put_line_kernel<T, S>, w);
    });
}

// ---- The ops ------------------------------------------------------------------------------------

template <class T>
static gd_status gather_backward(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0], *dy = call->doutput[0];
    if (!dx || gd_tensor_count(dx) == 0) return GD_OK;
    gd_begin_gradient(call, 0);
    return put<T>(call, dy, dx, dy, true);
}

template <class T>
static gd_status scatter_add_forward(const gd_call *call)
{
    const gd_tensor *y = call->output[0];
    if (gd_tensor_count(y) > 0)
        gd_copy_cuda(gd_cuda_layout(y), gd_cuda_layout(call->input[0]), call->context);
    return put<T>(call, call->input[1], y, call->input[2], false);
}

template <class T>
static gd_status scatter_add_backward(const gd_call *call)
{
    const gd_tensor *dsrc = call->dinput[2];
    if (dsrc && gd_tensor_count(dsrc) > 0) {
        gd_begin_gradient(call, 2);
        if (take<T>(call, call->input[1], dsrc, call->doutput[0], true))
            return gd_error_status(call->context);
    }
    return same_order_backward_cuda(call);
}

GD_CUDA_KERNEL_OF_T(gather_forward,
                    take<T>(call, call->output[0], call->output[0], call->input[0], false))
GD_CUDA_KERNEL_OF_T(gather_backward, gather_backward<T>(call))
GD_CUDA_KERNEL_OF_T(scatter_add_forward, scatter_add_forward<T>(call))
GD_CUDA_KERNEL_OF_T(scatter_add_backward, scatter_add_backward<T>(call))

// ---- one_hot ------------------------------------------------------------------------------------

template <class T>
static __global__ void one_hot_kernel(T *y, const int32_t *ids, int64_t n, int64_t classes,
                                      int64_t *fault)
{
    gd_in_turn();
    GD_EACH(i, n)
    {
        const int32_t id = ids[i];
        if (id >= 0 && id < classes)
            y[i * classes + id] = T(1.f);
        else if (fault)
            *fault = 1 + i;
    }
}

extern "C" gd_status one_hot_forward_cuda(const gd_call *call)
{
    const gd_tensor *y = call->output[0], *ids = call->input[0];
    const int64_t n = gd_tensor_count(ids), classes = gd_tensor_dim(y, -1);
    gd_fill_cuda(gd_tensor_data(y), gd_tensor_dtype(y), 0, n * classes, call->context);
    if (n == 0) return gd_error_status(call->context);
    int64_t *fault = gd_cuda_fault_word(call, classes);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        return gd_launch(call, gd_grid_for(n), one_hot_kernel<T>, gd_ptr<T>(y),
                         gd_ptr<const int32_t>(ids), n, classes, fault);
    };
    return gd_tensor_dtype(y) == GD_INT32 ? run(int32_t()) : gd_by_dtype(gd_tensor_dtype(y), run);
}
