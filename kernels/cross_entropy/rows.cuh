// rows.cuh - the losses of rows of logits, and the terms of the logits' gradient, in one kernel.
//
// A team of threads handles a row (row_team.cuh). The first pass computes the maximum and the sum
// of the exponentials. If the gradient is wanted too, there is a second pass: the row of a warp is
// in L1, that of a block is kept in shared memory if it fits. So the logits are read from memory
// once, and the results may overwrite them.
#ifndef GD_CROSS_ENTROPY_ROWS_CUH
#define GD_CROSS_ENTROPY_ROWS_CUH

#include "cross_entropy/cross_entropy.h"
#include "device_cuda.h"
#include "row_team.cuh"

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

// The thread's packs of a row of x: accumulated in `sum`, and copied to `kept` if that is not NULL.
// Several loads are in flight at once.
template <int V, class T, class Team>
__device__ inline void sum_row(gd_sum_exp<gd_compute<T>> &sum, gd_pack<T, V> *kept, const T *x,
                               int64_t packs, const Team &team)
{
    constexpr int ahead = 4;
    for (int64_t p = team.rank; p < packs; p += ahead * team.size) {
        gd_pack<T, V> pack[ahead];
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            const int64_t at = p + a * team.size;
            if (at < packs) pack[a] = gd_load_pack<T, V>(x, at);
        }
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            const int64_t at = p + a * team.size;
            if (at >= packs) break;
            if (kept) kept[at] = pack[a];
            sum.add(pack[a]);
        }
    }
}

template <class T, int V, bool BLOCK>
__global__ static void __launch_bounds__(BLOCK ? 512 : 256)
    row_kernel(row_results<T> out, const T *x, int64_t columns, target_list targets, int64_t rows,
               bool keep)
{
    using C = gd_compute<T>;
    extern __shared__ uint4 memory[];
    __shared__ C shared[32];
    const gd_team<BLOCK> team;
    const int64_t packs = columns / V;
    gd_pack<T, V> *kept = keep ? (gd_pack<T, V> *)memory : nullptr;
    for (int64_t r = team.row; r < rows; r += team.step) {
        const T *from = x + r * columns;
        const bool counts = targets.counts(r); // the same for the whole team
        const int64_t target = targets.target[r];
        C max = 0, log_sum = 0, at_target = 0;
        if (counts) {
            gd_sum_exp<C> row;
            sum_row(row, kept, from, packs, team);
            at_target = gd_load(from[target]);
            row.reduce(team, shared);
            max = row.max;
            log_sum = log(row.sum);
        }
        __syncwarp(); // all have read the target before it is overwritten (blocks: by the sums)
        if (out.residual) {
            T *to = out.residual + r * columns;
            for (int64_t p = team.rank; p < packs; p += team.size) {
                gd_pack<T, V> pack = {};
                if (counts) pack = kept ? kept[p] : gd_load_pack<T, V>(from, p);
#pragma unroll
                for (int v = 0; v < V; v++) {
                    C d = counts ? exp(gd_load(pack.element[v]) - max - log_sum) : 0;
                    if (counts && p * V + v == target) d -= 1;
                    pack.element[v] = gd_store<T>(d);
                }
                gd_store_pack(to, p, pack);
            }
        }
        if (team.rank > 0) continue;
        out.losses[r] = counts ? log_sum - (at_target - max) : 0;
        if (out.max) out.max[r] = max;
        if (out.log_sum) out.log_sum[r] = log_sum;
        const bool ignored = targets.use_ignore_index && target == targets.ignore_index;
        if (!counts && !ignored && targets.fault) *targets.fault = 1 + targets.first + r;
    }
}

// The dynamic shared memory that a block can have on this device.
static inline size_t most_memory()
{
    int device = 0, most = 0;
    const int reserved = 1024; // for 32 sums
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)) {
        (void)cudaGetLastError();
        return 0;
    }
    return (size_t)(most > reserved ? most - reserved : 0);
}

// Launches the kernel for rows > 0 of logits x [rows, columns]. Columns beyond the vocabulary are
// -inf.
template <class T>
static inline gd_status launch_rows(const gd_call *call, const row_results<T> &out, const T *x,
                                    int64_t columns, const target_list &targets, int64_t rows)
{
    gd_team_launch launch = gd_team_for(rows, columns);
    if (launch.threads > 512) launch.threads = 512; // so that two blocks fit: one reads, one writes
    const bool packed = gd_rows_pack<T>(columns, x, out.residual);
    const bool again = out.residual && launch.block;
    const size_t most = again ? most_memory() : 0, row = (size_t)columns * sizeof(T);
    const size_t bytes = row <= most ? row : 0;
    gd_by_team<T>(packed, launch.block, [&](auto pack, auto block) {
        const auto kernel = row_kernel<T, decltype(pack)::value, decltype(block)::value>;
        if (bytes) // the same limit in every call: another thread may launch this kernel, too
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)most);
        kernel<<<launch.blocks, launch.threads, bytes, gd_stream(call)>>>(out, x, columns, targets,
                                                                          rows, bytes > 0);
    });
    return gd_launched(call);
}

// One block: sums the rows' losses, each thread every 1024th, then a tree; and computes the factor
// of a row.
template <class C>
__global__ static void __launch_bounds__(1024)
    total_kernel(C *loss, C *factor_out, const double *losses, target_list targets, int64_t rows,
                 bool mean)
{
    __shared__ double shared[32];
    double sum = 0, counting = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
        sum += losses[r];
        counting += targets.counts(r);
    }
    sum = gd_block_reduce(sum, shared, gd_plus());
    counting = gd_block_reduce(counting, shared, gd_plus());
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
    total_kernel<<<1, 1024, 0, gd_stream(call)>>>(loss, factor, losses, targets, rows,
                                                  args->reduction == GD_MEAN);
    return gd_launched(call);
}

#endif
