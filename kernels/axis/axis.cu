// axis.cu - the CUDA kernels of the ops along one axis: gather, scatter_add, cumsum, topk, sort. Every
// number has one writer, and every sum an order that the sizes decide.
#include <cub/block/block_radix_sort.cuh>

#include "axis/axis.h"
#include "cuda.cuh"
#include "cuda/device_cuda.h"
#include "embedding/runs.cuh"

extern "C" gd_status same_order_backward_cuda(const gd_call *call); // kernels/shape: dx = dy

enum { TO, FROM, INDEX, OPERANDS };
constexpr int threads = 256;

// The lines of several tensors, side by side: the walk says where they begin.
struct axis_lines {
    gd_cuda_walk<OPERANDS> walk;
    int64_t n[OPERANDS], step[OPERANDS]; // of a line of each operand

    // Where element i of a line is.
    __device__ int64_t place(int operand, int64_t line, int64_t i) const
    {
        int64_t at[OPERANDS];
        walk.at(line, at);
        return at[operand] + i * step[operand];
    }
};

// As many lines as `like` has. The operands may be larger: their first lines are taken. One with a single
// line has it for all.
static axis_lines lines_of(const gd_tensor *like, int axis, const gd_tensor *const (&t)[OPERANDS])
{
    int64_t shape[GD_MAX_DIMS];
    axis_lines l = {};
    for (int d = 0; d < gd_tensor_ndim(like); d++)
        shape[d] = d == axis ? 1 : gd_tensor_shape(like)[d];
    gd_layout layout[OPERANDS];
    for (int k = 0; k < OPERANDS; k++) {
        layout[k] = gd_cuda_layout(t[k]);
        l.n[k] = gd_tensor_shape(t[k])[axis];
        l.step[k] = gd_tensor_strides(t[k])[axis];
    }
    l.walk = gd_cuda_walk_over<OPERANDS>(gd_tensor_ndim(like), shape, layout);
    return l;
}

static int axis_of(const gd_call *call)
{
    return ((const gd_axis_args *)call->args)->axis;
}

// A block of THREADS sorts a line of up to `most` keys in shared memory, each with its place, by five bits
// at a time. A thread has ITEMS neighbours of the line, since the sort keeps the order of equal keys.
template <class K, int THREADS, int ITEMS>
struct line_sort {
    using key = K;
    using sort = cub::BlockRadixSort<K, THREADS, ITEMS, uint16_t, 5>;
    static constexpr int threads = THREADS, items = ITEMS, most = THREADS * ITEMS;
};

constexpr int64_t most_in_block = 4096;

// Calls f with a line_sort for lines of n <= most_in_block. ITEMS: of a thread, for lines of about 1024.
template <class K, int ITEMS, class F>
static gd_status by_line_sort(int64_t n, F f)
{
    if (n <= 256) return f(line_sort<K, 32, 8>());
    if (n <= 1024) return f(line_sort<K, 1024 / ITEMS, ITEMS>());
    return f(line_sort<K, 256, 16>());
}

// ---- gather and scatter_add ---------------------------------------------------------------------

// to[i] (+)= from[index[i]], or with `put`, for lines in which no two indices are equal,
// to[index[i]] += from[i]. A thread has one element of index.
template <class T>
static __global__ void move_kernel(T *to, const T *from, const int32_t *index, axis_lines l,
                                   bool put, bool add, int64_t *fault)
{
    const int64_t m = l.n[INDEX], n = l.n[put ? TO : FROM];
    GD_EACH(e, l.walk.count * m)
    {
        const int64_t line = e / m, i = e - line * m;
        int64_t at[OPERANDS];
        l.walk.at(line, at);
        const int64_t place = at[INDEX] + i * l.step[INDEX], k = index[place]; // index is packed
        const bool good = k >= 0 && k < n;
        if (!good && fault) *fault = 1 + place;
        if (!good && put) continue;
        T *out = to + at[TO] + (put ? k : i) * l.step[TO];
        const T *in = from + at[FROM] + (put ? i : k) * l.step[FROM];
        const gd_compute<T> value = good ? gd_load(*in) : 0;
        *out = gd_store<T>(add ? gd_load(*out) + value : value);
    }
}

