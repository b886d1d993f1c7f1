// axis.cu - the CUDA kernels of the ops along one axis: gather, scatter_add, cumsum, topk, sort. Every
// number has one writer, and every sum an order that the sizes decide.
#include "axis/axis.h"
#include "cuda.cuh"
#include "cuda/device_cuda.h"
#include "embedding/sort.cuh"

extern "C" gd_status same_order_backward_cuda(const gd_call *call); // kernels/shape: dx = dy

enum { TO, FROM, INDEX, OPERANDS };
constexpr int threads = 256;

// The lines of several tensors, side by side: the walk says where they begin.
struct axis_lines {
    gd_cuda_walk<OPERANDS> walk;
    int64_t n[OPERANDS], step[OPERANDS]; // of a line of each operand
    int64_t inner;                       // lines that begin in neighbouring places, of `like`
};

// As many lines as `like` has. The operands may be larger: their first lines are taken.
static axis_lines lines_of(const gd_tensor *like, int axis, const gd_tensor *const (&t)[OPERANDS])
{
    int64_t shape[GD_MAX_DIMS];
    axis_lines l = {};
    l.inner = 1;
    for (int d = 0; d < gd_tensor_ndim(like); d++) {
        shape[d] = d == axis ? 1 : gd_tensor_shape(like)[d];
        if (d > axis) l.inner *= shape[d];
    }
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

// ---- gather and scatter_add ---------------------------------------------------------------------

// to[i] (+)= from[index[i]]; a thread has one element of index.
template <class T>
static __global__ void take_kernel(T *to, const T *from, const int32_t *index, axis_lines l,
                                   bool add, int64_t *fault)
{
    const int64_t m = l.n[INDEX];
    GD_EACH(e, l.walk.count * m)
    {
        const int64_t line = e / m, i = e - line * m;
        int64_t at[OPERANDS];
        l.walk.at(line, at);
        const int64_t k = index[at[INDEX] + i * l.step[INDEX]];
        const bool good = k >= 0 && k < l.n[FROM];
        if (!good && fault) *fault = 1 + (line / l.inner * m + i) * l.inner + line % l.inner;
        T *out = to + at[TO] + i * l.step[TO];
        const gd_compute<T> value = good ? gd_load(from[at[FROM] + k * l.step[FROM]]) : 0;
        *out = gd_store<T>(add ? gd_load(*out) + value : value); /* [scatter_add] */
    }
}

// to[index[i]] += from[i], in the order of i. A thread has one element of `to` and looks for its
// index: neighbours read the same one.
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
            const int64_t t = index[at[INDEX] + i * l.step[INDEX]];
            if (k == 0 && fault && (t < 0 || t >= n))
                *fault = 1 + (line / l.inner * m + i) * l.inner + line % l.inner;
            if (t != k) continue;
            sum += gd_load(from[at[FROM] + i * l.step[FROM]]); /* [gather] */
            any = true;
        }
        T *out = to + at[TO] + k * l.step[TO];
        if (any) *out = gd_store<T>(gd_load(*out) + sum);
    }
}

// The same where no two indices are equal: a thread has one element of index.
template <class T>
static __global__ void put_distinct_kernel(T *to, const T *from, const int32_t *index, axis_lines l)
{
    const int64_t m = l.n[INDEX];
    GD_EACH(e, l.walk.count * m)
    {
        const int64_t line = e / m, i = e - line * m;
        int64_t at[OPERANDS];
        l.walk.at(line, at);
        const int64_t k = index[at[INDEX] + i * l.step[INDEX]];
        if (k < 0 || k >= l.n[TO]) continue;
        T *out = to + at[TO] + k * l.step[TO];
        *out = gd_store<T>(gd_load(*out) + gd_load(from[at[FROM] + i * l.step[FROM]]));
    }
}

