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
    bool add;       // to what is there
    uint32_t bad;   // larger than what may be in the index

    // k, element i of a line of the index; `bad` if it points to nothing, which is an error.
    __device__ uint32_t checked(int32_t k, const axis_line &line, int64_t i) const
    {
        if ((uint32_t)k < bad) return (uint32_t)k;
        if (fault) *fault = 1 + line.at(INDEX, i); // index is packed
        return bad;
    }
};

// `pointed`: TO or FROM, to which the index points. A backward's has been checked.
template <class T>
static axis_move<T> move_of(const gd_call *call, const gd_tensor *like, const gd_tensor *to,
                            const gd_tensor *from, int pointed, bool backward)
{
    const gd_tensor *index = call->input[1];
    const axis_lines l = lines_of(call, like, {to, from, index});
    const uint32_t bad = (uint32_t)gd_min64(l.n[pointed], (int64_t)1 << 31); // no index is larger
    int64_t *fault = backward ? nullptr : gd_cuda_fault_word(call, l.n[pointed]);
    return {l,  gd_ptr<T>(to), gd_ptr<const T>(from), gd_ptr<const int32_t>(index), fault, backward,
            bad};
}

// ---- to[i] (+)= from[index[i]] ------------------------------------------------------------------

// A thread has V elements of a line of the index. The blocks of a line begin one after the other.
template <class T, int V>
static __global__ void take_kernel(axis_move<T> w)
{
    gd_in_turn();
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

// index has the shape of `like`.
template <class T>
static gd_status take(const gd_call *call, const gd_tensor *like, const gd_tensor *to,
                      const gd_tensor *from, bool backward)
{
    constexpr int V = gd_pack_size<T>;
    const axis_move<T> w = move_of<T>(call, like, to, from, FROM, backward);
    const bool packs = w.l.step[TO] == 1 && w.l.step[INDEX] == 1;
    const int64_t threads = gd_packs(w.l.n[INDEX], packs ? V : 1);
    const unsigned x = (unsigned)gd_min64(threads, 512), y = x ? 512 / x : 1;
    const gd_grid grid = {{(unsigned)gd_ceil_div(threads, 512),
                           (unsigned)gd_min64(gd_ceil_div(w.l.walk.count, y), 65535)},
                          {x, y}};
    if (packs) return gd_launch(call, grid, take_kernel<T, V>, w);
    return gd_launch(call, grid, take_kernel<T, 1>, w);
}

// ---- to[index[i]] += from[i] --------------------------------------------------------------------

// A line of `to` has parts of 2^shift elements, a line of the index chunks. Where there are several
// parts, each chunk is sorted by part before, and has in `start` where each begins.
struct line_parts {
    int64_t parts, chunks;
    int shift;
    uint16_t *start; // [lines, chunks, parts]; NULL: one part
};

using chunk_sort = line_sort<uint32_t, 512, 8>;

// A block sorts a chunk, in which the order within a part remains: index and from, [lines, m], are
// for put_kernel. What points to nothing, an error, goes to the last element.
template <class T>
static __global__ void __launch_bounds__(chunk_sort::threads)
    divide_kernel(axis_move<T> w, line_parts p, int32_t *index, T *from)
{
    gd_in_turn();
    constexpr int most = chunk_sort::most;
    __shared__ union {
        typename chunk_sort::sort::TempStorage sort;
        uint32_t key[most];
    } shared;
    const int64_t m = w.l.n[INDEX];
    const uint32_t last = w.bad - 1;
    for (int64_t c = blockIdx.x; c < w.l.walk.count * p.chunks; c += gridDim.x) {
        const int64_t number = c / p.chunks, begin = (c - number * p.chunks) * most;
        const axis_line line(w.l, number);
        const int count = (int)(m - begin < most ? m - begin : most);
        chunk_sort::keys key;
        chunk_sort::indices source;
        const auto key_of = [&](int i) { return (uint32_t)w.index[line.at(INDEX, begin + i)]; };
        chunk_sort::load(key, source, count, key_of, last);
#pragma unroll
        for (int k = 0; k < chunk_sort::items; k++)
            if (w.checked((int32_t)key[k], line, begin + source[k]) == w.bad) key[k] = last;
        chunk_sort::sort(shared.sort)
            .SortBlockedToStriped(key, source, p.shift, 32 - __clz((int)last));
        __syncthreads();
#pragma unroll
        for (int k = 0; k < chunk_sort::items; k++)
            shared.key[k * chunk_sort::threads + (int)threadIdx.x] = key[k];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < chunk_sort::items; k++) {
            const int at = k * chunk_sort::threads + (int)threadIdx.x;
            const int64_t part = key[k] >> p.shift, to = number * m + begin + at;
            const int64_t end = at + 1 < most ? part + 1 : p.parts;
            for (int64_t q = at > 0 ? (shared.key[at - 1] >> p.shift) + 1 : 0; q < end; q++)
                p.start[c * p.parts + q] = (uint16_t)(q <= part && at < count ? at : count);
            if (at >= count) break;
            index[to] = (int32_t)key[k];
            from[to] = w.from[line.at(FROM, begin + source[k])];
        }
        __syncthreads();
    }
}