// to[index[i]] += from[i], in the order of i: by one of three ways.
//
// In short lines a thread has one element of `to` and looks for its index: neighbours read the same one.
template <class T>
static __global__ void put_kernel(T *to, const T *from, const int32_t *index, axis_lines l,
                                  int64_t *fault)
{
    const int64_t n = l.n[TO], m = l.n[INDEX];
    GD_EACH(e, l.walk.count * n)
    {
        const int64_t line = e / n, k = e - line * n;
        int64_t at[OPERANDS];
        l.walk.at(line, at);
        gd_compute<T> sum = 0;
        bool any = false;
        for (int64_t i = 0; i < m; i++) {
            const int64_t place = at[INDEX] + i * l.step[INDEX], t = index[place];
            if (k == 0 && fault && (t < 0 || t >= n)) *fault = 1 + place;
            if (t != k) continue;
            sum += gd_load(from[at[FROM] + i * l.step[FROM]]);
            any = true;
        }
        T *out = to + at[TO] + k * l.step[TO];
        if (any) *out = gd_store<T>(gd_load(*out) + sum);
    }
}

constexpr int64_t most_scanned = 128; // elements of a line

// A block sorts a longer line of the index by where its elements point; the thread at which a run of equal
// ones begins adds up what they take.
template <class T, class Sort>
static __global__ void __launch_bounds__(Sort::threads)
    put_line_kernel(T *to, const T *from, const int32_t *index, axis_lines l, uint32_t bad,
                    int bits, int64_t *fault)
{
    __shared__ union {
        typename Sort::sort::TempStorage sort;
        struct {
            uint32_t id[Sort::most];
            uint16_t place[Sort::most];
        } sorted;
    } shared;
    const int first = (int)threadIdx.x * Sort::items, m = (int)l.n[INDEX];
    for (int64_t line = blockIdx.x; line < l.walk.count; line += gridDim.x) {
        int64_t at[OPERANDS];
        l.walk.at(line, at);
        uint32_t id[Sort::items];
        uint16_t place[Sort::items];
#pragma unroll
        for (int k = 0; k < Sort::items; k++) {
            const int i = first + k;
            const int64_t from_index = at[INDEX] + i * l.step[INDEX];
            id[k] = i < m ? (uint32_t)index[from_index] : bad;
            if (id[k] > bad || (id[k] == bad && i < m)) {
                if (fault) *fault = 1 + from_index;
                id[k] = bad;
            }
            place[k] = (uint16_t)i;
        }
        typename Sort::sort(shared.sort).Sort(id, place, 0, bits);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < Sort::items; k++) {
            shared.sorted.id[first + k] = id[k];
            shared.sorted.place[first + k] = place[k];
        }
        __syncthreads();
        for (int r = (int)threadIdx.x; r < m; r += Sort::threads) {
            const uint32_t own = shared.sorted.id[r];
            if (own == bad || (r > 0 && shared.sorted.id[r - 1] == own)) continue;
            gd_compute<T> sum = 0;
            for (int next = r; next < m && shared.sorted.id[next] == own; next++)
                sum += gd_load(from[at[FROM] + shared.sorted.place[next] * l.step[FROM]]);
            T *out = to + at[TO] + own * l.step[TO];
            *out = gd_store<T>(gd_load(*out) + sum);
        }
        __syncthreads();
    }
}

// Lines that are too long for a block, or that share one of index, are sorted at once; the lines that share
// it are the columns of its rows.

constexpr int64_t most_sorted = 1 << 20; // at once, 16 bytes each, unless a line has more

template <class Type>
struct line_rows {
    using T = Type;
    using C = gd_compute<T>;
    static constexpr int V = 1;
    T *to;
    const T *from;
    const int32_t *index;
    axis_lines l;
    int64_t *fault;
    int64_t first; // line of those that are sorted at once
    int64_t width; // ids of a line
    int64_t begin;
    bool add; // as always
    uint32_t bad;

