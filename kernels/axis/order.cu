// order.cu - the CUDA kernels of topk, argmax and sort, which give the indices of elements.
#include <cub/warp/warp_merge_sort.cuh>

#include "axis/lines.cuh"
#include "embedding/runs.cuh"
#include "reduce/reduce.cuh"

// A whole number for each element, of the same order; equal elements, as 0 and -0 are, have the same,
// and NaN the largest. `falling`: of the reverse order.
template <class C>
using key = std::conditional_t<sizeof(C) == sizeof(double), uint64_t, uint32_t>;
template <class C>
__device__ static key<C> key_of(C x, bool falling)
{
    constexpr key<C> sign = (key<C>)1 << (8 * sizeof(C) - 1);
    key<C> bits;
    x = x == 0 ? 0 : x;
    memcpy(&bits, &x, sizeof bits);
    bits = x != x ? ~(key<C>)0 : bits & sign ? ~bits : bits | sign;
    return falling ? ~bits : bits;
}

// The lowest bit in which the keys of T differ: float's last bits are zeros in 16 bits.
template <class T>
constexpr int lowest_bit = std::is_same_v<T, __nv_bfloat16> ? 16
                           : std::is_same_v<T, __half>      ? 13
                                                            : 0;

// ---- argmax -------------------------------------------------------------------------------------

// The place of the largest term: of the first NaN, or of the first that is equal to it.
template <class V>
struct place_of_largest : gd_by_place {
    struct total {
        V value;
        int32_t i;
    };
    gd_itself term;

    __device__ total identity() const
    {
        return {-(V)INFINITY, INT32_MAX};
    }
    __device__ total combine(total a, total b) const
    {
        const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
        const bool same = a.value == b.value || (a_is_nan && b_is_nan);
        const bool later = same ? a.i < b.i : a_is_nan || b.value < a.value;
        return later ? a : b;
    }
    __device__ total combine(total a, V x, int64_t i) const
    {
        return combine(a, {x, (int32_t)i});
    }
    __device__ int32_t result(total first, int64_t) const
    {
        return first.i;
    }
};

// ---- topk ---------------------------------------------------------------------------------------

// Where an element comes in the order of its line: by its key, and equal ones by their index.
template <class K>
struct rank {
    K key;
    int i;

    __device__ bool before(const rank &b) const
    {
        return key < b.key || (key == b.key && i < b.i);
    }
};

constexpr int most_kept = 32;

