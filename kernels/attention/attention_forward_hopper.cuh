// attention_forward_hopper.cuh - the 16-bit forward on Hopper. attention_hopper.cuh has the shared
// parts, attention_forward_mma.cuh the softmax.
#ifndef GD_ATTENTION_FORWARD_HOPPER_CUH
#define GD_ATTENTION_FORWARD_HOPPER_CUH

#include "attention/attention_forward_mma.cuh"
#include "attention/attention_hopper.cuh"

template <class T>
struct attention_forward_hopper_pass : attention_forward_mma_pass<T> {
    CUtensorMap q_map, k_map, v_map, y_map;
};

// Groups per block, and blocks per multiprocessor: as many as registers and shared memory allow.
template <int W>
constexpr int attention_forward_groups = W == 64 ? 2 : 3;
template <int W>
constexpr int attention_forward_blocks = W == 64 ? 2 : 1;

template <class T, int W>
struct attention_forward_hopper_room {
    attention_hopper_panels<T, 64 * attention_forward_groups<W>, W> q;
    attention_hopper_ring<attention_key_stage<T, W>, 4> ring;
    gd_hopper::barrier q_full;
};

// A task is a block's queries of one head. Late queries, which see the most keys, come first.
template <class F, int W>
static __global__ void __launch_bounds__(gd_hopper::group *attention_forward_groups<W>,
                                         attention_forward_blocks<W>)
    attention_forward_hopper_kernel(
        const __grid_constant__ attention_forward_hopper_pass<typename F::stored> f)
{
    using T = typename F::stored;
    using stage = attention_key_stage<T, W>;
    constexpr int N = attention_hopper_tile, GROUPS = attention_forward_groups<W>;
    constexpr int ROWS = 64 * GROUPS;
    extern __shared__ __align__(1024) unsigned char hopper_memory[];
    auto &room = *(attention_forward_hopper_room<T, W> *)hopper_memory;
    const attention_sizes &z = f.z;
    const attention_mma_view &view = f.view;
    const attention_task task = attention_task_at(f.tasks, blockIdx.x);
    const int b = (int)task.b, h = (int)task.head, kv = h / (int)z.G;
    const int t0 = attention_hopper_first(view, task, ROWS);
    const int end = view.seen_by(min(t0 + ROWS, view.T) - 1);
    const auto order = [&](int n) {
        room.ring.order(n, sizeof(stage), [&](stage &to, gd_hopper::barrier *full) {
            attention_hopper_load(to.k, f.k_map, full, kv, n * N, b);
            attention_hopper_load(to.v, f.v_map, full, kv, n * N, b);
        });
    };

    if (threadIdx.x == 0) {
        room.ring.init(GROUPS);
        gd_hopper::barrier_init(&room.q_full, 1);
        gd_hopper::barriers_ready();
        gd_hopper::arrive_and_expect(&room.q_full, sizeof room.q);
        attention_hopper_load(room.q, f.q_map, &room.q_full, h, t0, b);
        for (int n = 0; n < room.ring.ahead && n * N < end; n++) order(n);
    }
    __syncthreads();

    const int group = attention_hopper_group();
    const int t = t0 + attention_hopper_warp_row(); // this warp's first
    const int first = t0 + 64 * group;              // this group's
    const int group_end = first >= 0 ? view.seen_by(min(first + 64, view.T) - 1) : 0;
    attention_mma_sums<1, W> out = {};
    attention_online<1> online;
    for (int r = 0; r < 2; r++) online.largest[0][r] = -INFINITY, online.total[0][r] = 0;
    gd_hopper::wait(&room.q_full, 0);
    attention_hopper_weights<N> weight; // of the tile before
    // Tile n: its scores and weights. The product of the tile before with its values runs
    // alongside, so that the tensor core has work during the exponentials.
    const auto step = [&](int n, auto has_before) {
        constexpr bool BEFORE = decltype(has_before)::value;
        const stage &tile = room.ring.wait(n);
        attention_mma_sums<1, N> score;
        float factor[1][2];
        gd_hopper::products_begin();
        attention_hopper_scores<F>(score, room.q, 64 * group, tile.k);
        gd_hopper::products_commit();
        if constexpr (BEFORE) {
            attention_hopper_weigh<F>(out, weight, room.ring.at(n - 1).v);
            gd_hopper::products_commit();
        }
        gd_hopper::products_wait<BEFORE>(); // scores
        scale_and_mask(score, f.scale, view, t, n * N);
        const bool changed = online_softmax(score, online, factor);
        if (f.dropout.threshold)
            attention_draw<false>(score.at, f.dropout, b * (int)z.H + h, t, n * N);
        if constexpr (BEFORE) {
            gd_hopper::products_wait<0>(); // out
            room.ring.leave(n - 1);
        }
        if (changed) rescale(out, factor);
        attention_hopper_round<F, true>(weight, score);
    };
    const auto order_ahead = [&](int n) {
        if (threadIdx.x == 0 && (n + room.ring.ahead) * N < end) order(n + room.ring.ahead);
        __syncwarp();
    };
    int n = 0;
    if (group_end > 0) {
        order_ahead(n);
        step(n, attention_constant<false>());
        for (n++; n * N < group_end; n++) {
            order_ahead(n);
            step(n, attention_constant<true>());
        }
        gd_hopper::products_begin();
        attention_hopper_weigh<F>(out, weight, room.ring.at(n - 1).v);
        gd_hopper::products_commit();
        gd_hopper::products_wait<0>();
        room.ring.leave(n - 1);
    }
    for (; n * N < end; n++) { // what other groups see
        order_ahead(n);
        room.ring.wait(n);
        room.ring.leave(n);
    }
    if (first < 0) return;
    finish_sums(f, out, online, b, h, t);
    // y, in the place of the group's queries, and from there to memory.
#pragma unroll
    for (int c = 0; c < W / 8; c++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int r = attention_hopper_warp_row() + attention_mma_row_of(0, i);
            *(uint32_t *)&room.q.at[c / 8][r][(c % 8 ^ r % 8) * 8 + attention_mma_lane() % 4 * 2] =
                gd_mma::round_pair<false>(F(), out.at[0][c][i], out.at[0][c][i + 1]);
        }
    gd_hopper::writes_done();
    gd_hopper::group_barrier(1 + group);
    if (threadIdx.x % gd_hopper::group != 0) return;
    for (int c = 0; c < z.E; c += gd_hopper::panel)
        gd_hopper::store_box(&f.y_map, room.q.at[c / gd_hopper::panel][64 * group], c, h, first, b);
    gd_hopper::stores_wait();
}