    __device__ uint32_t id(int64_t row) const
    {
        const int64_t m = l.n[INDEX], line = (begin + row) / m;
        const int64_t place = l.place(INDEX, first + line, begin + row - line * m),
                      k = index[place];
        const bool good = k >= 0 && k < l.n[TO];
        if (!good && fault) *fault = 1 + place;
        return good ? (uint32_t)(line * width + k) : bad;
    }

    __device__ void load(T (&value)[V], int64_t row, int64_t column) const
    {
        const int64_t m = l.n[INDEX], line = (begin + row) / m;
        value[0] = from[l.place(FROM, first + line + column, begin + row - line * m)];
    }

    __device__ void finish(uint32_t id, const C (&sum)[V], int64_t column) const
    {
        const int64_t line = id / width;
        T *out = to + l.place(TO, first + line + column, id - line * width);
        *out = gd_store<T>(gd_load(*out) + sum[0]);
    }
};

template <class T>
static gd_status put_sorted(const gd_call *call, line_rows<T> r, bool shared)
{
    const int64_t m = r.l.n[INDEX], lines = shared ? 1 : r.l.walk.count;
    r.width = gd_min64(r.l.n[TO], (int64_t)1 << 31); // no index is larger
    const int64_t most = gd_min64(most_sorted / m, UINT32_MAX / r.width);
    const int64_t some = gd_min64(lines, gd_max64(1, most));
    r.bad = (uint32_t)(some * r.width);
    gd_id_sort::sorter s = gd_id_sort::sorter_for(call, some * m);
    gd_status status = GD_OK;
    for (; !status && r.first < lines; r.first += some)
        status = gd_id_sort::sum_by_id(call, r, s, gd_min64(some, lines - r.first) * m,
                                       r.l.walk.count / lines);
    return status;
}

// put: to[index[i]] += from[i]; else to[i] (+)= from[index[i]]. The index has the shape of `like`, or is
// one line, which all lines share.
static gd_status move(const gd_call *call, const gd_tensor *like, const gd_tensor *to,
                      const gd_tensor *from, bool put, bool add, int64_t *fault)
{
    const gd_tensor *index = call->input[1];
    const axis_lines l = lines_of(like, axis_of(call), {to, from, index});
    const int64_t count = gd_tensor_count(like), n = l.n[TO], m = l.n[INDEX];
    const bool shared = ((const gd_axis_args *)call->args)->shared;
    const bool distinct = !put || m == 1 || ((const gd_axis_args *)call->args)->distinct;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        T *const out = gd_ptr<T>(to);
        const T *const in = gd_ptr<const T>(from);
        const int32_t *const at = gd_ptr<const int32_t>(index);
        if (distinct)
            return gd_launch(call, gd_grid_for(count), move_kernel<T>, out, in, at, l, put, add,
                             fault);
        if (gd_max64(n, m) <= most_scanned)
            return gd_launch(call, gd_grid_for(l.walk.count * n), put_kernel<T>, out, in, at, l,
                             fault);
        if (shared || m > most_in_block)
            return put_sorted<T>(call, {out, in, at, l, fault, 0, 0, 0, true, 0}, shared);
        return by_line_sort<uint32_t, 8>(m, [&](auto sort) {
            using S = decltype(sort);
            const uint32_t bad = (uint32_t)gd_min64(n, (int64_t)1 << 31); // no index is larger
            return gd_launch(call, gd_grid_for(l.walk.count, 1, S::threads), put_line_kernel<T, S>,
                             out, in, at, l, bad, gd_id_sort::bits_of(bad), fault);
        });
    });
}

// A gradient to be added to: zeros, if there is none yet.
static void begin_gradient(const gd_call *call, int i)
{
    const gd_tensor *g = call->dinput[i];
    if (call->accumulate[i]) return;
    gd_fill_cuda(gd_tensor_data(g), gd_tensor_dtype(g), 0, gd_tensor_count(g), call->context);
}

static int64_t *fault_of(const gd_call *call)
{
    return gd_cuda_fault_word(call, gd_tensor_dim(call->input[0], axis_of(call)));
}