static gd_status take(const gd_call *call, const gd_tensor *to, bool add, const gd_tensor *from,
                      int64_t *fault)
{
    const gd_tensor *index = call->input[1];
    const axis_lines l = lines_of(index, axis_of(call), {to, from, index});
    const int64_t count = gd_tensor_count(index);
    if (count == 0) return GD_OK;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        take_kernel<<<gd_blocks(count, threads), threads, 0, gd_stream(call)>>>(
            gd_ptr<T>(to), gd_ptr<const T>(from), gd_ptr<const int32_t>(index), l, add, fault);
        return gd_launched(call);
    });
}

static gd_status put(const gd_call *call, const gd_tensor *to, const gd_tensor *from,
                     int64_t *fault)
{
    const gd_tensor *index = call->input[1];
    const axis_lines l = lines_of(index, axis_of(call), {to, from, index});
    const bool distinct = ((const gd_axis_args *)call->args)->distinct;
    const int64_t count = l.walk.count * l.n[distinct ? INDEX : TO];
    if (count == 0 || gd_tensor_count(index) == 0) return GD_OK;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        if (distinct) {
            put_distinct_kernel<<<gd_blocks(count, threads), threads, 0, gd_stream(call)>>>(
                gd_ptr<T>(to), gd_ptr<const T>(from), gd_ptr<const int32_t>(index), l);
            return gd_launched(call);
        }
        put_kernel<<<gd_blocks(count, threads), threads, 0, gd_stream(call)>>>(
            gd_ptr<T>(to), gd_ptr<const T>(from), gd_ptr<const int32_t>(index), l, fault);
        return gd_launched(call);
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
    return take(call, call->output[0], false, call->input[0], fault_of(call));
}

extern "C" gd_status gather_backward_cuda(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0];
    if (!dx || gd_tensor_count(dx) == 0) return GD_OK;
    begin_gradient(call, 0);
    return put(call, dx, call->doutput[0], nullptr);
}

extern "C" gd_status scatter_add_forward_cuda(const gd_call *call)
{
    const gd_tensor *y = call->output[0];
    if (gd_tensor_count(y) > 0)
        gd_copy_cuda(gd_cuda_layout(y), gd_cuda_layout(call->input[0]), call->context);
    return put(call, y, call->input[2], fault_of(call));
}

extern "C" gd_status scatter_add_backward_cuda(const gd_call *call)
{
    const gd_tensor *dsrc = call->dinput[2];
    if (dsrc && gd_tensor_count(dsrc) > 0) {
        begin_gradient(call, 2);
        const gd_status status = take(call, dsrc, true, call->doutput[0], nullptr);
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
        cumsum_kernel<<<gd_blocks(l.walk.count, threads / 32), threads, 0, gd_stream(call)>>>(
            gd_ptr<T>(to), gd_ptr<const T>(from), l, add, reversed);
        return gd_launched(call);
    });
}

extern "C" gd_status cumsum_forward_cuda(const gd_call *call)
{
    return sums(call, call->output[0], false, call->input[0], false);
}

