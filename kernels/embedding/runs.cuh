// runs.cuh - sums of rows that are sorted by id: one over each run of equal ids, in the order of
// the rows. Runs are of very different lengths (a comma, a rare word), so blocks do not take runs
// but chunks of equal length. A run inside one chunk is finished there. For one that continues in
// the next chunk, each chunk stores its part, and a second kernel adds the parts in order.
#ifndef GD_EMBEDDING_RUNS_CUH
#define GD_EMBEDDING_RUNS_CUH

#include "embedding/sort.cuh"
#include "kernel.h"
#include "pack.cuh"

namespace gd_id_sort
{

constexpr int chunk_rows = 32, sum_threads = 128;

// Rows of dy, from `begin` on, and the table whose rows their ids name; V neighbouring columns at a
// time. bad: larger than all ids, of rows that are left out.
template <class G, class Type>
struct table_rows {
    using T = Type;
    using C = gd_compute<T>;
    static constexpr int V = gd_pack_size<T>;
    G *dtable;
    const T *dy;
    const int32_t *ids;
    int64_t columns, begin;
    bool add;
    uint32_t bad;
    int64_t *fault = nullptr;
    int64_t dtable_step = 0, dy_step = 0; // to those of the next z, of tables with the same ids

    __device__ uint32_t id(int64_t row) const
    {
        const uint32_t id = (uint32_t)ids[begin + row];
        if (id >= bad && fault) *fault = 1 + begin + row;
        return id < bad ? id : bad;
    }

    __device__ void load(T (&value)[V], int64_t position, int64_t first) const
    {
        const T *row = dy + blockIdx.z * dy_step + (begin + position) * columns;
        gd_load_guarded(value, row, first, columns);
    }