extern "C" gd_status gather_forward_cuda(const gd_call *call)
{
    const gd_tensor *y = call->output[0];
    return move(call, y, y, call->input[0], false, false, fault_of(call));
}

extern "C" gd_status gather_backward_cuda(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0], *dy = call->doutput[0];
    if (!dx || gd_tensor_count(dx) == 0) return GD_OK;
    begin_gradient(call, 0);
    return move(call, dy, dx, dy, true, true, nullptr);
}

extern "C" gd_status scatter_add_forward_cuda(const gd_call *call)
{
    const gd_tensor *y = call->output[0];
    if (gd_tensor_count(y) > 0)
        gd_copy_cuda(gd_cuda_layout(y), gd_cuda_layout(call->input[0]), call->context);
    return move(call, call->input[1], y, call->input[2], true, true, fault_of(call));
}

extern "C" gd_status scatter_add_backward_cuda(const gd_call *call)
{
    const gd_tensor *dsrc = call->dinput[2];
    if (dsrc && gd_tensor_count(dsrc) > 0) {
        begin_gradient(call, 2);
        const gd_status status =
            move(call, call->input[1], dsrc, call->doutput[0], false, true, nullptr);
        if (status) return status;
    }
    return same_order_backward_cuda(call);
}

// ---- cumsum -------------------------------------------------------------------------------------

// A warp has a line, 32 elements of it at a time: their sums up to each by shuffles, and what came
// before on top. `reversed`: from the end.
template <class T>
static __global__ void cumsum_kernel(T *to, const T *from, axis_lines l, bool add, bool reversed)
{
    using C = gd_compute<T>;
    const int lane = threadIdx.x % 32;
    const int64_t n = l.n[TO];
    for (int64_t line = (int64_t)blockIdx.x * (threads / 32) + threadIdx.x / 32;
         line < l.walk.count; line += (int64_t)gridDim.x * (threads / 32)) {
        int64_t at[OPERANDS];
        l.walk.at(line, at);
        C before = 0;
        for (int64_t first = 0; first < n; first += 32) {
            const int64_t i = first + lane, k = reversed ? n - 1 - i : i;
            C sum = i < n ? (C)gd_load(from[at[FROM] + k * l.step[FROM]]) : (C)0;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const C earlier = __shfl_up_sync(0xffffffffu, sum, step);
                if (lane >= step) sum += earlier;
            }
            sum += before;
            before = __shfl_sync(0xffffffffu, sum, 31);
            if (i >= n) continue;
            T *out = to + at[TO] + k * l.step[TO];
            *out = gd_store<T>(add ? gd_load(*out) + sum : sum);
        }
    }
}

static gd_status sums(const gd_call *call, const gd_tensor *to, bool add, const gd_tensor *from,
                      bool reversed)
{
    if (gd_tensor_count(to) == 0) return GD_OK;
    const axis_lines l = lines_of(to, axis_of(call), {to, from, to});
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        return gd_launch(call, gd_grid_for(l.walk.count, threads / 32), cumsum_kernel<T>,
                         gd_ptr<T>(to), gd_ptr<const T>(from), l, add, reversed);
    });
}

extern "C" gd_status cumsum_forward_cuda(const gd_call *call)
{
    return sums(call, call->output[0], false, call->input[0], false);
}

extern "C" gd_status cumsum_backward_cuda(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    return sums(call, call->dinput[0], call->accumulate[0], call->doutput[0], true);
}

// ---- topk ---------------------------------------------------------------------------------------

// An element of a line; i < 0: none, which comes after all.
template <class C>
struct candidate {
    C value;
    int i;

    // The larger one (or the smaller), a NaN counting as larger than any number; of equal ones the
    // one with the lower index.
    __device__ bool before(const candidate &b, bool smallest) const
    {
        if (i < 0 || b.i < 0) return i >= 0;
        const bool nan = value != value, b_nan = b.value != b.value;
        if (value > b.value || (nan && !b_nan)) return !smallest;
        if (value < b.value || (b_nan && !nan)) return smallest;
        return i < b.i;
    }
};