// Adds the values of a warp to sum[k]; lanes of one k first add theirs up, in order. They learn of
// each other as sum[k] keeps the number of one lane. Which one, does not matter.
template <class C>
__device__ inline void add_of_warp(C *sum, uint32_t k, bool any, C value)
{
    constexpr unsigned all = 0xffffffffu;
    const C lane = (C)(threadIdx.x % 32), old = any ? sum[k] : 0;
    __syncwarp();
    if (any) sum[k] = lane;
    __syncwarp();
    unsigned rest = __ballot_sync(all, any && sum[k] != lane);
    while (rest) {
        const bool own = k == __shfl_sync(all, k, __ffs((int)rest) - 1) && any;
        const unsigned same = __ballot_sync(all, own);
        C total = 0;
        for (unsigned left = same; left; left &= left - 1)
            total += __shfl_sync(all, value, __ffs((int)left) - 1);
        if (own) value = total;
        rest &= ~same;
    }
    __syncwarp();
    if (any) sum[k] = old + value;
    __syncwarp();
}

// A block has a part of a line. Each of its warps adds up a share of the chunks in shared memory, in
// order; then the sums of the warps are added, in order.
template <class T>
static __global__ void __launch_bounds__(1024) put_kernel(axis_move<T> w, line_parts p, int pitch)
{
    gd_in_turn();
    using C = gd_compute<T>;
    constexpr int ahead = 4, most = chunk_sort::most;
    constexpr unsigned all = 0xffffffffu;
    extern __shared__ uint4 memory[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    C *const sums = (C *)memory, *const sum = sums + warp * pitch;
    const int64_t m = w.l.n[INDEX], share = gd_ceil_div(p.chunks, warps);
    for (int64_t b = blockIdx.x; b < w.l.walk.count * p.parts; b += gridDim.x) {
        const int64_t number = b / p.parts, part = b - number * p.parts, first = part << p.shift;
        const int64_t left = w.l.n[TO] - first,
                      end = share * (warp + 1) < p.chunks ? share * (warp + 1) : p.chunks;
        const int width = left >> p.shift ? 1 << p.shift : (int)left;
        axis_line line(w.l, number);
        if (p.start) line.begin[FROM] = line.begin[INDEX] = number * m;
        for (int i = lane; i < width; i += 32) sum[i] = 0;
        __syncwarp();
        for (int64_t begin = share * warp; begin < end; begin += 32) {
            const int64_t chunk = begin + lane, before = chunk * most;
            int from = 0, to = chunk >= end ? 0 : m - before < most ? (int)(m - before) : most;
            if (p.start && chunk < end) {
                const uint16_t *at = p.start + (number * p.chunks + chunk) * p.parts + part;
                from = at[0];
                if (part + 1 < p.parts) to = at[1];
            }
            const int up_to = gd_sum_up_to(to - from), total = __shfl_sync(all, up_to, 31);
            const int64_t offset = before + to - up_to;
            for (int at = 0; at < total; at += 32 * ahead) {
                int32_t index[ahead];
                T value[ahead];
#pragma unroll
                for (int a = 0; a < ahead; a++) {
                    const int own = at + 32 * a + lane;
                    int owner = 0; // lane of the chunk
                    for (int step = p.start ? 16 : 0; step > 0; step /= 2)
                        owner += __shfl_sync(all, up_to, owner + step - 1) <= own ? step : 0;
                    const int64_t i = __shfl_sync(all, offset, owner) + own;
                    index[a] = own < total ? w.index[line.at(INDEX, i)] : 0;
                    value[a] = own < total ? w.from[line.at(FROM, i)] : T(0.0f);
                }
#pragma unroll
                for (int a = 0; a < ahead; a++) {
                    const int own = at + 32 * a + lane;
                    if (own - lane >= total) break;
                    const uint32_t k =
                        own < total ? w.checked(index[a], line, begin * most + own) : w.bad;
                    add_of_warp(sum, k - (uint32_t)first, k != w.bad, (C)gd_load(value[a]));
                }
            }
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x) {
            C total = sums[i];
            for (int other = 1; other < warps; other++) total += sums[other * pitch + i];
            T *const out = w.to + line.at(TO, first + i);
            *out = gd_store<T>(w.add ? gd_load(*out) + total : total);
        }
        __syncthreads();
    }
}

// Lines that point to few elements are added to as they are.
template <class T>
static gd_status put_lines(const gd_call *call, axis_move<T> w)
{
    constexpr int64_t size = sizeof(gd_compute<T>), most_parts = 1024, most_wide = 32768 / size;
    constexpr int64_t most_shared = 48 * 1024, many_lines = 128;
    const int64_t n = w.l.n[TO], m = w.l.n[INDEX], lines = w.l.walk.count;
    line_parts p = {1, gd_ceil_div(m, chunk_sort::most), 0, nullptr};
    const bool whole = n * size <= most_shared && (m <= chunk_sort::most || lines >= many_lines);
    const int64_t parts = gd_max64(gd_ceil_div(n, most_wide), gd_min64(most_parts, m / 1024));
    while ((n - 1) >> p.shift >= (whole ? 1 : parts)) p.shift++;
    p.parts = ((n - 1) >> p.shift) + 1;
    if (p.parts > 1) {
        const int64_t count = lines * m;
        int32_t *index = (int32_t *)gd_call_scratch(call, (size_t)count * sizeof *index);
        T *from = (T *)gd_call_scratch(call, (size_t)count * sizeof *from);
        p.start = (uint16_t *)gd_call_scratch(call, (size_t)(lines * p.chunks * p.parts) *
                                                        sizeof *p.start);
        if (!index || !from || !p.start) return gd_error_status(call->context);
        const gd_grid grid = gd_grid_for(lines * p.chunks, 1, chunk_sort::threads);
        gd_launch(call, grid, divide_kernel<T>, w, p, index, from);
        w.index = index, w.from = from, w.fault = nullptr;
        w.l.step[INDEX] = w.l.step[FROM] = 1;
    }
    const int64_t width = gd_packs(gd_min64(n, (int64_t)1 << p.shift), 4) * 4, bytes = width * size;
    const int64_t most = gd_min64(gd_min64(32, p.chunks), most_shared / bytes);
    const int64_t warps = gd_max64(1, gd_min64(most, m / p.parts / 128));
    gd_grid grid = gd_grid_for(lines * p.parts, 1, (unsigned)(32 * warps));
    grid.shared = (size_t)(warps * bytes);
    return gd_launch(call, grid, put_kernel<T>, w, p, (int)width);
}

// The index has the shape of `like`, or is one line, which all lines share: of rows, as in an embedding,
// if lines are neighbours.
template <class T>
static gd_status put(const gd_call *call, const gd_tensor *like, const gd_tensor *to,
                     const gd_tensor *from, bool backward)
{
    if (!to || gd_tensor_count(to) == 0) return GD_OK;
    axis_move<T> w = move_of<T>(call, like, to, from, TO, backward);
    const int64_t n = w.l.n[TO], m = w.l.n[INDEX], lines = w.l.walk.count, columns = w.l.step[FROM];
    const bool rows = ((const gd_axis_args *)call->args)->shared && columns > 1 &&
                      lines <= 16 * columns && gd_tensor_is_contiguous(from);
    const bool begin = backward && (rows || lines * n < gd_tensor_count(to) || lines * m == 0);
    if (begin) gd_begin_gradient(call, 0);
    if (lines * m == 0) return gd_error_status(call->context);
    w.add = !backward || begin || call->accumulate[0];
    if (!rows) return put_lines(call, w);
    gd_id_sort::sorter s = gd_id_sort::sorter_for(call, m);
    gd_id_sort::table_rows<T, T> r = {w.to, w.from, w.index, columns, 0, true, w.bad};
    for (; r.dtable < w.to + lines * n; r.dtable += n * columns, r.dy += m * columns)
        gd_id_sort::sum_by_id(call, r, s, m, columns);
    return gd_error_status(call->context);
}

// ---- The ops ------------------------------------------------------------------------------------

template <class T>
static gd_status scatter_add_forward(const gd_call *call)
{
    const gd_tensor *y = call->output[0];
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
GD_CUDA_KERNEL_OF_T(gather_backward,
                    put<T>(call, call->doutput[0], call->dinput[0], call->doutput[0], true))
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
