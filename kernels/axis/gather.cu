// gather.cu - the CUDA kernels of gather, scatter_add and one_hot. Every number has one writer, and
// every sum an order that the sizes decide.
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
    // to[k] (+)= sum
    __device__ void put(const axis_line &line, int64_t k, gd_compute<T> sum) const
    {
        T *const out = to + line.at(TO, k);
        *out = gd_store<T>(add ? gd_load(*out) + sum : sum);
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

// A thread has a pack of a line of the index; or, V = 1, neighbours have neighbouring lines.
template <class T, int V>
static __global__ void take_kernel(axis_move<T> w)
{
    gd_in_turn();
    const int64_t x = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, m = w.l.n[INDEX];
    for (int64_t y = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
         y < (V > 1 ? w.l.walk.count : m); y += (int64_t)gridDim.y * blockDim.y) {
        const int64_t i = V > 1 ? x * V : y, number = V > 1 ? y : x;
        if (number >= w.l.walk.count) break;
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
    const int64_t m = w.l.n[INDEX], lines = w.l.walk.count;
    const int64_t threads = packs ? gd_packs(m, V) : lines;
    const unsigned x = (unsigned)gd_min64(threads, 512), y = x ? 512 / x : 1;
    const gd_grid grid = {{(unsigned)gd_ceil_div(threads, 512),
                           (unsigned)gd_min64(gd_ceil_div(packs ? lines : m, y), 65535)},
                          {x, y}};
    return gd_launch(call, grid, packs ? take_kernel<T, V> : take_kernel<T, 1>, w);
}

// ---- to[index[i]] += from[i] --------------------------------------------------------------------

constexpr unsigned all_lanes = 0xffffffffu;

// A line of `to` has parts of 2^shift elements, a line of the index chunks of `size`. A part of a
// line is a unit: its block has `adders`, warps with sums of their own, `pitch` apart. Where there
// are many parts, each chunk is sorted by part before, and has in `start` where each begins.
template <class C>
struct line_parts {
    int64_t parts, chunks, size;
    int shift, adders, pitch;
    uint16_t *start; // [lines, chunks, parts]; NULL: chunks are as they were
    // Units with more than `most` elements of the index are only listed. Then each is divided among
    // `blocks`, which have some chunks each; the last of them that is done adds up the sums of all.
    int64_t most, blocks;
    unsigned *listed, *unit, *done; // how many, which, of how many blocks; or NULL
    C *sums;                        // [units listed, blocks, pitch]
};

using chunk_sort = line_sort<uint32_t, 512, 8>;

// A block sorts a chunk, in which the order within a part remains: index and from, [lines, m], are
// for put_kernel. What points to nothing, an error, goes to the last element.
template <class T>
static __global__ void GD_LAUNCH_BOUNDS(chunk_sort::threads, 2)
    divide_kernel(axis_move<T> w, line_parts<gd_compute<T>> p, int32_t *index, T *from)
{
    gd_in_turn();
    if (p.listed && blockIdx.x + threadIdx.x == 0) *p.listed = 0;
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

// The sum of the values of the lanes in `same`, in order.
template <class C>
__device__ inline C sum_of_same(C value, unsigned same)
{
    C sum = 0;
    for (; __any_sync(all_lanes, same != 0); same &= same - 1) {
        const C next = __shfl_sync(all_lanes, value, __ffs((int)same) - 1);
        if (same) sum += next;
    }
    return sum;
}

// Adds the values of a warp to sum[k], first those of one k. Such lanes learn of each other as
// sum[k] keeps the number of one of them; any will do.
template <class C>
__device__ inline void add_of_warp(C *sum, uint32_t k, bool any, C value)
{
    const unsigned lane = threadIdx.x % 32;
    const C old = any ? sum[k] : 0;
    __syncwarp();
    if (any) atomicExch((unsigned *)&sum[k], lane);
    __syncwarp();
    const bool other = any && *(volatile unsigned *)&sum[k] != lane;
    unsigned rest = __ballot_sync(all_lanes, other), same = 1u << lane;
    if (rest) {
        while (rest) {
            const bool own = __shfl_sync(all_lanes, k, __ffs((int)rest) - 1) == k && any;
            const unsigned group = __ballot_sync(all_lanes, own);
            if (own) same = group;
            rest &= ~group;
        }
        value = sum_of_same(value, same);
    }
    __syncwarp();
    if (any && !other) sum[k] = old + value;
    __syncwarp();
}

// A warp has lines of at most 32 elements of the index in all, and adds where they point.
template <class T>
static __global__ void put_few_kernel(axis_move<T> w)
{
    gd_in_turn();
    const int lane = threadIdx.x % 32, m = (int)w.l.n[INDEX], lines = 32 / m, i = lane % m;
    GD_EACH_WARP(group, gd_ceil_div(w.l.walk.count, lines))
    {
        const int64_t number = group * lines + lane / m;
        const bool there = lane < lines * m && number < w.l.walk.count;
        const axis_line line(w.l, there ? number : 0);
        const uint32_t k = there ? w.checked(w.index[line.at(INDEX, i)], line, i) : w.bad;
        const bool good = k != w.bad;
        const int64_t place = good ? line.at(TO, k) : -1 - lane;
        const unsigned same = __match_any_sync(all_lanes, (unsigned long long)place);
        const auto sum = sum_of_same(good ? gd_load(w.from[line.at(FROM, i)]) : 0, same);
        if (good && __ffs((int)same) - 1 == lane) w.put(line, k, sum);
    }
}

// A block has a unit, or some chunks of one. Its adders share the chunks, in order, and add up in
// shared memory; then their sums are added, in order, and those of several blocks by the last.
template <class T>
static __global__ void GD_LAUNCH_BOUNDS(gd_threads, 5)
    put_kernel(axis_move<T> w, line_parts<gd_compute<T>> p)
{
    gd_in_turn();
    using C = gd_compute<T>;
    constexpr int ahead = 4;
    extern __shared__ uint4 memory[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    C *const sums = (C *)memory, *const sum = sums + warp * p.pitch;
    const bool whole = p.blocks == 1; // a block has a unit
    const int64_t m = w.l.n[INDEX], units = whole ? w.l.walk.count * p.parts : *p.listed;
    const int64_t some = gd_ceil_div(p.chunks, p.blocks * p.adders); // chunks of an adder
    for (int64_t b = blockIdx.x; b < units * p.blocks; b += gridDim.x) {
        const int64_t own = b / p.blocks, unit = whole ? own : p.unit[own];
        const int64_t number = unit / p.parts, part = unit - number * p.parts,
                      first = part << p.shift;
        const int width = (int)min(w.l.n[TO] - first, (int64_t)1 << p.shift);
        axis_line line(w.l, number);
        if (p.start) line.begin[FROM] = line.begin[INDEX] = number * m;
        const int64_t begin = ((b - own * p.blocks) * p.adders + warp) * some;
        const int64_t end = warp < p.adders ? min(begin + some, p.chunks) : 0;
        // The elements [from, to) of a chunk are of this part.
        const auto range = [&](int64_t chunk, int &from, int &to) {
            from = 0, to = chunk < end ? (int)min(m - chunk * p.size, p.size) : 0;
            if (!p.start || chunk >= end) return;
            const uint16_t *at = p.start + (number * p.chunks + chunk) * p.parts + part;
            from = at[0];
            if (part + 1 < p.parts) to = at[1];
        };
        int from, to;
        int64_t count = 0;
        for (int64_t chunk = begin + lane; p.listed && whole && chunk < end; chunk += 32) {
            range(chunk, from, to);
            count += to - from;
        }
        if (p.listed && whole && gd_sum(count, (int64_t *)memory) > p.most) {
            if (threadIdx.x > 0) continue;
            const unsigned at = atomicAdd(p.listed, 1u);
            p.unit[at] = (unsigned)unit, p.done[at] = 0;
            continue;
        }
        for (int i = (int)threadIdx.x; i < p.adders * p.pitch * (int)sizeof(C) / 16;
             i += (int)blockDim.x)
            memory[i] = uint4();
        __syncthreads();
        for (int64_t chunk = begin; chunk < end; chunk += 32) {
            range(chunk + lane, from, to);
            const int up_to = gd_sum_up_to(to - from), total = __shfl_sync(all_lanes, up_to, 31);
            const int64_t offset = (chunk + lane) * p.size + to - up_to;
            for (int at = lane; at - lane < total; at += 32 * ahead) {
                int32_t index[ahead];
                T value[ahead];
#pragma unroll
                for (int a = 0; a < ahead; a++) {
                    int owner = 0; // lane of the chunk
                    for (int step = p.start ? 16 : 0; step > 0; step /= 2)
                        owner += __shfl_sync(all_lanes, up_to, owner + step - 1) <= at + 32 * a
                                     ? step
                                     : 0;
                    const int64_t i = __shfl_sync(all_lanes, offset, owner) + at + 32 * a;
                    index[a] = at + 32 * a < total ? w.index[line.at(INDEX, i)] : -1;
                    value[a] = at + 32 * a < total ? w.from[line.at(FROM, i)] : T(0.0f);
                }
#pragma unroll
                for (int a = 0; a < ahead; a++) {
                    if (at + 32 * a - lane >= total) break;
                    const uint32_t k = at + 32 * a < total
                                           ? w.checked(index[a], line, chunk * p.size + at + 32 * a)
                                           : w.bad;
                    add_of_warp(sum, k - (uint32_t)first, k - (uint32_t)first < (uint32_t)width,
                                (C)gd_load(value[a]));
                }
            }
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x) {
            C total = sums[i];
            for (int other = 1; other < p.adders; other++) total += sums[other * p.pitch + i];
            if (whole)
                w.put(line, first + i, total);
            else
                p.sums[b * p.pitch + i] = total;
        }
        __syncthreads();
        if (whole) continue;
        __threadfence();
        const bool last = threadIdx.x == 0 && atomicAdd(&p.done[own], 1u) == p.blocks - 1;
        if (!__syncthreads_or(last)) continue;
        for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x) {
            gd_long_sum<C> total;
#pragma unroll 8
            for (int64_t s = own * p.blocks; s < (own + 1) * p.blocks; s++)
                total.add(__ldcg(&p.sums[s * p.pitch + i]));
            w.put(line, first + i, total.value());
        }
    }
}

// Parts are as wide as shared memory allows if each can read the whole index; else smaller.
template <class T>
static gd_status put_lines(const gd_call *call, axis_move<T> w)
{
    using C = gd_compute<T>;
    constexpr int64_t size = sizeof(C), most_shared = 48 * 1024, most_wide = 32768 / size;
    const int64_t n = w.l.n[TO], m = w.l.n[INDEX], lines = w.l.walk.count, count = lines * m;
    const int64_t wide = gd_ceil_div(n, most_wide);
    const bool divide = wide > 1 && wide * m > 2 * (n + m);
    const int64_t parts = divide ? gd_max64(wide, gd_min64(1024, m / 1024)) : wide;
    line_parts<C> p = {};
    while ((n - 1) >> p.shift >= parts) p.shift++;
    p.parts = ((n - 1) >> p.shift) + 1;
    p.size = divide ? chunk_sort::most : 1024;
    p.chunks = gd_ceil_div(m, p.size);
    p.pitch = (int)(gd_packs(gd_min64(n, (int64_t)1 << p.shift), 4) * 4);
    const int64_t units = lines * p.parts,
                  adders = gd_min64(8192 / units, most_shared / size / p.pitch);
    p.adders = (int)gd_max64(1, gd_min64(adders, gd_min64(8, p.chunks)));
    p.most = divide ? 16 * gd_max64(1024, m / p.parts) : 0;
    const int64_t listed = divide ? gd_min64(units, count / p.most) : units;
    const int64_t blocks = gd_min64(gd_ceil_div(p.chunks, p.adders), divide ? 32 : 512 / units);
    if (blocks > 1 && listed > 0) {
        p.listed = (unsigned *)gd_call_scratch(call, (size_t)(1 + 2 * listed) * sizeof *p.listed);
        p.sums = (C *)gd_call_scratch(call, (size_t)(listed * blocks * p.pitch * size));
        if (!p.listed || !p.sums) return gd_error_status(call->context);
        p.unit = p.listed + 1, p.done = p.unit + listed;
        if (!divide) gd_fill_cuda(p.listed, GD_INT32, 0, 1, call->context);
    }
    if (divide) {
        int32_t *index = (int32_t *)gd_call_scratch(call, (size_t)count * sizeof *index);
        T *from = (T *)gd_call_scratch(call, (size_t)count * sizeof *from);
        p.start = (uint16_t *)gd_call_scratch(call, (size_t)(units * p.chunks) * sizeof *p.start);
        if (!index || !from || !p.start) return gd_error_status(call->context);
        const gd_grid grid = gd_grid_for(lines * p.chunks, 1, chunk_sort::threads);
        gd_launch(call, grid, divide_kernel<T>, w, p, index, from);
        w.index = index, w.from = from, w.fault = nullptr;
        w.l.step[INDEX] = w.l.step[FROM] = 1;
    }
    const int64_t warps = gd_max64(p.adders, gd_min64(8, p.pitch / 1024));
    gd_grid grid = gd_grid_for(units, 1, (unsigned)(32 * warps));
    grid.shared = (size_t)(p.adders * p.pitch * size);
    p.blocks = 1;
    gd_launch(call, grid, put_kernel<T>, w, p);
    if (!p.listed) return gd_error_status(call->context);
    p.blocks = blocks;
    grid.blocks = gd_grid_for(gd_min64(listed * blocks, 1024), 1).blocks;
    return gd_launch(call, grid, put_kernel<T>, w, p);
}

// The index has the shape of `like`, or is one line, which all lines share: of rows, as in an
// embedding, if lines are neighbours.
template <class T>
static gd_status put(const gd_call *call, const gd_tensor *like, const gd_tensor *to,
                     const gd_tensor *from, bool backward)
{
    if (!to || gd_tensor_count(to) == 0) return GD_OK;
    axis_move<T> w = move_of<T>(call, like, to, from, TO, backward);
    const int64_t n = w.l.n[TO], m = w.l.n[INDEX], lines = w.l.walk.count, columns = w.l.step[FROM];
    const bool few = m <= 32 && (n <= 32 || n >= 64 * m);
    const bool rows = ((const gd_axis_args *)call->args)->shared && columns >= 8 &&
                      lines < 65536 * columns && gd_tensor_is_contiguous(from);
    const bool begin =
        backward && (few || rows || lines * n < gd_tensor_count(to) || lines * m == 0);
    if (begin) gd_begin_gradient(call, 0);
    if (lines * m == 0) return gd_error_status(call->context);
    w.add = !backward || begin || call->accumulate[0];
    if (few)
        return gd_launch(call, gd_grid_of_warps(gd_ceil_div(lines, 32 / m)), put_few_kernel<T>, w);
    if (!rows) return put_lines(call, w);
    gd_id_sort::sorter s = gd_id_sort::sorter_for(call, m);
    gd_id_sort::table_rows<T, T> r = {w.to, w.from, w.index, columns, 0, true, w.bad};
    r.dtable_step = n * columns, r.dy_step = m * columns;
    return gd_id_sort::sum_by_id(call, r, s, m, columns, lines / columns);
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
