// attention_forward_hopper.cuh - the 16-bit forward on Hopper. attention_hopper.cuh has the shared
// parts, attention_forward_mma.cuh the softmax.
#ifndef GD_ATTENTION_FORWARD_HOPPER_CUH
#define GD_ATTENTION_FORWARD_HOPPER_CUH

#include "attention/attention_forward_mma.cuh"
#include "attention/attention_hopper.cuh"

namespace attention_mma
{

template <class T>
struct hopper_forward_pass : forward_pass<T> {
    CUtensorMap q_map, k_map, v_map, y_map;
};

// Groups of a block that compute, and their registers per thread. One more group copies. A
// multiprocessor has one block.
template <int W>
constexpr int forward_groups = W == 64 ? 4 : 3;
template <int W>
constexpr int forward_registers = W == 64 ? 112 : 160;
template <int W>
constexpr int forward_threads = gd_wgmma::group *(forward_groups<W> + 1);
constexpr int copy_registers = 24;
constexpr int forward_blocks = 132; // as many as an H200 has multiprocessors

template <class T, int W>
struct hopper_forward_shared {
    hopper_ring<hopper_panels<T, 64 * forward_groups<W>, W>, 2> q;
    hopper_ring<key_stage<T, W>, 4> keys;
};

// A task is `rows` queries of one head. Late queries, which see the most keys, come first. In each
// round every block has one task; every other round is dealt out backwards, so that no block has
// the longest of all rounds.
struct forward_task {
    bool there; // false: there are no more for this block
    int b, h, t0, tiles;