// A warp has a line, of which it keeps the first k so far. Those that come before the last of them
// wait behind them, until they are 32 or more or the line ends, and are sorted with them.
template <class T>
static __global__ void topk_kernel(int32_t *to, const T *x, axis_lines l, bool falling)
{
    gd_in_turn();
    using R = rank<key<gd_compute<T>>>;
    using sort = cub::WarpMergeSort<R, 3, 32>;
    constexpr int warps = gd_threads / 32;
    constexpr R none = {~(decltype(R::key))0, INT32_MAX};
    __shared__ typename sort::TempStorage memory[warps];
    __shared__ R kept_of[warps][3 * 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = (int)l.n[TO];
    R *const kept = kept_of[warp];
    GD_EACH_WARP(number, l.walk.count)
    {
        const axis_line line(l, number);
        R last = none;
        kept[lane] = none;
        int count = most_kept;
        for (int64_t first = 0; first < l.n[FROM]; first += 32) {
            const int64_t i = first + lane;
            R own = none;
            if (i < l.n[FROM]) own = {key_of(gd_load(x[line.at(FROM, i)]), falling), (int)i};
            const unsigned those = __ballot_sync(0xffffffffu, own.before(last));
            if (own.before(last)) kept[count + __popc(those & ((1u << lane) - 1))] = own;
            count += __popc(those);
            __syncwarp();
            if (count < 2 * most_kept && first + 32 < l.n[FROM]) continue;
            R three[3];
            for (int t = 0; t < 3; t++) three[t] = 3 * lane + t < count ? kept[3 * lane + t] : none;
            sort(memory[warp]).Sort(three, [](const R &a, const R &b) { return a.before(b); });
            for (int t = 0; t < 3; t++) kept[3 * lane + t] = three[t];
            count = most_kept;
            __syncwarp();
            last = kept[k - 1];
        }
        if (lane < k) to[line.at(TO, lane)] = kept[lane].i;
        __syncwarp();
    }
}

// ---- sort ---------------------------------------------------------------------------------------

// One line for each block.
template <class T, class Sort>
static __global__ void __launch_bounds__(Sort::threads)
    sort_line_kernel(int32_t *to, const T *x, axis_lines l, bool falling)
{
    gd_in_turn();
    using K = key<gd_compute<T>>;
    __shared__ typename Sort::sort::TempStorage shared;
    const int n = (int)l.n[FROM];
    for (int64_t number = blockIdx.x; number < l.walk.count; number += gridDim.x) {
        const axis_line line(l, number);
        typename Sort::keys key;
        typename Sort::indices index;
        const auto key_of_i = [&](int i) { return key_of(gd_load(x[line.at(FROM, i)]), falling); };
        Sort::load(key, index, n, key_of_i, ~(K)0);
        typename Sort::sort(shared).SortBlockedToStriped(key, index, lowest_bit<T>, 8 * sizeof(K));
#pragma unroll
        for (int k = 0; k < Sort::items; k++) {
            const int i = k * Sort::threads + (int)threadIdx.x;
            if (i < l.n[TO]) to[line.at(TO, i)] = index[k];
        }
        __syncthreads();
    }
}

// Elements of longer lines are numbered line by line. Their ids are one word of the key for each sort,
// and the line for the last one.
template <class T>
static __global__ void id_kernel(gd_id_sort::sequence s, const T *x, axis_lines l, int64_t begin,
                                 int64_t count, int word, bool falling)
{
    gd_in_turn();
    using C = gd_compute<T>;
    const int64_t n = l.n[FROM];
    GD_EACH(e, count)
    {
        const int64_t position = word == 0 ? e : s.position(e), number = position / n;
        uint32_t id = (uint32_t)number;
        if (word < (int)sizeof(C) / 4) {
            const axis_line line(l, begin + number);
            const C value = gd_load(x[line.at(FROM, position - number * n)]);
            id = (uint32_t)(key_of(value, falling) >> 32 * word);
        }
        s.set(e, id, position);
    }
}

static __global__ void index_kernel(int32_t *to, gd_id_sort::sequence s, axis_lines l,
                                    int64_t begin, int64_t count)
{
    gd_in_turn();
    const int64_t n = l.n[FROM];
    GD_EACH(e, count)
    {
        const int64_t number = e / n, i = e - number * n;
        const axis_line line(l, begin + number);
        if (i < l.n[TO]) to[line.at(TO, i)] = (int32_t)(s.position(e) - number * n);
    }
}

constexpr int64_t most_sorted = 1 << 26; // at once, 16 bytes each, unless a line has more

// Many lines at once: by the key, its lowest word first, then by the line. Each sort keeps the order of
// equal ids.
template <class T>
static gd_status sort_lines(const gd_call *call, const axis_lines &l, bool falling)
{
    const int64_t n = l.n[FROM], most = gd_max64(1, most_sorted / n);
    const int64_t lines = gd_min64(l.walk.count, most);
    constexpr int words = sizeof(gd_compute<T>) / 4;
    gd_id_sort::sorter s = gd_id_sort::sorter_for(call, lines * n);
    if (!s.workspace) return gd_error_status(call->context);
    for (int64_t begin = 0; begin < l.walk.count; begin += lines) {
        const int64_t own = gd_min64(lines, l.walk.count - begin), count = own * n;
        const gd_grid grid = gd_grid_for(count);
        for (int word = 0; word < words + (own > 1); word++) {
            gd_launch(call, grid, id_kernel<T>, s.ids, gd_ptr<const T>(call->input[0]), l, begin,
                      count, word, falling);
            if (word < words)
                gd_id_sort::sort(call, s, count, lowest_bit<T>, 32);
            else
                gd_id_sort::sort(call, s, count, 0, gd_id_sort::bits_of((uint32_t)(own - 1)));
        }
        gd_launch(call, grid, index_kernel, gd_ptr<int32_t>(call->output[0]), s.ids, l, begin,
                  count);
    }
    return gd_error_status(call->context);
}

// ---- The ops ------------------------------------------------------------------------------------

template <class T>
static gd_status order(const gd_call *call)
{
    const gd_tensor *y = call->output[0], *x = call->input[0];
    if (gd_tensor_count(y) == 0) return GD_OK;
    const axis_lines l = lines_of(call, y, {y, x, x});
    const bool falling = !((const gd_axis_args *)call->args)->smallest;
    int32_t *const to = gd_ptr<int32_t>(y);
    const gd_layout in[] = {gd_cuda_layout(x)};
    if (l.n[TO] == 1 && falling)
        return gd_cuda_reduce<T>(call, to, false, gd_cuda_layout(y), x, in,
                                 place_of_largest<gd_compute<T>>());
    const T *const from = gd_ptr<const T>(x);
    if (l.n[TO] <= most_kept)
        return gd_launch(call, gd_grid_of_warps(l.walk.count), topk_kernel<T>, to, from, l,
                         falling);
    const auto by = [&](auto sort) {
        using S = decltype(sort);
        return gd_launch(call, gd_grid_for(l.walk.count, 1, S::threads), sort_line_kernel<T, S>, to,
                         from, l, falling);
    };
    using K = key<gd_compute<T>>;
    if (l.n[FROM] <= 256) return by(line_sort<K, 32, 8>());
    if (l.n[FROM] <= 1024) return by(line_sort<K, 64, 16>());
    if (l.n[FROM] <= 4096) return by(line_sort<K, 256, 16>());
    return sort_lines<T>(call, l, falling);
}

GD_CUDA_KERNEL_OF_T(topk_forward, order<T>(call))
GD_CUDA_KERNEL_OF_T(sort_forward, order<T>(call))
