// attention_backward_hopper.cuh - the 16-bit backward on Hopper. attention_hopper.cuh has the
// shared parts, attention_backward_mma.cuh the gradients.
//
// Two kernels: in the first a block has keys and goes through the queries for dk and dv, and stores
// ds; in the second it has queries and multiplies ds by the keys for dq. So there are five products
// and every sum has one writer. ds is stored in 16 bits, as it is rounded for its products anyway,
// for some heads at a time.
#ifndef GD_ATTENTION_BACKWARD_HOPPER_CUH
#define GD_ATTENTION_BACKWARD_HOPPER_CUH

#include "attention/attention_backward_mma.cuh"
#include "attention/attention_hopper.cuh"

namespace attention_mma
{

// What the first kernel needs of a tile of queries. Past the last query lse is infinite, so that
// the weights there are 0.
struct alignas(16) query_tile {
    float lse[hopper_tile], delta[hopper_tile];
};

// Stores delta, and lse with it, by tiles of queries.
struct query_tiles {
    query_tile *at; // [B, H, count]
    int count, T;
    const float *lse; // [B, H, T]

    __device__ auto operator()(int64_t head, int64_t t) const
    {
        constexpr int N = hopper_tile;
        query_tile &tile = at[head * count + t / N];
        const float its_lse = t < T ? lse[head * T + t] : INFINITY;
        return [&tile, t, its_lse](float delta) {
            tile.delta[t % N] = delta;
            tile.lse[t % N] = its_lse;
        };
    }
};

// ds of some heads: per head and tile of queries, those of the tiles of keys that it sees.
struct ds_tiles {
    gd_wgmma::blocks *at; // NULL: dq is not wanted
    int64_t of_head;
    int keys;  // tiles
    int shift; // causal: tile i of the queries sees the tiles of keys up to i + shift
    bool causal;

    // How many tiles of a head come before those of tile i of the queries.
    __host__ __device__ int64_t before(int64_t i) const
    {
        return causal ? triangle(i + shift) - triangle(shift) : i * keys;
    }
    __host__ __device__ static int64_t triangle(int64_t n)
    {
        return n > 0 ? n * (n + 1) / 2 : 0;
    }
};

template <class T>
struct hopper_backward_pass : backward_pass<T> {
    CUtensorMap q_tiles, dy_tiles, k_tiles, v_tiles;
    CUtensorMap dq_tiles, dk_tiles, dv_tiles; // of those that are wanted
    query_tiles queries;
    ds_tiles ds;
    int first; // key head, of all batches, to which task.head is added
};

// ---- dk and dv --------------------------------------------------------------------------------
//
// A block is one group: the multiprocessor takes the next keys as soon as one is finished, which
// counts most where there are few queries.

template <int W>
constexpr int dkv_blocks = W == 64 ? 3 : 2; // per multiprocessor

template <class T, int W>
struct dkv_stage {
    hopper_panels<T, hopper_tile, W> q, dy;
    query_tile query;
    static constexpr int bytes = sizeof(q) + sizeof(dy) + sizeof(query);
};

template <class T, int W>
struct dkv_shared {
    hopper_panels<T, hopper_tile, W> k, v;
    hopper_ring<dkv_stage<T, W>, dkv_blocks<W>> ring;
    gd_async::barrier rows_full, before[2];
};

// The tiles of queries that a block goes through, of one head after another.
struct query_walk {
    int h, t, from, T;

