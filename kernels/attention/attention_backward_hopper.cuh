// attention_backward_hopper.cuh - the 16-bit backward on Hopper. attention_hopper.cuh has the
// shared parts, attention_backward_mma.cuh the gradients and why there are two kernels.
#ifndef GD_ATTENTION_BACKWARD_HOPPER_CUH
#define GD_ATTENTION_BACKWARD_HOPPER_CUH

#include "attention/attention_backward_mma.cuh"
#include "attention/attention_hopper.cuh"

// What the kernel for keys needs of a tile of queries, written by the kernel for queries. Past the
// last query lse is infinite, so that the weights there are 0.
struct alignas(16) attention_query_tile {
    float lse[attention_hopper_tile], delta[attention_hopper_tile];
};

template <class T>
struct attention_backward_hopper_pass : attention_backward_mma_pass<T> {
    CUtensorMap q_rows, dy_rows;                     // boxes of the rows of a block for dq
    CUtensorMap q_tiles, dy_tiles, k_tiles, v_tiles; // and of a tile
    attention_query_tile *queries;                   // [B, H, query_tiles]
    int query_tiles;
};

// ---- dq ---------------------------------------------------------------------------------------

// Groups per block, and blocks per multiprocessor: as many as registers allow. Blocks of one group
// are finished evenly, also if there are few keys; wide heads leave no shared memory for several.
template <int W>
constexpr int attention_dq_groups = W == 64 ? 1 : 3;
template <int W>
constexpr int attention_dq_blocks = W == 64 ? 4 : 1;

template <class T, int W>
struct attention_dq_room {
    static constexpr int groups = attention_dq_groups<W>, rows = 64 * groups;
    attention_hopper_panels<T, rows, W> q, dy;
    attention_hopper_ring<attention_key_stage<T, W>, W == 64 ? 2 : 4> ring;
    gd_hopper::barrier rows_full;
    attention_query_tile query[groups];
};

// A task is a block's queries of one head. Late queries, which see the most keys, come first.
template <class F, int W>
static __global__ void __launch_bounds__(gd_hopper::group *attention_dq_groups<W>,
                                         attention_dq_blocks<W>)
    attention_dq_hopper_kernel(
        const __grid_constant__ attention_backward_hopper_pass<typename F::stored> p)
{
    using T = typename F::stored;
    using stage = attention_key_stage<T, W>;
    using room_type = attention_dq_room<T, W>;
    constexpr int N = attention_hopper_tile, ROWS = room_type::rows;
    extern __shared__ __align__(1024) unsigned char hopper_memory[];
    auto &room = *(room_type *)hopper_memory;
    const attention_sizes &z = p.z;
    const attention_mma_view &view = p.view;
    const attention_task task = attention_task_at(p.tasks, blockIdx.x);
    const int b = (int)task.b, h = (int)task.head, kv = h / (int)z.G;
    const int head = b * (int)z.H + h;
    const int t0 = attention_hopper_first(view, task, ROWS);
    const int end = p.dq.data ? view.seen_by(min(t0 + ROWS, view.T) - 1) : 0;
    const auto order = [&](int n) {
        room.ring.order(n, sizeof(stage), [&](stage &to, gd_hopper::barrier *full) {
            attention_hopper_load(to.k, p.k_tiles, full, kv, n * N, b);
            attention_hopper_load(to.v, p.v_tiles, full, kv, n * N, b);
        });
    };

    if (threadIdx.x == 0) {
        room.ring.init(room_type::groups);
        gd_hopper::barrier_init(&room.rows_full, 1);
        gd_hopper::barriers_ready();
        if (end > 0) {
            gd_hopper::arrive_and_expect(&room.rows_full, sizeof room.q + sizeof room.dy);
            attention_hopper_load(room.q, p.q_rows, &room.rows_full, h, t0, b);
            attention_hopper_load(room.dy, p.dy_rows, &room.rows_full, h, t0, b);
        }
        for (int n = 0; n < room.ring.ahead && n * N < end; n++) order(n);
    }
    __syncwarp();
    { // lse and delta, two threads per row
        const int r = threadIdx.x / 2, part = threadIdx.x % 2;
        const bool inside = t0 + r >= 0 && t0 + r < view.T;
        float sum = 0;
        if (inside)
            sum = row_product(p.y.at(b, t0 + r, h), p.dy.at(b, t0 + r, h), (int)z.E, part, 2);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        if (part == 0 && t0 + r >= 0) {
            const float lse = inside ? p.lse[(int64_t)head * view.T + t0 + r] : INFINITY;
            const int of_tile = r % N;
            attention_query_tile &here = room.query[r / N];
            attention_query_tile &there = p.queries[head * p.query_tiles + (t0 + r) / N];
            here.lse[of_tile] = there.lse[of_tile] = lse;
            here.delta[of_tile] = there.delta[of_tile] = sum;
        }
    }
    __syncthreads();
    if (!p.dq.data) return;

    const int group = attention_hopper_group();
    const int warp_row = attention_hopper_warp_row();
    const int t = t0 + warp_row;       // this warp's first
    const int first = t0 + 64 * group; // this group's
    const int group_end = first >= 0 ? view.seen_by(min(first + 64, view.T) - 1) : 0;
    const int row = warp_row % 64 + attention_mma_row_of(0, 0); // this lane's first, in its tile
    const attention_query_tile &query = room.query[group];
    attention_mma_sums<1, W> dq = {};
    if (end > 0) gd_hopper::wait(&room.rows_full, 0);
    for (int n = 0; n * N < end; n++) {
        if (threadIdx.x == 0 && (n + room.ring.ahead) * N < end) order(n + room.ring.ahead);
        __syncwarp();
        const stage &tile = room.ring.wait(n);
        if (n * N < group_end) {
            attention_mma_sums<1, N> weight, dscore;
            gd_hopper::products_begin();
            attention_hopper_scores<F>(weight, room.q, 64 * group, tile.k);
            gd_hopper::products_commit();
            attention_hopper_scores<F>(dscore, room.dy, 64 * group, tile.v);
            gd_hopper::products_commit();
            gd_hopper::products_wait<1>();
            const float lse[1][2] = {{query.lse[row], query.lse[row + 8]}};
            weights_by_query(weight, lse, p.scale_of_exponents, view, t, n * N);
            if (p.dropout.threshold) attention_draw<false>(weight.at, p.dropout, head, t, n * N);
            gd_hopper::products_wait<0>();
            const float2 delta = make_float2(query.delta[row], query.delta[row + 8]);
            score_gradients<false>(dscore, weight, p.dropout, [&](int, int) { return delta; });
            attention_hopper_weights<N> rounded;
            attention_hopper_round<F, false>(rounded, dscore);
            gd_hopper::products_begin();
            attention_hopper_weigh<F>(dq, rounded, tile.k);
            gd_hopper::products_commit();
            gd_hopper::products_wait<0>();
        }
        room.ring.leave(n);
    }
    if (first < 0) return;
    if (p.angles) attention_mma_turn_back<F>(dq, p.angles, t, view.T);
    attention_mma_store<F>(p.dq.at(b, t, h), p.dq.row, view.T - t, z.D, dq, p.scale,
                           p.accumulate[0]);
}