    template <class Pass>
    __device__ forward_task(const Pass &f, int round, int rows)
    {
        const unsigned place = round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
        const unsigned i = round * gridDim.x + place;
        const attention_task task = attention_task_at(f.tasks, i);
        there = i < (unsigned)f.tasks.count();
        b = (int)task.b, h = (int)task.head;
        t0 = hopper_first(f.view, task, rows);
        const int end = f.view.seen_by(min(t0 + rows, f.view.T) - 1);
        tiles = (end + hopper_tile - 1) / hopper_tile;
    }
};

// The copies for all tasks, one after another, as soon as there is room.
template <class T, int W>
__device__ inline void forward_copy(const hopper_forward_pass<T> &f,
                                    hopper_forward_shared<T, W> &shared)
{
    using stage = key_stage<T, W>;
    int copied = 0; // tiles of keys
    for (int round = 0;; round++) {
        const forward_task task(f, round, 64 * forward_groups<W>);
        if (!task.there) return;
        shared.q.issue(round, sizeof shared.q.stage[0], [&](auto &to, gd_async::barrier &full) {
            hopper_load(to, f.q_map, full, task.h, task.t0, task.b);
        });
        const int kv = task.h / (int)f.z.G;
        for (int n = 0; n < task.tiles; n++)
            shared.keys.issue(copied++, sizeof(stage), [&](stage &to, gd_async::barrier &full) {
                hopper_load(to.k, f.k_map, full, kv, n * hopper_tile, task.b);
                hopper_load(to.v, f.v_map, full, kv, n * hopper_tile, task.b);
            });
    }
}

// Tile n of the keys of a task: its scores and weights. The product of the tile before, if there is
// one, with its values runs alongside, so that the tensor core has work during the exponentials.
// `before`: tiles of earlier tasks.
template <class F, int W, bool BEFORE, class Queries>
__device__ __forceinline__ void
forward_step(const hopper_forward_pass<typename F::stored> &f,
             hopper_forward_shared<typename F::stored, W> &shared, const Queries &q,
             const forward_task &task, int group, int t, int before, int n, sums<1, W> &out,
             rounded_tile<hopper_tile> &weight, online_state<1> &online)
{
    constexpr int N = hopper_tile;
    const key_stage<typename F::stored, W> &tile = shared.keys.wait(before + n);
    sums<1, N> score;
    float factor[1][2];
    gd_wgmma::fence();
    hopper_scores<F>(score, q, 64 * group, tile.k);
    gd_wgmma::commit();
    if constexpr (BEFORE) {
        hopper_add_weighted<F>(out, weight, shared.keys.at(before + n - 1).v);
        gd_wgmma::commit();
    }
    gd_wgmma::wait<BEFORE>(); // scores
    scale_and_mask(score, f.scale, f.view, t, n * N);
    const bool changed = online_softmax(score, online, factor);
    if (f.dropout.threshold)
        attention_apply_dropout<false>(score.at, f.dropout, task.b * (int)f.z.H + task.h, t, n * N);
    if constexpr (BEFORE) {
        gd_wgmma::wait<0>(); // out
        shared.keys.release(before + n - 1);
    }
    if (changed) rescale(out, factor);
    round_tile<F, true>(weight, score);
}

// A group that has finished a task goes on to the next, whose data is there already, while others
// may still be in the task before.
template <class F, int W>
static __global__ void GD_LAUNCH_BOUNDS(forward_threads<W>, 1)
    hopper_forward_kernel(const __grid_constant__ hopper_forward_pass<typename F::stored> f)
{
    gd_in_turn();
    using T = typename F::stored;
    constexpr int N = hopper_tile, GROUPS = forward_groups<W>;
    constexpr int at_start = 65536 / forward_threads<W> / 8 * 8;
    static_assert(GROUPS * forward_registers<W> + copy_registers <= (GROUPS + 1) * at_start,
                  "a block waits forever for registers that it does not have");
    extern __shared__ __align__(1024) unsigned char hopper_memory[];
    auto &shared = *(hopper_forward_shared<T, W> *)hopper_memory;
    const attention_sizes &z = f.z;
    const head_view &view = f.view;

    if (threadIdx.x == 0) {
        shared.q.init(GROUPS);
        shared.keys.init(GROUPS);
        gd_async::barrier_init_done();
        gd_async::fence_async();
    }
    __syncthreads();
    const int group = hopper_group();
    if (group == GROUPS) {
        gd_wgmma::fewer_registers<copy_registers>();
        if (threadIdx.x % gd_wgmma::group == 0) forward_copy<T, W>(f, shared);
        return;
    }
    gd_wgmma::more_registers<forward_registers<W>>();

    int before = 0; // tiles of earlier tasks
    for (int round = 0;; round++) {
        const forward_task task(f, round, 64 * GROUPS);
        if (!task.there) return;
        const int t = task.t0 + hopper_warp_row(); // this warp's first
        const int first = task.t0 + 64 * group;    // this group's
        const int group_end = first >= 0 ? view.seen_by(min(first + 64, view.T) - 1) : 0;
        sums<1, W> out = {};
        online_state<1> online;
        for (int r = 0; r < 2; r++) online.largest[0][r] = -INFINITY, online.total[0][r] = 0;
        auto &q = shared.q.wait(round);
        rounded_tile<N> weight; // of the tile before
        int n = 0;
        if (group_end > 0) {
            forward_step<F, W, false>(f, shared, q, task, group, t, before, n, out, weight, online);
            for (n++; n * N < group_end; n++)
                forward_step<F, W, true>(f, shared, q, task, group, t, before, n, out, weight,
                                         online);
            gd_wgmma::fence();
            hopper_add_weighted<F>(out, weight, shared.keys.at(before + n - 1).v);
            gd_wgmma::commit();
            gd_wgmma::wait<0>();
            shared.keys.release(before + n - 1);
        }
        if (first >= 0) {
            finish_sums(f, out, online, task.b, task.h, t);
            hopper_store<F>(out, 1, q, 64 * group, f.y_map, z.E, task.h, first, task.b);
            if (threadIdx.x % gd_wgmma::group == 0) gd_wgmma::tma_stores_wait();
            __syncwarp();
        }
        shared.q.release(round);
        for (; n < task.tiles; n++) { // what other groups see
            shared.keys.wait(before + n);
            shared.keys.release(before + n);
        }
        before += task.tiles;
    }
}

// False if TMA cannot load the inputs or store the result.
template <class F, int W>
static bool hopper_forward(const gd_call *call, const forward_pass<typename F::stored> &pass,
                           gd_status *status)
{
    using T = typename F::stored;
    hopper_forward_pass<T> f = {};
    static_cast<forward_pass<T> &>(f) = pass;
    const attention_sizes &z = f.z;
    constexpr int ROWS = 64 * forward_groups<W>;
    f.tasks = attention_tasks_of(z.B, z.H, z.T, ROWS);
    if (f.tasks.count() > INT32_MAX || !hopper_map(&f.q_map, f.q, z.B, z.T, z.H, z.D, ROWS) ||
        !hopper_map(&f.k_map, f.k, z.B, z.S, z.KV, z.D, hopper_tile) ||
        !hopper_map(&f.v_map, f.v, z.B, z.S, z.KV, z.E, hopper_tile) ||
        !hopper_map(&f.y_map, f.y, z.B, z.T, z.H, z.E, 64)) {
        return false;
    }
    *status = attention_launch(call, hopper_forward_kernel<F, W>, f, forward_threads<W>,
                               sizeof(hopper_forward_shared<T, W>), forward_blocks);
    return true;
}

} // namespace attention_mma

#endif