// A warp has a line, and goes through it k times: each time for the first of those that come after
// the one before.
template <class T>
static __global__ void topk_kernel(int32_t *to, const T *x, axis_lines l, bool smallest)
{
    using C = gd_compute<T>;
    const int lane = threadIdx.x % 32;
    for (int64_t line = (int64_t)blockIdx.x * (threads / 32) + threadIdx.x / 32;
         line < l.walk.count; line += (int64_t)gridDim.x * (threads / 32)) {
        int64_t at[OPERANDS];
        l.walk.at(line, at);
        candidate<C> last = {0, -1};
        for (int64_t k = 0; k < l.n[TO]; k++) {
            candidate<C> best = {0, -1};
            for (int64_t i = lane; i < l.n[FROM]; i += 32) {
                const candidate<C> c = {(C)gd_load(x[at[FROM] + i * l.step[FROM]]), (int)i};
                if ((k == 0 || last.before(c, smallest)) && c.before(best, smallest)) best = c;
            }
#pragma unroll
            for (int step = 16; step > 0; step /= 2) {
                const candidate<C> other = {__shfl_xor_sync(0xffffffffu, best.value, step),
                                            __shfl_xor_sync(0xffffffffu, best.i, step)};
                if (other.before(best, smallest)) best = other;
            }
            last = best;
            if (lane == 0) to[at[TO] + k * l.step[TO]] = best.i;
        }
    }
}

extern "C" gd_status topk_forward_cuda(const gd_call *call)
{
    const gd_tensor *y = call->output[0], *x = call->input[0];
    if (gd_tensor_count(y) == 0) return GD_OK;
    const axis_lines l = lines_of(y, axis_of(call), {y, x, x});
    const bool smallest = ((const gd_axis_args *)call->args)->smallest;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        return gd_launch(call, gd_grid_for(l.walk.count, threads / 32), topk_kernel<T>,
                         gd_ptr<int32_t>(y), gd_ptr<const T>(x), l, smallest);
    });
}

// ---- sort ---------------------------------------------------------------------------------------

// A whole number for each element, of the same order; equal elements, as 0 and -0 are, have the same,
// and NaN the largest. `falling`: of the reverse order.
__device__ static uint64_t key_of(double x, bool falling)
{
    uint64_t key = (uint64_t)__double_as_longlong(x == 0 ? 0. : x);
    key = x != x ? ~0ull : key >> 63 ? ~key : key | 1ull << 63;
    return falling ? ~key : key;
}

__device__ static uint32_t key_of(float x, bool falling)
{
    uint32_t key = __float_as_uint(x == 0 ? 0.f : x);
    key = x != x ? ~0u : key >> 31 ? ~key : key | 1u << 31;
    return falling ? ~key : key;
}

// The lowest bit in which the keys of T differ: float's last bits are zeros in 16 bits.
template <class T>
constexpr int lowest_bit = 0;
template <>
constexpr int lowest_bit<__nv_bfloat16> = 16;
template <>
constexpr int lowest_bit<__half> = 13;

// One line for each block.
template <class T, class Sort>
static __global__ void __launch_bounds__(Sort::threads)
    sort_line_kernel(int32_t *to, const T *x, axis_lines l, bool falling)
{
    using K = typename Sort::key;
    __shared__ typename Sort::sort::TempStorage shared;
    const int first = (int)threadIdx.x * Sort::items, n = (int)l.n[FROM];
    for (int64_t line = blockIdx.x; line < l.walk.count; line += gridDim.x) {
        int64_t at[OPERANDS];
        l.walk.at(line, at);
        K key[Sort::items];
        uint16_t place[Sort::items];
#pragma unroll
        for (int k = 0; k < Sort::items; k++) {
            const int i = first + k;
            key[k] = i < n ? (K)key_of(gd_load(x[at[FROM] + i * l.step[FROM]]), falling) : ~(K)0;
            place[k] = (uint16_t)i;
        }
        typename Sort::sort(shared).SortBlockedToStriped(key, place, lowest_bit<T>, 8 * sizeof(K));
#pragma unroll
        for (int k = 0; k < Sort::items; k++) {
            const int i = k * Sort::threads + (int)threadIdx.x;
            if (i < n) to[at[TO] + i * l.step[TO]] = place[k];
        }
        __syncthreads();
    }
}