// ---- dk and dv --------------------------------------------------------------------------------
//
// A block is one group, which needs more registers than for dq.

template <int W>
constexpr int attention_dkv_blocks = W == 64 ? 3 : 2; // per multiprocessor

template <class T, int W>
struct attention_dkv_stage {
    attention_hopper_panels<T, attention_hopper_tile, W> q, dy;
    attention_query_tile query;
    static constexpr int bytes = sizeof(q) + sizeof(dy) + sizeof(query);
};

template <class T, int W>
struct attention_dkv_room {
    attention_hopper_panels<T, attention_hopper_tile, W> k, v;
    attention_hopper_ring<attention_dkv_stage<T, W>, attention_dkv_blocks<W>> ring;
    gd_hopper::barrier rows_full;
};

// A task is a tile of keys of one key head. Early keys, which most queries see, come first.
template <class F, int W>
static __global__ void __launch_bounds__(gd_hopper::group, attention_dkv_blocks<W>)
    attention_dkv_hopper_kernel(
        const __grid_constant__ attention_backward_hopper_pass<typename F::stored> p)
{
    using T = typename F::stored;
    using stage = attention_dkv_stage<T, W>;
    constexpr int N = attention_hopper_tile;
    extern __shared__ __align__(1024) unsigned char hopper_memory[];
    auto &room = *(attention_dkv_room<T, W> *)hopper_memory;
    const attention_sizes &z = p.z;
    const attention_mma_view &view = p.view;
    const attention_task task = attention_task_at(p.tasks, blockIdx.x);
    const int b = (int)task.b, kv = (int)task.head, G = (int)z.G;
    const int s0 = (int)task.tile * N;
    // Queries from the tile of the first that sees key s0 on, one head after another.
    const int sees = s0 - (view.S - view.T), from = view.causal && sees > 0 ? sees / N * N : 0;
    const int tiles = from < view.T ? (view.T - from + N - 1) / N : 0, end = tiles * G;
    const auto order = [&](int n) {
        const int h = kv * G + n / tiles, t = from + n % tiles * N;
        room.ring.order(n, stage::bytes, [&](stage &to, gd_hopper::barrier *full) {
            attention_hopper_load(to.q, p.q_tiles, full, h, t, b);
            attention_hopper_load(to.dy, p.dy_tiles, full, h, t, b);
            gd_hopper::load_bytes(&to.query, p.queries + (b * z.H + h) * p.query_tiles + t / N,
                                  sizeof to.query, full);
        });
    };

    if (threadIdx.x == 0) {
        room.ring.init(1);
        gd_hopper::barrier_init(&room.rows_full, 1);
        gd_hopper::barriers_ready();
        if (end > 0) {
            gd_hopper::arrive_and_expect(&room.rows_full, sizeof room.k + sizeof room.v);
            attention_hopper_load(room.k, p.k_tiles, &room.rows_full, kv, s0, b);
            attention_hopper_load(room.v, p.v_tiles, &room.rows_full, kv, s0, b);
        }
        for (int n = 0; n < room.ring.ahead && n < end; n++) order(n);
    }
    __syncthreads();

    const int s = s0 + attention_hopper_warp_row(); // this warp's first
    attention_mma_sums<1, W> dk = {}, dv = {};
    if (end > 0) gd_hopper::wait(&room.rows_full, 0);
    for (int n = 0; n < end; n++) {
        if (threadIdx.x == 0 && n + room.ring.ahead < end) order(n + room.ring.ahead);
        __syncwarp();
        const int h = kv * G + n / tiles, t = from + n % tiles * N;
        const stage &tile = room.ring.wait(n);
        attention_mma_sums<1, N> weight, dscore;
        gd_hopper::products_begin();
        attention_hopper_scores<F>(weight, room.k, 0, tile.q);
        gd_hopper::products_commit();
        attention_hopper_scores<F>(dscore, room.v, 0, tile.dy);
        gd_hopper::products_commit();
        gd_hopper::products_wait<1>(); // scores
        weights_by_key(weight, tile.query.lse, p.scale_of_exponents, view, s, t);
        if (p.dropout.threshold) attention_draw<true>(weight.at, p.dropout, b * (int)z.H + h, s, t);
        attention_hopper_weights<N> rounded, drounded;
        attention_hopper_round<F, true>(rounded, weight);
        gd_hopper::products_wait<0>(); // dp
        score_gradients<true>(dscore, weight, p.dropout, [&](int, int n) {
            return *(const float2 *)&tile.query.delta[attention_mma_column_of(n, 0)];
        });
        attention_hopper_round<F, false>(drounded, dscore);
        gd_hopper::products_begin();
        attention_hopper_weigh<F>(dv, rounded, tile.dy);
        attention_hopper_weigh<F>(dk, drounded, tile.q);
        gd_hopper::products_commit();
        gd_hopper::products_wait<0>();
        room.ring.leave(n);
    }
    const int rows = view.S - s;
    if (p.angles) attention_mma_turn_back<F>(dk, p.angles, s, view.S);
    if (p.dk.data)
        attention_mma_store<F>(p.dk.at(b, s, kv), p.dk.row, rows, z.D, dk, p.scale,
                               p.accumulate[1]);
    if (p.dv.data)
        attention_mma_store<F>(p.dv.at(b, s, kv), p.dv.row, rows, z.E, dv, p.dropout.scale_f32,
                               p.accumulate[2]);
}

