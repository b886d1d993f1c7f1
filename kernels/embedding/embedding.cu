// embedding.cu - the CUDA kernels of embedding: rows gathered, and summed back in sorted order.
#include <cub/block/block_scan.cuh>

#include "cuda/device_cuda.h"
#include "embedding/runs.cuh"
#include "team.cuh"

// ---- Forward ----------------------------------------------------------------------------------

// y [rows, units] from table [vocab, units]; a warp has a row.
template <class Unit>
static __global__ void gather_kernel(Unit *y, const Unit *table, const int32_t *ids, int64_t rows,
                                     int64_t units, int64_t vocab, int64_t *fault)
{
    gd_in_turn();
    const int lane = threadIdx.x % 32;
    GD_EACH_WARP(row, rows)
    {
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
    return gd_by_unit(unit, [&](auto zero) {
        using Unit = decltype(zero);
        return gd_launch(call, gd_grid_of_warps(rows), gather_kernel<Unit>, gd_ptr<Unit>(y),
                         gd_ptr<const Unit>(table), gd_ptr<const int32_t>(ids), rows,
                         row_bytes / unit, vocab, fault);
    });
}

// ---- Backward, few rows in the table -----------------------------------------------------------
//
// A block for each row of the table scans all ids, lists the rows of dy with its own id, in order,
// and adds them up: one launch, nothing to sort, and each number of dtable is written once. The ids
// are read once for each row of the table, which is cheap for few rows.

constexpr int few_threads = 512, few_ids = 16; // ids of a thread in one turn
constexpr int64_t few_vocab = 2048, few_work = 1 << 23;

// blockIdx.x is the row of the table, blockIdx.y a piece of its columns. A group of threads has a
// pack of columns each, and takes every groups-th row of the list; then the groups' sums are added,
// in order.
template <class G, class T>
static __global__ void __launch_bounds__(few_threads)
    few_kernel(gd_id_sort::table_rows<G, T> r, int64_t rows)
{
    gd_in_turn();
    constexpr int V = gd_pack_size<T>, turn = few_threads * few_ids;
    using C = gd_compute<T>;
    using scan = cub::BlockScan<int, few_threads, cub::BLOCK_SCAN_WARP_SCANS>;
    // the list, and then the sums
    __shared__ union {
        uint16_t list[turn];
        C sums[few_threads * V];
    } shared;
    __shared__ typename scan::TempStorage memory;
    const uint32_t own = blockIdx.x;
    const int64_t packs = gd_packs(r.columns, V), first_pack = (int64_t)blockIdx.y * few_threads;
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
            const uint32_t id = there ? (uint32_t)r.ids[mine + k] : r.bad;
            matches |= (unsigned)(id == own) << k;
            if (own == 0 && there && id >= r.bad && r.fault) *r.fault = 1 + mine + k;
        }
        int count, place;
        scan(memory).ExclusiveSum(__popc(matches), place, count);
        for (; matches; matches &= matches - 1)
            shared.list[place++] = (uint16_t)(threadIdx.x * few_ids + (unsigned)__ffs(matches) - 1);
        __syncthreads();
#pragma unroll 4
        for (int m = group; m < count && group < groups; m += groups) {
            T value[V];
            r.load(value, begin + shared.list[m], first);
#pragma unroll
            for (int v = 0; v < V; v++) sum[v] += gd_load(value[v]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int v = 0; v < V; v++) shared.sums[(int)threadIdx.x * V + v] = sum[v];
    __syncthreads();
    G *row = r.dtable + own * r.columns + first_pack * V;
    const int64_t elements = r.columns - first_pack * V;
    for (int e = (int)threadIdx.x; e < width * V && e < elements; e += few_threads) {
        gd_long_sum<C> total;
        if (r.add) total.add(gd_load(row[e]));
        for (int g = 0; g < groups; g++) total.add(shared.sums[g * width * V + e]);
        row[e] = gd_store<G>(total.value());
    }
}

// ---- Backward -----------------------------------------------------------------------------------
//
// The rows of dy are taken in the order of their ids: dtable[v, :], the sum of dy[i, :] over all i
// with ids[i] = v, is that of one run of equal ids.
extern "C" gd_status embedding_backward_cuda(const gd_call *call)
{
    const gd_tensor *dtable = call->dinput[0], *ids = call->input[1];
    if (!dtable || gd_tensor_count(dtable) == 0) return GD_OK;
    const int64_t vocab = gd_tensor_dim(dtable, 0), columns = gd_tensor_dim(dtable, 1);
    const int64_t count = gd_tensor_count(ids);
    const bool few = vocab <= few_vocab && vocab * count <= few_work;
    const bool add = call->accumulate[0];
    if (!few) gd_begin_gradient(call, 0); // rows that no id names
    if (!few && count == 0) return gd_error_status(call->context);
    const int32_t *id = gd_ptr<const int32_t>(ids);
    const uint32_t bad = (uint32_t)gd_min64(vocab, (int64_t)1 << 31); // no id is larger
    int64_t *fault = gd_cuda_fault_word(call, vocab);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const T *dy = gd_ptr<const T>(call->doutput[0]);
        return gd_by_gradient<T>(dtable, [&](auto gradient) {
            using G = decltype(gradient);
            const gd_id_sort::table_rows<G, T> rows = {
                gd_ptr<G>(dtable), dy, id, columns, 0, add, bad, fault};
            const int64_t pieces = gd_ceil_div(gd_packs(columns, gd_pack_size<T>), few_threads);
            const gd_grid grid = {{(unsigned)vocab, (unsigned)pieces}, few_threads};
            if (few) return gd_launch(call, grid, few_kernel<G, T>, rows, count);
            gd_id_sort::sorter s = gd_id_sort::sorter_for(call, count);
            return gd_id_sort::sum_by_id(call, rows, s, count, columns);
        });
    });
}
