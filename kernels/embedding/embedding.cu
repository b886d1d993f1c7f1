// embedding.cu - the CUDA kernels of embedding: rows gathered, and summed back in sorted order.
#include "cuda/device_cuda.h"
#include "embedding/sort.cuh"
#include "pack.cuh"

// ---- Forward ----------------------------------------------------------------------------------

constexpr int gather_threads = 256, gather_rows = gather_threads / 32;

// y [rows, units] from table [vocab, units]; a warp has a row.
template <class Unit>
static __global__ void gather_kernel(Unit *y, const Unit *table, const int32_t *ids, int64_t rows,
                                     int64_t units, int64_t vocab, int64_t *fault)
{
    const int lane = threadIdx.x % 32;
    for (int64_t row = (int64_t)blockIdx.x * gather_rows + threadIdx.x / 32; row < rows;
         row += (int64_t)gridDim.x * gather_rows) {
        const int64_t id = ids[row];
        const bool good = id >= 0 && id < vocab;
        if (!good && lane == 0 && fault) *fault = 1 + row;
#pragma unroll 4
        for (int64_t u = lane; u < units; u += 32)
            y[row * units + u] = good ? table[id * units + u] : Unit();
    }
}

// y [M, C] from table [V, C], ids [M]
extern "C" gd_status embedding_forward_cuda(const gd_call *call)
{
    const gd_tensor *table = call->input[0], *ids = call->input[1], *y = call->output[0];
    if (gd_tensor_count(y) == 0) return GD_OK;
    const int64_t rows = gd_tensor_count(ids), vocab = gd_tensor_dim(table, 0);
    const int64_t row_bytes = gd_tensor_dim(table, 1) * (int64_t)gd_dtype_size(call->kernel_dtype);
    const uintptr_t all =
        (uintptr_t)gd_tensor_data(table) | (uintptr_t)gd_tensor_data(y) | (uintptr_t)row_bytes;
    int64_t unit = 16;
    while (all % (uintptr_t)unit) unit /= 2;
    int64_t *fault = gd_cuda_fault_word(call, vocab);
    gd_by_unit(unit, [&](auto zero) {
        using Unit = decltype(zero);
        gather_kernel<<<gd_blocks(rows, gather_rows), gather_threads, 0, gd_stream(call)>>>(
            gd_ptr<Unit>(y), gd_ptr<const Unit>(table), gd_ptr<const int32_t>(ids), rows,
            row_bytes / unit, vocab, fault);
    });
    return gd_launched(call);
}

// ---- Backward, few rows in the table -----------------------------------------------------------
//
// A block for each row of the table scans all ids, lists the rows of dy with its own id, in order,
// and adds them up: one launch, nothing to sort, and each number of dtable is written once. The ids
// are read once for each row of the table, which is cheap for few rows.

constexpr int few_threads = 512, few_ids = 16; // ids of a thread in one turn
constexpr int64_t few_vocab = 2048, few_work = 1 << 23;

static bool is_few(int64_t vocab, int64_t rows)
{
    return vocab <= few_vocab && vocab * rows <= few_work;
}

// The sum of `count` over the threads before this one, and over all.
__device__ inline int sum_before(int count, int *warp_sums, int *all)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = count;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += before;
    }
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int earlier = 0, total = 0;
    for (int w = 0; w < few_threads / 32; w++) {
        if (w < warp) earlier += warp_sums[w];
        total += warp_sums[w];
    }
    *all = total;
    return earlier + sum - count;
}