extern "C" gd_status cumsum_backward_cuda(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    /* [cumsum] */
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
        topk_kernel<<<gd_blocks(l.walk.count, threads / 32), threads, 0, gd_stream(call)>>>(
            gd_ptr<int32_t>(y), gd_ptr<const T>(x), l, smallest);
        return gd_launched(call);
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

__device__ static uint64_t key_of(float x, bool falling)
{
    uint32_t key = __float_as_uint(x == 0 ? 0.f : x);
    key = x != x ? ~0u : key >> 31 ? ~key : key | 1u << 31;
    return falling ? (uint32_t)~key : key;
}

// Elements are numbered line by line. Their ids for one sort are a word of the key, or the line.
template <class T>
static __global__ void key_kernel(gd_id_sort::sequence s, const T *x, axis_lines l, int shift,
                                  bool falling, bool first)
{
    const int64_t n = l.n[FROM];
    GD_EACH(e, l.walk.count * n)
    {
        const int64_t position = first ? e : s.position[e], line = position / n;
        int64_t at[OPERANDS];
        l.walk.at(line, at);
        const T value = x[at[FROM] + (position - line * n) * l.step[FROM]];
        s.id[e] = (uint32_t)(key_of(gd_load(value), falling) >> shift);
        if (first) s.position[e] = position;
    }
}

static __global__ void line_kernel(gd_id_sort::sequence s, int64_t count, int64_t n)
{
    GD_EACH(e, count) s.id[e] = (uint32_t)(s.position[e] / n);
}

static __global__ void place_kernel(int32_t *to, gd_id_sort::sequence s, axis_lines l)
{
    const int64_t n = l.n[TO];
    GD_EACH(e, l.walk.count * n)
    {
        const int64_t line = e / n;
        int64_t at[OPERANDS];
        l.walk.at(line, at);
        to[at[TO] + (e - line * n) * l.step[TO]] = (int32_t)(s.position[e] - line * n);
    }
}

// All lines at once: by the key, its lowest word first, then by the line. Each sort keeps the order of
// equal ids.
template <class T>
static gd_status sort_lines(const gd_call *call, const axis_lines &l, int64_t count)
{
    const size_t N = (size_t)count, places = gd_id_sort::most_tiles * gd_id_sort::bytes;
    gd_id_sort::sequence s = {(uint32_t *)gd_call_scratch(call, N * sizeof(uint32_t)),
                              (int64_t *)gd_call_scratch(call, N * sizeof(int64_t))};
    gd_id_sort::sequence other = {(uint32_t *)gd_call_scratch(call, N * sizeof(uint32_t)),
                                  (int64_t *)gd_call_scratch(call, N * sizeof(int64_t))};
    int64_t *counts = (int64_t *)gd_call_scratch(call, places * sizeof(int64_t));
    if (!s.id || !s.position || !other.id || !other.position || !counts)
        return gd_error_status(call->context);
    const bool falling = !((const gd_axis_args *)call->args)->smallest;
    const unsigned blocks = gd_blocks(count, threads);
    const auto sort_by_id = [&](uint32_t largest) {
        const gd_id_sort::sequence a = s;
        s = gd_id_sort::sort(call, a, other, counts, count, largest);
        if (s.id == other.id) other = a;
    };
    for (int shift = 0; shift < 8 * (int)sizeof(gd_compute<T>); shift += 32) {
        key_kernel<<<blocks, threads, 0, gd_stream(call)>>>(s, gd_ptr<const T>(call->input[0]), l,
                                                            shift, falling, shift == 0);
        sort_by_id(UINT32_MAX);
    }
    if (l.walk.count > 1) {
        line_kernel<<<blocks, threads, 0, gd_stream(call)>>>(s, count, l.n[FROM]);
        sort_by_id((uint32_t)(l.walk.count - 1));
    }
    place_kernel<<<blocks, threads, 0, gd_stream(call)>>>(gd_ptr<int32_t>(call->output[0]), s, l);
    return gd_launched(call);
}

extern "C" gd_status sort_forward_cuda(const gd_call *call)
{
    const gd_tensor *y = call->output[0], *x = call->input[0];
    const int64_t count = gd_tensor_count(y);
    if (count == 0) return GD_OK;
    const axis_lines l = lines_of(y, axis_of(call), {y, x, x});
    return gd_by_kernel_dtype(
        call, [&](auto zero) { return sort_lines<decltype(zero)>(call, l, count); });
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
        one_hot_kernel<<<gd_blocks(n, threads), threads, 0, gd_stream(call)>>>(
            gd_ptr<T>(y), gd_ptr<const int32_t>(ids), n, classes, fault);
        return gd_launched(call);
    };
    if (gd_tensor_dtype(y) == GD_INT32) return run(int32_t());
    return gd_by_dtype(gd_tensor_dtype(y), run);
}