    // dtable[id, first ...] (+)= sum
    __device__ void finish(uint32_t id, const C (&sum)[V], int64_t first) const
    {
        G *row = dtable + blockIdx.z * dtable_step + id * columns, value[V];
        if (add) gd_load_guarded(value, row, first, columns);
#pragma unroll
        for (int v = 0; v < V; v++)
            value[v] = gd_store<G>(add ? gd_load(value[v]) + sum[v] : sum[v]);
        gd_store_guarded(row, value, first, columns);
    }
};

template <class Rows>
static __global__ void id_kernel(sequence s, Rows rows, int64_t count)
{
    gd_in_turn();
    GD_EACH(row, count)
    s.set(row, rows.id(row), row);
}

// The parts of a chunk: its first run may have begun in the chunk before, its last one may continue
// in the next.
template <class C>
__device__ inline C *part_of(C *parts, int64_t chunk, bool from_begin, int64_t columns)
{
    chunk += (int64_t)blockIdx.z * gridDim.x * blockDim.y;
    return parts + (2 * chunk + !from_begin) * columns;
}

// Where columns are few, a block has several chunks.
__device__ inline int64_t chunk_of_thread()
{
    return (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
}

template <class Rows>
static __global__ void sum_kernel(Rows rows, typename Rows::C *parts, sequence s, int64_t count,
                                  int64_t columns)
{
    gd_in_turn();
    constexpr int V = Rows::V, ahead = 4;
    const int64_t chunk = chunk_of_thread(), begin = chunk * chunk_rows;
    const int64_t end = begin + chunk_rows < count ? begin + chunk_rows : count;
    for (int64_t first = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V; first < columns;
         first += (int64_t)gridDim.y * blockDim.x * V) {
        typename Rows::C sum[V] = {};
        int64_t run = begin;
        for (int64_t k = begin; k < end; k += ahead) {
            typename Rows::T value[ahead][V];
#pragma unroll
            for (int a = 0; a < ahead; a++) {
                if (k + a < end) rows.load(value[a], s.position(k + a), first);
            }
#pragma unroll
            for (int a = 0; a < ahead; a++) {
                const int64_t next = k + a + 1;
                if (next > end) break;
                const uint32_t id = s.id(next - 1);
#pragma unroll
                for (int v = 0; v < V; v++) sum[v] += gd_load(value[a][v]);
                const bool goes_on = next < count && s.id(next) == id;
                if (goes_on && next < end) continue;
                const bool came = run == begin && begin > 0 && s.id(begin - 1) == id;
                if (goes_on || came)
                    gd_store_guarded(part_of(parts, chunk, run == begin, columns), sum, first,
                                     columns);
                else if (id != rows.bad)
                    rows.finish(id, sum, first);
                run = next;
#pragma unroll
                for (int v = 0; v < V; v++) sum[v] = 0;
            }
        }
    }
}

// The end of the run of `id` that `low` is in, by bisection.
__device__ static inline int64_t run_end(sequence s, int64_t count, uint32_t id, int64_t low)
{
    int64_t high = count; // not in the run
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        (s.id(middle) == id ? low : high) = middle;
    }
    return high;
}

// The threads of the chunk in which a run begins add the parts of all chunks that it reaches.
template <class Rows>
static __global__ void join_kernel(Rows rows, const typename Rows::C *parts, sequence s,
                                   int64_t count, int64_t columns)
{
    gd_in_turn();
    constexpr int V = Rows::V;
    using C = typename Rows::C;
    const int64_t chunk = chunk_of_thread(), begin = chunk * chunk_rows, end = begin + chunk_rows;
    if (end >= count || s.id(end) != s.id(end - 1)) return; // no run continues
    const uint32_t id = s.id(end - 1);
    const bool from_begin = s.id(begin) == id;
    if (from_begin && begin > 0 && s.id(begin - 1) == id) return; // it began before
    if (id == rows.bad) return;
    const int64_t last = (run_end(s, count, id, end) - 1) / chunk_rows;
    for (int64_t first = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V; first < columns;
         first += (int64_t)gridDim.y * blockDim.x * V) {
        C part[V];
        gd_long_sum<C> sum[V]; // there may be many parts
        gd_load_guarded(part, part_of(parts, chunk, from_begin, columns), first, columns);
#pragma unroll
        for (int v = 0; v < V; v++) sum[v].add(part[v]);
#pragma unroll 4
        for (int64_t next = chunk + 1; next <= last; next++) {
            gd_load_guarded(part, part_of(parts, next, true, columns), first, columns);
#pragma unroll
            for (int v = 0; v < V; v++) sum[v].add(part[v]);
        }
#pragma unroll
        for (int v = 0; v < V; v++) part[v] = sum[v].value();
        rows.finish(id, part, first);
    }
}

static inline int bits_of(uint32_t largest)
{
    return largest ? 32 - __builtin_clz(largest) : 0;
}

// Adds up `count` rows by id, for each table, as many at once as can be sorted by s.
template <class Rows>
static gd_status sum_by_id(const gd_call *call, Rows rows, sorter &s, int64_t count,
                           int64_t columns, int64_t tables = 1)
{
    using C = typename Rows::C;
    const int64_t chunks = gd_ceil_div(gd_min64(count, most_items), chunk_rows);
    const int64_t packs = gd_packs(columns, Rows::V);
    const unsigned x = (unsigned)gd_min64(packs, sum_threads), y = sum_threads / x;
    const gd_grid grid = {{(unsigned)gd_ceil_div(chunks, y),
                           (unsigned)gd_min64(gd_ceil_div(packs, x), 65535), (unsigned)tables},
                          {x, y}};
    const size_t count_of_parts = (size_t)(2 * grid.blocks.x * y * tables);
    C *parts = (C *)gd_call_scratch(call, count_of_parts * (size_t)columns * sizeof(C));
    if (!s.workspace || !parts) return gd_error_status(call->context);
    for (; rows.begin < count; rows.begin += most_items, rows.add = true) {
        const int64_t n = gd_min64(count - rows.begin, most_items);
        gd_launch(call, gd_grid_for(n, sum_threads, sum_threads), id_kernel<Rows>, s.ids, rows, n);
        sort(call, s, n, 0, bits_of(rows.bad));
        gd_launch(call, grid, sum_kernel<Rows>, rows, parts, s.ids, n, columns);
        gd_launch(call, grid, join_kernel<Rows>, rows, (const C *)parts, s.ids, n, columns);
    }
    return gd_error_status(call->context);
}

} // namespace gd_id_sort
#endif