// blockIdx.x is the row of the table, blockIdx.y a piece of its columns. A group of threads has a
// pack of columns each, and takes every groups-th row of the list; then the groups' sums are added,
// in order.
template <class G, class T>
static __global__ void __launch_bounds__(few_threads)
    few_kernel(G *dtable, const T *dy, const int32_t *ids, int64_t rows, int64_t columns, bool add,
               int64_t *fault)
{
    constexpr int V = gd_pack_size<T>, turn = few_threads * few_ids;
    using C = gd_compute<T>;
    // the list, and then the sums
    __shared__ union {
        uint16_t list[turn];
        C sums[few_threads * V];
    } shared;
    __shared__ int warp_sums[few_threads / 32];
    const int32_t own = (int32_t)blockIdx.x, vocab = (int32_t)gridDim.x;
    const int64_t packs = gd_packs(columns, V), first_pack = (int64_t)blockIdx.y * few_threads;
    const int width = (int)(packs - first_pack < few_threads ? packs - first_pack : few_threads);
    const int groups = few_threads / width, group = (int)threadIdx.x / width;
    const int64_t first = (first_pack + (int)threadIdx.x % width) * V;
    C sum[V] = {};
    for (int64_t begin = 0; begin < rows; begin += turn) {
        const int64_t mine = begin + (int64_t)threadIdx.x * few_ids;
        unsigned matches = 0;
#pragma unroll
        for (int k = 0; k < few_ids; k++) {
            const bool there = mine + k < rows;
            const int32_t id = there ? ids[mine + k] : -1;
            matches |= (unsigned)(id == own) << k;
            if (own == 0 && there && (id < 0 || id >= vocab) && fault) *fault = 1 + mine + k;
        }
        int count, place = sum_before(__popc(matches), warp_sums, &count);
        for (; matches; matches &= matches - 1)
            shared.list[place++] = (uint16_t)(threadIdx.x * few_ids + (unsigned)__ffs(matches) - 1);
        __syncthreads();
#pragma unroll 4
        for (int m = group; m < count && group < groups; m += groups) {
            T value[V];
            gd_pack_load(value, dy + (begin + shared.list[m]) * columns, first, columns);
#pragma unroll
            for (int v = 0; v < V; v++) sum[v] += gd_load(value[v]); /* [dtable] */
        }
        __syncthreads();
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (group < groups) shared.sums[(int)threadIdx.x * V + v] = sum[v];
    }
    __syncthreads();
    G *row = dtable + own * columns + first_pack * V;
    const int64_t elements = columns - first_pack * V;
    for (int e = (int)threadIdx.x; e < width * V && e < elements; e += few_threads) {
        gd_long_sum<C> total;
        if (add) total.add(gd_load(row[e]));
        for (int g = 0; g < groups; g++) total.add(shared.sums[g * width * V + e]);
        row[e] = gd_store<G>(total.value());
    }
}

// ---- Backward -----------------------------------------------------------------------------------
//
// The rows of dy are taken in the order of their ids, so each row of dtable is the sum over one run
// of equal ids. Runs are of very different lengths (a comma, a rare word), so blocks do not take
// runs but chunks of equal length. A run inside one chunk is finished there. For one that continues
// in the next chunk, each chunk stores its part, and a second kernel adds the parts in order.

constexpr int chunk_rows = 32, sum_threads = 128;

struct runs {
    const uint32_t *id;      // ascending; `bad` for those that are no row of the table
    const int64_t *position; // the row of dy
    int64_t count;
    uint32_t bad;
};

static __global__ void number_kernel(gd_id_sort::sequence to, const int32_t *ids, int64_t rows,
                                     int64_t vocab, uint32_t bad, int64_t *fault)
{
    GD_EACH(i, rows)
    {
        const int64_t id = ids[i];
        const bool good = id >= 0 && id < vocab;
        if (!good && fault) *fault = 1 + i;
        to.id[i] = good ? (uint32_t)id : bad;
        to.position[i] = i;
    }
}

// The parts of a chunk: its first run may have begun in the chunk before, its last one may continue
// in the next.
template <class C>
__device__ inline C *part_of(C *parts, int64_t chunk, bool from_begin, int64_t columns)
{
    return parts + (2 * chunk + !from_begin) * columns;
}

// dtable[id, first ...] (+)= sum
template <class T, class S, int V>
__device__ inline void finish(T *dtable, uint32_t id, const S (&sum)[V], int64_t first,
                              int64_t columns, bool add)
{
    T *row = dtable + id * columns, value[V];
    if (add) gd_pack_load(value, row, first, columns);
#pragma unroll
    for (int v = 0; v < V; v++) value[v] = gd_store<T>(add ? gd_load(value[v]) + sum[v] : sum[v]);
    gd_pack_store(row, value, first, columns);
}

