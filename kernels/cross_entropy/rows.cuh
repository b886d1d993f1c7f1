// rows.cuh - the losses of rows of logits, and the terms of the logits' gradient, in one kernel.
//
// A team of threads handles a row (team.cuh). The first pass computes the maximum and the sum
// of the exponentials. If the gradient is wanted too, there is a second pass: the row of a warp is
// in L1, that of a block is kept in shared memory if it fits. So the logits are read from memory
// once, and the results may overwrite them. A block has several such rows, one after another: as
// soon as a thread has written a result, it starts the copy of the next row's logits to their place
// in shared memory, so that the memory reads and writes at the same time.
#ifndef GD_CROSS_ENTROPY_ROWS_CUH
#define GD_CROSS_ENTROPY_ROWS_CUH

#include <cuda_pipeline_primitives.h>

#include "cross_entropy/cross_entropy.h"
#include "cuda/device_cuda.h"
#include "team.cuh"

// The targets of a call. Those that are neither in the vocabulary nor ignored are an error that is
// reported to the host later; until then they are skipped like ignored ones, so nothing is read out
// of bounds.
struct target_list {
    const int32_t *target;
    int64_t vocab;
    int32_t ignore_index;
    bool use_ignore_index;
    int64_t *fault; // may be NULL
    int64_t first;  // the index of row 0, for error messages

    __device__ bool counts(int64_t row) const
    {
        const int32_t t = target[row];
        return t >= 0 && t < vocab && !(use_ignore_index && t == ignore_index);
    }
};

static inline target_list targets_of(const gd_call *call, const gd_tensor *targets, int64_t vocab)
{
    const gd_cross_entropy_args *args = (const gd_cross_entropy_args *)call->args;
    target_list list = {};
    list.target = (const int32_t *)gd_tensor_data(targets);
    list.vocab = vocab;
    list.ignore_index = args->ignore_index;
    list.use_ignore_index = args->use_ignore_index;
    return list;
}

// The results of the kernel for rows of logits. All but losses may be NULL.
template <class T>
struct row_results {
    double *losses;               // [rows] logsumexp(x) - x[target], 0 for rows that do not count
    gd_compute<T> *max, *log_sum; // [rows] the two parts of the logsumexp
    T *residual;                  // [rows, columns] softmax(x) - [j = target]; may be x
};

// The thread's packs of a row of x, accumulated in `sum`. Several loads are in flight at once.
template <int V, class T, class Team>
__device__ inline void sum_row(gd_sum_exp<gd_compute<T>> &sum, const T *x, int64_t packs,
                               const Team &team)
{
    constexpr int ahead = 4;
    for (int64_t p = team.rank; p < packs; p += ahead * team.size) {
        gd_pack<T, V> pack[ahead];
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            const int64_t at = p + a * team.size;
            if (at < packs) pack[a] = gd_pack<T, V>::load(x, at);
        }
#pragma unroll
        for (int a = 0; a < ahead; a++)
            if (p + a * team.size < packs) sum.add(pack[a]);
    }
}

// Starts the copy of pack p of a row of x, of 16 bytes, to shared memory.
template <int V, class T>
__device__ inline void copy_pack(T *kept, const T *x, int64_t p)
{
    if constexpr (V * sizeof(T) == 16) __pipeline_memcpy_async(kept + p * V, x + p * V, 16);
}