// ---- Launching --------------------------------------------------------------------------------

// False if TMA cannot load the inputs.
template <class F, int W>
static bool attention_backward_hopper(const gd_call *call,
                                      const attention_backward_mma_pass<typename F::stored> &pass,
                                      gd_status *status)
{
    using T = typename F::stored;
    attention_backward_hopper_pass<T> p = {};
    static_cast<attention_backward_mma_pass<T> &>(p) = pass;
    const attention_sizes &z = p.z;
    using dq_room = attention_dq_room<T, W>;
    constexpr int tile = attention_hopper_tile, rows = dq_room::rows;
    const attention_tasks queries = attention_tasks_of(z.B, z.H, z.T, rows);
    const attention_tasks keys = attention_tasks_of(z.B, z.KV, z.S, tile);
    if (queries.count() > INT32_MAX || keys.count() > INT32_MAX ||
        !attention_hopper_map(&p.q_rows, p.q, z.B, z.T, z.H, z.D, rows) ||
        !attention_hopper_map(&p.q_tiles, p.q, z.B, z.T, z.H, z.D, tile) ||
        !attention_hopper_map(&p.dy_rows, p.dy, z.B, z.T, z.H, z.E, rows) ||
        !attention_hopper_map(&p.dy_tiles, p.dy, z.B, z.T, z.H, z.E, tile) ||
        !attention_hopper_map(&p.k_tiles, p.k, z.B, z.S, z.KV, z.D, tile) ||
        !attention_hopper_map(&p.v_tiles, p.v, z.B, z.S, z.KV, z.E, tile)) {
        return false;
    }
    p.query_tiles = (int)gd_cuda_divide_up(z.T, tile);
    p.queries = (attention_query_tile *)gd_call_scratch(call, (size_t)(z.B * z.H * p.query_tiles) *
                                                                  sizeof(attention_query_tile));
    if (!p.queries) {
        *status = gd_error_status(call->context);
        return true;
    }
    p.tasks = queries;
    *status = attention_launch(call, attention_dq_hopper_kernel<F, W>, p,
                               gd_hopper::group * dq_room::groups, sizeof(dq_room));
    p.tasks = keys;
    if (!*status && (p.dk.data || p.dv.data))
        *status = attention_launch(call, attention_dkv_hopper_kernel<F, W>, p, gd_hopper::group,
                                   sizeof(attention_dkv_room<T, W>));
    return true;
}

#endif