// A block has a chunk, a thread a pack of columns.
template <class G, class T>
static __global__ void sum_kernel(G *dtable, gd_compute<T> *parts, const T *dy, runs r,
                                  int64_t columns, bool add)
{
    constexpr int V = gd_pack_size<T>, ahead = 4;
    const int64_t chunk = blockIdx.x, begin = chunk * chunk_rows;
    const int64_t end = begin + chunk_rows < r.count ? begin + chunk_rows : r.count;
    for (int64_t first = ((int64_t)blockIdx.y * sum_threads + threadIdx.x) * V; first < columns;
         first += (int64_t)gridDim.y * sum_threads * V) {
        gd_compute<T> sum[V] = {};
        int64_t run = begin;
        for (int64_t k = begin; k < end; k += ahead) {
            T value[ahead][V];
#pragma unroll
            for (int a = 0; a < ahead; a++) {
                if (k + a < end)
                    gd_pack_load(value[a], dy + r.position[k + a] * columns, first, columns);
            }
#pragma unroll
            for (int a = 0; a < ahead; a++) {
                const int64_t next = k + a + 1;
                if (next > end) break;
                const uint32_t id = r.id[next - 1];
#pragma unroll
                for (int v = 0; v < V; v++) sum[v] += gd_load(value[a][v]); /* [dtable] */
                const bool goes_on = next < r.count && r.id[next] == id;
                if (goes_on && next < end) continue;
                const bool came = run == begin && begin > 0 && r.id[begin - 1] == id;
                if (goes_on || came)
                    gd_pack_store(part_of(parts, chunk, run == begin, columns), sum, first,
                                  columns);
                else if (id != r.bad)
                    finish(dtable, id, sum, first, columns, add);
                run = next;
#pragma unroll
                for (int v = 0; v < V; v++) sum[v] = 0;
            }
        }
    }
}