// KEEP: a row is kept in shared memory. Each thread copies the packs that it reads itself, so that
// it need not wait for others.
template <class T, int V, bool BLOCK, bool KEEP>
__global__ static void GD_LAUNCH_BOUNDS(BLOCK ? 512 : 256, KEEP ? 2 : 1)
    row_kernel(row_results<T> out, const T *x, int64_t columns, target_list targets, int64_t rows)
{
    gd_in_turn();
    using C = gd_compute<T>;
    extern __shared__ uint4 memory[];
    __shared__ C shared[32];
    const gd_team<BLOCK> team;
    const int64_t packs = columns / V;
    T *const kept = (T *)memory;
    for (int64_t p = team.rank; KEEP && p < packs && team.row < rows; p += team.size)
        copy_pack<V>(kept, x + team.row * columns, p);
    for (int64_t r = team.row; r < rows; r += team.step) {
        const T *from = KEEP ? kept : x + r * columns;
        const bool counts = targets.counts(r); // the same for the whole team
        const int64_t target = targets.target[r];
        const bool writes = team.rank == (counts ? target / V % team.size : 0); // the loss
        C max = 0, log_sum = 0, at_target = 0;
        if (KEEP) __pipeline_commit(), __pipeline_wait_prior(0);
        if (counts) {
            gd_sum_exp<C> row;
            sum_row<V>(row, from, packs, team);
            if (writes) at_target = gd_load(from[target]);
            row.reduce(team, shared);
            max = row.max;
            log_sum = log(row.sum);
        }
        T *to = out.residual + r * columns;
        for (int64_t p = team.rank; out.residual && p < packs; p += team.size) {
            gd_pack<T, V> pack = {};
            if (counts) {
                pack = gd_pack<T, V>::load(from, p);
#pragma unroll
                for (int v = 0; v < V; v++) {
                    const C score = gd_load(pack[v]) - max;
                    pack[v] = gd_store<T>(gd_exp_of<T>(score, log_sum));
                }
            }
            pack.store(to, p);
            if (KEEP && r + team.step < rows) copy_pack<V>(kept, x + (r + team.step) * columns, p);
        }
        if (!writes) continue;
        if (out.residual && counts) // where this thread has just stored a probability
            to[target] = gd_store<T>(gd_exp_of<T>(at_target - max, log_sum) - 1);
        out.losses[r] = counts ? log_sum - (at_target - max) : 0;
        if (out.max) out.max[r] = max;
        if (out.log_sum) out.log_sum[r] = log_sum;
        const bool ignored = targets.use_ignore_index && target == targets.ignore_index;
        if (!counts && !ignored && targets.fault) *targets.fault = 1 + targets.first + r;
    }
}

// The grid of the kernel with rows in shared memory, from that of the other one: as many blocks as
// run at once; each has its rows one after another. No blocks if the memory has no room for a row.
template <class T, int V>
static inline gd_grid grid_of_kept_rows(gd_grid grid, int64_t columns, int64_t rows)
{
    const int sums = 1024; // of the block, and what is reserved for the system
    const int most = gd_cuda_device_limits().block_shared - sums;
    const int64_t row = columns * (int64_t)sizeof(T);
    if (row > most) return {};
    const auto kernel = row_kernel<T, V, true, true>;
    int at_once = 0; // on a multiprocessor
    // The same limit in every call: another thread may launch this kernel, too.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, kernel, (int)grid.threads.x,
                                                  (size_t)row);
    const int64_t fit = (int64_t)at_once * gd_cuda_attribute(cudaDevAttrMultiProcessorCount);
    return {(unsigned)gd_min64(rows, fit), grid.threads, (size_t)row};
}

// Launches the kernel for rows of logits x [rows, columns]. Columns beyond the vocabulary are
// -inf.
template <class T>
static inline gd_status launch_rows(const gd_call *call, const row_results<T> &out, const T *x,
                                    int64_t columns, const target_list &targets, int64_t rows)
{
    const bool packed = gd_rows_pack<T>(columns, x, out.residual);
    const auto launch = [&](auto grid, auto pack, auto block) {
        if constexpr (block && pack > 1) {
            const gd_grid kept =
                out.residual ? grid_of_kept_rows<T, pack>(grid, columns, rows) : gd_grid{};
            if (kept.blocks.x)
                return gd_launch(call, kept, row_kernel<T, pack, true, true>, out, x, columns,
                                 targets, rows);
        }
        return gd_launch(call, grid, row_kernel<T, pack, block, false>, out, x, columns, targets,
                         rows);
    };
    return gd_by_team<T>(rows, columns, packed, launch, 512); // so that two blocks fit
}

// One block: sums the rows' losses, each thread every 1024th, then a tree; and computes the factor
// of a row.
template <class C>
__global__ static void __launch_bounds__(1024)
    total_kernel(C *loss, C *factor_out, const double *losses, target_list targets, int64_t rows,
                 bool mean)
{
    gd_in_turn();
    __shared__ double shared[32];
    double sum = 0, counting = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
        sum += losses[r];
        counting += targets.counts(r);
    }
    sum = gd_sum(sum, shared);
    counting = gd_sum(counting, shared);
    if (threadIdx.x > 0) return;
    const double factor = mean ? 1 / counting : 1;
    *loss = (C)(sum * factor); // no rows: 0 * inf = NaN
    if (factor_out) *factor_out = (C)(counting > 0 ? factor : 0);
}

// The loss, and the factor by which a row enters it (may be NULL).
template <class C>
static inline gd_status launch_total(const gd_call *call, C *loss, C *factor, const double *losses,
                                     const target_list &targets, int64_t rows)
{
    const gd_cross_entropy_args *args = (const gd_cross_entropy_args *)call->args;
    return gd_launch(call, {1, 1024}, total_kernel<C>, loss, factor, losses, targets, rows,
                     args->reduction == GD_MEAN);
}

#endif