// False if TMA cannot load the inputs or store the result.
template <class F, int W>
static bool attention_forward_hopper(const gd_call *call,
                                     const attention_forward_mma_pass<typename F::stored> &pass,
                                     gd_status *status)
{
    using T = typename F::stored;
    attention_forward_hopper_pass<T> f = {};
    static_cast<attention_forward_mma_pass<T> &>(f) = pass;
    const attention_sizes &z = f.z;
    constexpr int GROUPS = attention_forward_groups<W>, ROWS = 64 * GROUPS;
    f.tasks = attention_tasks_of(z.B, z.H, z.T, ROWS);
    if (f.tasks.count() > INT32_MAX ||
        !attention_hopper_map(&f.q_map, f.q, z.B, z.T, z.H, z.D, ROWS) ||
        !attention_hopper_map(&f.k_map, f.k, z.B, z.S, z.KV, z.D, attention_hopper_tile) ||
        !attention_hopper_map(&f.v_map, f.v, z.B, z.S, z.KV, z.E, attention_hopper_tile) ||
        !attention_hopper_map(&f.y_map, f.y, z.B, z.T, z.H, z.E, 64)) {
        return false;
    }
    *status =
        attention_launch(call, attention_forward_hopper_kernel<F, W>, f, gd_hopper::group * GROUPS,
                         sizeof(attention_forward_hopper_room<T, W>));
    return true;
}

#endif