// The end of the run of `id` that `from` is in, by bisection.
__device__ static int64_t run_end(const runs &r, uint32_t id, int64_t from)
{
    int64_t low = from, high = r.count; // r.id[low - 1] is id, r.id[high] is not
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (r.id[middle] == id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// The block of the chunk in which a run begins adds the parts of all chunks that it reaches.
template <class T>
static __global__ void join_kernel(T *dtable, const gd_compute<T> *parts, runs r, int64_t columns,
                                   bool add)
{
    constexpr int V = gd_pack_size<T>;
    using C = gd_compute<T>;
    const int64_t chunk = blockIdx.x, begin = chunk * chunk_rows, end = begin + chunk_rows;
    if (end >= r.count || r.id[end] != r.id[end - 1]) return; // no run continues
    const uint32_t id = r.id[end - 1];
    const bool from_begin = r.id[begin] == id;
    if (from_begin && begin > 0 && r.id[begin - 1] == id) return; // it began before
    if (id == r.bad) return;
    const int64_t last = (run_end(r, id, end) - 1) / chunk_rows;
    for (int64_t first = ((int64_t)blockIdx.y * sum_threads + threadIdx.x) * V; first < columns;
         first += (int64_t)gridDim.y * sum_threads * V) {
        C part[V];
        gd_long_sum<C> sum[V]; // there may be many parts
        gd_pack_load(part, part_of(parts, chunk, from_begin, columns), first, columns);
#pragma unroll
        for (int v = 0; v < V; v++) sum[v].add(part[v]);
#pragma unroll 4
        for (int64_t next = chunk + 1; next <= last; next++) {
            gd_pack_load(part, part_of(parts, next, true, columns), first, columns);
#pragma unroll
            for (int v = 0; v < V; v++) sum[v].add(part[v]);
        }
#pragma unroll
        for (int v = 0; v < V; v++) part[v] = sum[v].value();
        finish(dtable, id, part, first, columns, add);
    }
}

// The rows of dy by their ids.
static gd_status sort_rows(const gd_call *call, int64_t vocab, runs *r)
{
    const gd_tensor *ids = call->input[1];
    const int64_t n = gd_tensor_count(ids);
    gd_id_sort::sequence sequences[2];
    for (gd_id_sort::sequence &s : sequences) {
        s.id = (uint32_t *)gd_call_scratch(call, (size_t)n * sizeof *s.id);
        s.position = (int64_t *)gd_call_scratch(call, (size_t)n * sizeof *s.position);
        if (!s.id || !s.position) return gd_error_status(call->context);
    }
    int64_t *count = (int64_t *)gd_call_scratch(call, gd_id_sort::most_tiles * gd_id_sort::bytes *
                                                          sizeof(int64_t));
    if (!count) return gd_error_status(call->context);

    const uint32_t beyond = 1u << 31; // no id of 32 bits with a sign is so large
    const uint32_t bad = vocab < beyond ? (uint32_t)vocab : beyond;
    number_kernel<<<gd_blocks(n, sum_threads), sum_threads, 0, gd_stream(call)>>>(
        sequences[0], gd_ptr<const int32_t>(ids), n, vocab, bad, gd_cuda_fault_word(call, vocab));
    const gd_id_sort::sequence sorted =
        gd_id_sort::sort(call, sequences[0], sequences[1], count, n, bad);
    *r = {sorted.id, sorted.position, n, bad};
    return gd_launched(call);
}

template <class T, class G>
static gd_status sum_runs(const gd_call *call, const runs &r)
{
    gd_tensor *dtable = call->dinput[0];
    const int64_t columns = gd_tensor_dim(dtable, 1), chunks = gd_ceil_div(r.count, chunk_rows);
    const int64_t groups = gd_ceil_div(columns, sum_threads * gd_pack_size<T>);
    const dim3 blocks((unsigned)chunks, (unsigned)(groups < 65535 ? groups : 65535));
    using C = gd_compute<T>;
    C *parts = (C *)gd_call_scratch(call, (size_t)(2 * chunks * columns) * sizeof(C));
    if (!parts) return gd_error_status(call->context);
    sum_kernel<<<blocks, sum_threads, 0, gd_stream(call)>>>(gd_ptr<G>(dtable), parts,
                                                            gd_ptr<const T>(call->doutput[0]), r,
                                                            columns, call->accumulate[0]);
    join_kernel<<<blocks, sum_threads, 0, gd_stream(call)>>>(gd_ptr<G>(dtable), (const C *)parts, r,
                                                             columns, call->accumulate[0]);
    return gd_launched(call);
}

static gd_status sum_few(const gd_call *call)
{
    gd_tensor *dtable = call->dinput[0];
    const gd_tensor *ids = call->input[1];
    const int64_t vocab = gd_tensor_dim(dtable, 0), columns = gd_tensor_dim(dtable, 1);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const int64_t pieces = gd_ceil_div(gd_packs(columns, gd_pack_size<T>), few_threads);
        const dim3 blocks((unsigned)vocab, (unsigned)pieces);
        return gd_by_gradient<T>(dtable, [&](auto gradient) {
            using G = decltype(gradient);
            few_kernel<<<blocks, few_threads, 0, gd_stream(call)>>>(
                gd_ptr<G>(dtable), gd_ptr<const T>(call->doutput[0]), gd_ptr<const int32_t>(ids),
                gd_tensor_count(ids), columns, call->accumulate[0],
                gd_cuda_fault_word(call, vocab));
            return gd_launched(call);
        });
    });
}

// dtable[v, :] = the sum of dy[i, :] over all i with ids[i] = v
extern "C" gd_status embedding_backward_cuda(const gd_call *call)
{
    gd_tensor *dtable = call->dinput[0];
    if (!dtable || gd_tensor_count(dtable) == 0) return GD_OK;
    if (is_few(gd_tensor_dim(dtable, 0), gd_tensor_count(call->input[1]))) return sum_few(call);
    if (!call->accumulate[0]) { // rows that no id names
        gd_fill_cuda(gd_tensor_data(dtable), gd_tensor_dtype(dtable), 0, gd_tensor_count(dtable),
                     call->context);
    }
    if (gd_tensor_count(call->input[1]) == 0) return gd_error_status(call->context);
    runs r;
    if (sort_rows(call, gd_tensor_dim(dtable, 0), &r)) return gd_error_status(call->context);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        return gd_by_gradient<T>(
            dtable, [&](auto gradient) { return sum_runs<T, decltype(gradient)>(call, r); });
    });
}