    __device__ void next()
    {
        t += hopper_tile;
        if (t >= T) t = from, h++;
    }
};

// Stores ds of this warp's 16 keys; its queries are the columns.
__device__ inline void store_ds(gd_wgmma::blocks &to, const rounded_tile<hopper_tile> &ds)
{
    const int key_block = hopper_warp_row() / 8;
#pragma unroll
    for (int k = 0; k < hopper_tile / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            to.at[key_block + i % 2][2 * k + i / 2][lane_of_thread()] = ds.at[k][i];
}

// A task is a tile of keys of one key head. Early keys, which most queries see, come first.
template <class F, int W>
static __global__ void GD_LAUNCH_BOUNDS(gd_wgmma::group, dkv_blocks<W>)
    hopper_dkv_kernel(const __grid_constant__ hopper_backward_pass<typename F::stored> p)
{
    gd_in_turn();
    using T = typename F::stored;
    using stage = dkv_stage<T, W>;
    constexpr int N = hopper_tile;
    extern __shared__ __align__(1024) unsigned char hopper_memory[];
    auto &shared = *(dkv_shared<T, W> *)hopper_memory;
    const attention_sizes &z = p.z;
    const head_view &view = p.view;
    const attention_task task = attention_task_at(p.tasks, blockIdx.x);
    const int head = p.first + (int)task.head, KV = (int)z.KV, G = (int)z.G;
    const int b = head / KV, kv = head % KV;
    const int s0 = (int)task.tile * N;
    // Queries from the tile of the first that sees key s0 on, one head after another.
    const int sees = s0 - (view.S - view.T), from = view.causal && sees > 0 ? sees / N * N : 0;
    const int tiles = from < view.T ? (view.T - from + N - 1) / N : 0, end = tiles * G;
    query_walk at = {kv * G, from, from, view.T}, copied = at;
    const auto order = [&](int n) {
        const int h = copied.h, t = copied.t;
        shared.ring.issue(n, stage::bytes, [&](stage &to, gd_async::barrier &full) {
            hopper_load(to.q, p.q_tiles, full, h, t, b);
            hopper_load(to.dy, p.dy_tiles, full, h, t, b);
            gd_async::bulk_copy(&to.query, p.queries.at + (b * z.H + h) * p.queries.count + t / N,
                                sizeof to.query, full);
        });
        copied.next();
    };

    if (threadIdx.x == 0) {
        shared.ring.init(1);
        gd_async::barrier_init(shared.rows_full, 1);
        for (int i = 0; i < 2; i++) gd_async::barrier_init(shared.before[i], 1);
        gd_async::barrier_init_done();
        gd_async::fence_async();
        if (end > 0) {
            gd_async::barrier_expect(shared.rows_full, sizeof shared.k + sizeof shared.v);
            hopper_load(shared.k, p.k_tiles, shared.rows_full, kv, s0, b);
            hopper_load(shared.v, p.v_tiles, shared.rows_full, kv, s0, b);
        }
        for (int n = 0; n < shared.ring.ahead && n < end; n++) order(n);
    }
    __syncthreads();

    const int s = s0 + hopper_warp_row(); // this warp's first
    sums<1, W> dk = {}, dv = {};
    if (end > 0) gd_async::barrier_wait(shared.rows_full, 0);
    for (int n = 0; n < end; n++, at.next()) {
        if (threadIdx.x == 0 && n + shared.ring.ahead < end) order(n + shared.ring.ahead);
        __syncwarp();
        const int h = at.h, t = at.t;
        const stage &tile = shared.ring.wait(n);
        sums<1, N> weight, dscore;
        gd_wgmma::fence();
        hopper_scores<F>(weight, shared.k, 0, tile.q);
        gd_wgmma::commit();
        hopper_scores<F>(dscore, shared.v, 0, tile.dy);
        gd_wgmma::commit();
        gd_wgmma::wait<1>(); // scores
        weights_by_key(weight, tile.query.lse, p.scale_of_exponents, view, s, t);
        if (p.dropout.threshold)
            attention_apply_dropout<true>(weight.at, p.dropout, b * (int)z.H + h, s, t);
        rounded_tile<N> rounded, drounded;
        round_tile<F, true>(rounded, weight);
        gd_wgmma::wait<0>(); // dp
        score_gradients<true>(dscore, weight, p.dropout, [&](int, int n) {
            return *(const float2 *)&tile.query.delta[column_of(n, 0)];
        });
        round_tile<F, false>(drounded, dscore);
        gd_wgmma::fence();
        hopper_add_weighted<F>(dv, rounded, tile.dy);
        hopper_add_weighted<F>(dk, drounded, tile.q);
        gd_wgmma::commit();
        if (p.ds.at) {
            const int64_t of = b * (int)z.H + h - (int64_t)p.first * G;
            store_ds(p.ds.at[of * p.ds.of_head + p.ds.before(t / N) + task.tile], drounded);
        }
        gd_wgmma::wait<0>();
        shared.ring.release(n);
    }
    if (p.angles) rotate_back<F>(dk, p.angles, s, view.S);
    if (p.dk.data)
        hopper_store<F>(dk, p.scale, shared.k, 0, p.dk_tiles, z.D, kv, s0, b,
                        p.accumulate[1] ? &shared.before[0] : nullptr);
    if (p.dv.data)
        hopper_store<F>(dv, p.dropout.scale_f32, shared.v, 0, p.dv_tiles, z.E, kv, s0, b,
                        p.accumulate[2] ? &shared.before[1] : nullptr);
    if (threadIdx.x == 0) gd_wgmma::tma_stores_wait();
}

// ---- dq ---------------------------------------------------------------------------------------
//
// Little work for many bytes: the groups of a block share the keys.

constexpr int dq_groups = 2;
template <int W>
constexpr int dq_blocks = W == 64 ? 3 : 2; // per multiprocessor

template <class T, int W>
struct dq_stage {
    hopper_panels<T, hopper_tile, W> k;
    gd_wgmma::blocks ds[dq_groups];
};

template <class T, int W>
struct dq_shared {
    hopper_ring<dq_stage<T, W>, 3> ring;
    gd_async::barrier before[dq_groups];
};

// A task is a block's queries of one head. Late queries, which see the most keys, come first.
template <class F, int W>
static __global__ void GD_LAUNCH_BOUNDS(gd_wgmma::group *dq_groups, dq_blocks<W>)
    hopper_dq_kernel(const __grid_constant__ hopper_backward_pass<typename F::stored> p)
{
    gd_in_turn();
    using T = typename F::stored;
    using stage = dq_stage<T, W>;
    constexpr int N = hopper_tile, GROUPS = dq_groups;
    extern __shared__ __align__(1024) unsigned char hopper_memory[];
    auto &shared = *(dq_shared<T, W> *)hopper_memory;
    const attention_sizes &z = p.z;
    const head_view &view = p.view;
    const attention_task task = attention_task_at(p.tasks, blockIdx.x);
    const int head = p.first * (int)z.G + (int)task.head;
    const int b = head / (int)z.H, h = head % (int)z.H, kv = h / (int)z.G;
    const int t0 = hopper_first(view, task, GROUPS * N);
    // The tiles of keys that a group needs; the last group needs the most.
    const auto tiles_of = [&](int group) {
        const int first = t0 + N * group;
        return first < 0 ? 0 : (view.seen_by(min(first + N, view.T) - 1) + N - 1) / N;
    };
    const int end = tiles_of(GROUPS - 1);
    const gd_wgmma::blocks *ds = p.ds.at + task.head * p.ds.of_head;
    const auto order = [&](int n) {
        int wanted = 0;
        for (int g = 0; g < GROUPS; g++) wanted += n < tiles_of(g);
        shared.ring.issue(n, sizeof(stage::k) + wanted * sizeof(stage::ds[0]),
                          [&](stage &to, gd_async::barrier &full) {
                              hopper_load(to.k, p.k_tiles, full, kv, n * N, b);
                              for (int g = GROUPS - wanted; g < GROUPS; g++)
                                  gd_async::bulk_copy(&to.ds[g], ds + p.ds.before(t0 / N + g) + n,
                                                      sizeof to.ds[g], full);
                          });
    };

    if (threadIdx.x == 0) {
        shared.ring.init(GROUPS);
        for (int g = 0; g < GROUPS; g++) gd_async::barrier_init(shared.before[g], 1);
        gd_async::barrier_init_done();
        gd_async::fence_async();
        for (int n = 0; n < shared.ring.ahead && n < end; n++) order(n);
    }
    __syncthreads();

    const int group = hopper_group(), tiles = tiles_of(group);
    sums<1, W> dq = {};
    for (int n = 0; n < end; n++) {
        if (threadIdx.x == 0 && n + shared.ring.ahead < end) order(n + shared.ring.ahead);
        __syncwarp();
        const stage &tile = shared.ring.wait(n);
        if (n < tiles) {
            gd_wgmma::fence();
            hopper_add_weighted<F>(dq, tile.ds[group], tile.k);
            gd_wgmma::commit();
            gd_wgmma::wait<0>();
        }
        shared.ring.release(n);
    }
    __syncthreads(); // the stages are free
    const int first = t0 + N * group;
    if (first < 0) return;
    if (p.angles) rotate_back<F>(dq, p.angles, t0 + hopper_warp_row(), view.T);
    hopper_store<F>(dq, p.scale, shared.ring.stage[group].k, 0, p.dq_tiles, z.D, h, first, b,
                    p.accumulate[0] ? &shared.before[group] : nullptr);
    if (threadIdx.x % gd_wgmma::group == 0) gd_wgmma::tma_stores_wait();
}

// ---- Launching --------------------------------------------------------------------------------

// ds takes at most so many bytes at a time, or those of one key head's queries, which must not
// exceed the second limit.
constexpr int64_t ds_bytes = 512 << 20, ds_most_bytes = (int64_t)2 << 30;

// False if TMA cannot load the inputs or store the results, or if ds of one key head is too large.
template <class F, int W>
static bool hopper_backward(const gd_call *call, const backward_pass<typename F::stored> &pass,
                            gd_status *status)
{
    using T = typename F::stored;
    hopper_backward_pass<T> p = {};
    static_cast<backward_pass<T> &>(p) = pass;
    const attention_sizes &z = p.z;
    constexpr int N = hopper_tile;
    const attention_tasks queries = attention_tasks_of(z.B, z.H, z.T, N);
    const attention_tasks keys = attention_tasks_of(z.B, z.KV, z.S, N);
    const auto map = [&](CUtensorMap *m, const attention_heads<T> &x, int64_t rows, int64_t heads,
                         int64_t columns) {
        return !x.data || hopper_map(m, x, z.B, rows, heads, columns, N);
    };
    if (queries.count() > INT32_MAX || keys.count() > INT32_MAX ||
        !map(&p.q_tiles, p.q, z.T, z.H, z.D) || !map(&p.dy_tiles, p.dy, z.T, z.H, z.E) ||
        !map(&p.k_tiles, p.k, z.S, z.KV, z.D) || !map(&p.v_tiles, p.v, z.S, z.KV, z.E) ||
        !map(&p.dq_tiles, p.dq, z.T, z.H, z.D) || !map(&p.dk_tiles, p.dk, z.S, z.KV, z.D) ||
        !map(&p.dv_tiles, p.dv, z.S, z.KV, z.E)) {
        return false;
    }
    p.ds = {nullptr, 0, (int)keys.tiles, (int)((z.S - z.T + N - 1) >> 6), p.view.causal};
    p.ds.of_head = p.ds.before(queries.tiles);
    const int64_t pairs = z.B * z.KV, each = z.G * p.ds.of_head * (int64_t)sizeof(*p.ds.at);
    if (p.dq.data && each > ds_most_bytes) return false;
    int64_t at_once = pairs;
    if (p.dq.data && pairs > 0 && each > 0) {
        const int64_t fit = gd_max64(1, ds_bytes / each);
        at_once = gd_ceil_div(pairs, gd_ceil_div(pairs, fit)); // equal parts
    }
    if (p.dq.data) p.ds.at = (gd_wgmma::blocks *)gd_call_scratch(call, (size_t)(at_once * each));
    p.queries = {(query_tile *)gd_call_scratch(call, (size_t)queries.count() * sizeof(query_tile)),
                 (int)queries.tiles, (int)z.T, p.lse};
    if (!p.queries.at || (p.dq.data && !p.ds.at)) {
        *status = gd_error_status(call->context);
        return true;
    }
    *status = attention_delta(call, p.dy, z, queries.tiles * N, p.queries);
    for (int64_t first = 0; !*status && first < pairs; first += at_once) {
        const int64_t some = gd_min64(at_once, pairs - first);
        p.first = (int)first;
        p.tasks = attention_tasks_of(1, some, z.S, N);
        *status = attention_launch(call, hopper_dkv_kernel<F, W>, p, gd_wgmma::group,
                                   sizeof(dkv_shared<T, W>));
        if (*status || !p.dq.data) continue;
        p.tasks = attention_tasks_of(1, some * z.G, z.T, N * dq_groups);
        *status = attention_launch(call, hopper_dq_kernel<F, W>, p, gd_wgmma::group * dq_groups,
                                   sizeof(dq_shared<T, W>));
    }
    return true;
}

} // namespace attention_mma

#endif