// Of longer lines elements are numbered line by line. Their ids for one sort are a word of the key, or the
// line.
template <class T>
static __global__ void key_kernel(gd_id_sort::sequence s, const T *x, axis_lines l, int64_t begin,
                                  int64_t count, int shift, bool falling, bool first)
{
    const int64_t n = l.n[FROM];
    GD_EACH(e, count)
    {
        const int64_t position = first ? e : s.position(e), line = position / n;
        const T value = x[l.place(FROM, begin + line, position - line * n)];
        s.set(e, (uint32_t)(key_of(gd_load(value), falling) >> shift), position);
    }
}

static __global__ void line_kernel(gd_id_sort::sequence s, int64_t count, int64_t n)
{
    GD_EACH(e, count) s.set(e, (uint32_t)(s.position(e) / n), s.position(e));
}

static __global__ void place_kernel(int32_t *to, gd_id_sort::sequence s, axis_lines l,
                                    int64_t begin, int64_t count)
{
    const int64_t n = l.n[TO];
    GD_EACH(e, count)
    {
        const int64_t line = e / n;
        to[l.place(TO, begin + line, e - line * n)] = (int32_t)(s.position(e) - line * n);
    }
}

// Many lines at once: by the key, its lowest word first, then by the line. Each sort keeps the order of
// equal ids.
template <class T>
static gd_status sort_lines(const gd_call *call, const axis_lines &l, bool falling)
{
    const int64_t n = l.n[FROM], most = gd_max64(1, (int64_t)INT32_MAX / n);
    const int64_t lines = gd_min64(l.walk.count, most);
    gd_id_sort::sorter s = gd_id_sort::sorter_for(call, lines * n);
    if (!s.workspace) return gd_error_status(call->context);
    for (int64_t begin = 0; begin < l.walk.count; begin += lines) {
        const int64_t own = gd_min64(lines, l.walk.count - begin), count = own * n;
        const gd_grid grid = gd_grid_for(count);
        for (int shift = 0; shift < 8 * (int)sizeof(gd_compute<T>); shift += 32) {
            gd_launch(call, grid, key_kernel<T>, s.ids, gd_ptr<const T>(call->input[0]), l, begin,
                      count, shift, falling, shift == 0);
            gd_id_sort::sort(call, s, count, lowest_bit<T>, 32);
        }
        if (own > 1) {
            gd_launch(call, grid, line_kernel, s.ids, count, n);
            gd_id_sort::sort(call, s, count, 0, gd_id_sort::bits_of((uint32_t)(own - 1)));
        }
        gd_launch(call, grid, place_kernel, gd_ptr<int32_t>(call->output[0]), s.ids, l, begin,
                  count);
    }
    return gd_error_status(call->context);
}

extern "C" gd_status sort_forward_cuda(const gd_call *call)
{
    const gd_tensor *y = call->output[0], *x = call->input[0];
    if (gd_tensor_count(y) == 0) return GD_OK;
    const axis_lines l = lines_of(y, axis_of(call), {y, x, x});
    const bool falling = !((const gd_axis_args *)call->args)->smallest;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        if (l.n[FROM] > most_in_block) return sort_lines<T>(call, l, falling);
        using K = decltype(key_of(gd_compute<T>(), falling));
        return by_line_sort<K, 16>(l.n[FROM], [&](auto sort) {
            using S = decltype(sort);
            return gd_launch(call, gd_grid_for(l.walk.count, 1, S::threads), sort_line_kernel<T, S>,
                             gd_ptr<int32_t>(y), gd_ptr<const T>(x), l, falling);
        });
    });
}

// ---- one_hot ------------------------------------------------------------------------------------

template <class T>
static __global__ void one_hot_kernel(T *y, const int32_t *ids, int64_t n, int64_t classes,
                                      int64_t *fault)
{
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
    if (gd_tensor_dtype(y) == GD_INT32) return run(int32_t());
    return gd_by_dtype(gd_tensor_dtype(y), run);
}
