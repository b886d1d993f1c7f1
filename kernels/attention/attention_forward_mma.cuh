// attention_forward_mma.cuh - the forward on tensor cores: an online softmax in registers. The same
// mathematics as attention_forward.cu; attention_mma.cuh has the shared parts.
#ifndef GD_ATTENTION_FORWARD_MMA_CUH
#define GD_ATTENTION_FORWARD_MMA_CUH

#include "attention/attention_mma.cuh"

namespace attention_mma
{

template <class T>
struct forward_pass {
    attention_tasks tasks;
    attention_sizes z;
    head_view view;
    float scale; // of scores that are exponents of 2
    attention_heads<T> q, k, v, y;
    float *lse; // [B, H, T], to base 2; or NULL
    attention_dropout dropout;
};

// The block's queries, and two stages for a tile of keys and of values.
template <class F, int W>
struct forward_shared {
    using row = tile_row<typename F::stored, W>;
    static constexpr int N = division<F, W>::forward_tile;
    row q[division<F, W>::rows];
    row k[2][N], v[2][N];
};

// For a lane's two rows of each 16: the largest score so far and the sum of 2^(score - largest)
// over this lane's columns alone.
template <int M>
struct online_state {
    float largest[M][2], total[M][2];
};

// Scales the scores, and sets them to -inf where the query does not see the key. The product with
// the scale is rounded separately: fused with the subtraction that follows, the largest score minus
// itself would not be 0.
template <int M, int N>
__device__ inline void scale_and_mask(sums<M, N> &score, float scale, const head_view &view, int t,
                                      int s)
{
    score.each([&](float &x, int, int, int) { x = __fmul_rn(x, scale); });
    mask_unseen(score, view, t, s, -INFINITY);
}

// Replaces a tile of scores by weights 2^(score - largest). Sums made with an older `largest` must
// be multiplied by factor = 2^(old - new). Returns false if that is 1 in all rows of the warp.
template <int M, int N>
__device__ inline bool online_softmax(sums<M, N> &score, online_state<M> &online,
                                      float (&factor)[M][2])
{
    bool changed = false;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float &largest = online.largest[m][r];
            float most = largest;
#pragma unroll
            for (int n = 0; n < N / 8; n++)
                most = fmaxf(most, fmaxf(score.at[m][n][2 * r], score.at[m][n][2 * r + 1]));
            most = along_row(most, [](float a, float b) { return fmaxf(a, b); });
            const float base = most == -INFINITY ? 0 : most; // a row that has seen no key yet
            factor[m][r] = gd_exp2_approx(largest - base);
            changed |= largest != most;
            float sum = 0;
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int i = 2 * r; i < 2 * r + 2; i++)
                    sum += score.at[m][n][i] = gd_exp2_approx(score.at[m][n][i] - base);
            largest = most;
            online.total[m][r] = online.total[m][r] * factor[m][r] + sum;
        }
    return __any_sync(0xffffffffu, changed);
}

template <int M, int W>
__device__ inline void rescale(sums<M, W> &out, const float (&factor)[M][2])
{
    out.each([&](float &x, int m, int, int i) { x *= factor[m][i / 2]; });
}

// out = y, and lse = largest + log2(total), for the warp's queries from t on.
template <class T, int M, int W>
__device__ inline void finish_sums(const forward_pass<T> &f, sums<M, W> &out,
                                   const online_state<M> &online, int64_t b, int64_t h, int t)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const float total = along_row(online.total[m][i / 2], gd_plus());
            const int row = t + row_of(m, i);
            const float factor = f.view.seen_by(row) > 0 ? f.dropout.scale_f32 / total : 0;
#pragma unroll
            for (int n = 0; n < W / 8; n++)
#pragma unroll
                for (int v = i; v < i + 2; v++) out.at[m][n][v] *= factor;
            if (f.lse && row < f.view.T && lane_of_thread() % 4 == 0)
                f.lse[(b * f.z.H + h) * f.z.T + row] = online.largest[m][i / 2] + log2f(total);
        }
}

// A task is a block's queries of one head. Late queries, which see the most keys, come first.
template <class F, int W>
static __global__ void GD_LAUNCH_BOUNDS(division<F, W>::threads, division<F, W>::blocks)
    forward_kernel(const __grid_constant__ forward_pass<typename F::stored> f)
{
    gd_in_turn();
    using T = typename F::stored;
    using plan = division<F, W>;
    constexpr int M = plan::groups, ROWS = plan::rows, N = plan::forward_tile;
    constexpr int STEP = terms_at_once<T>;
    constexpr bool HOLD = W <= 128; // the queries' registers, for all tiles
    extern __shared__ __align__(16) unsigned char memory[];
    auto &shared = *(forward_shared<F, W> *)memory;
    const attention_sizes &z = f.z;
    const head_view &view = f.view;
    const auto *rows = shared.q + row_of_warp<F, W>(); // this warp's

    const attention_task task = attention_task_at(f.tasks, blockIdx.x);
    const int64_t kv = task.head / z.G;
    const int t0 = (int)(f.tasks.tiles - 1 - task.tile) * ROWS;
    const int t = t0 + row_of_warp<F, W>(); // this warp's first
    const int end = view.seen_by(min(t0 + ROWS, view.T) - 1);
    const int warp_end = t < view.T ? view.seen_by(t + 16 * M - 1) : 0;
    const auto load = [&](int stage, int s0) {
        load_tile<N>(shared.k[stage], f.k.rows(task.b, s0, kv, view.S - s0), z.D);
        load_tile<N>(shared.v[stage], f.v.rows(task.b, s0, kv, view.S - s0), z.E);
    };

    uint32_t q[W / STEP][M][4];
    sums<M, W> out = {};
    online_state<M> online;
    for (int m = 0; m < M; m++)
        for (int r = 0; r < 2; r++) online.largest[m][r] = -INFINITY, online.total[m][r] = 0;

    load_tile<ROWS>(shared.q, f.q.rows(task.b, t0, task.head, view.T - t0), z.D);
    if (end > 0) load(0, 0);
    gd_async::copy_wait_all();
    __syncthreads();
#pragma unroll
    for (int i = 0; HOLD && i < W / STEP * M; i++)
        load_left(q[i / M][i % M], rows, 16 * (i % M), i / M * STEP);

    int stage = 0;
    for (int s0 = 0; s0 < end; s0 += N, stage ^= 1) {
        gd_async::copy_wait_all();
        __syncthreads(); // this tile has arrived, and all are done with the one before
        if (s0 + N < end) load(stage ^ 1, s0 + N);
        if (s0 >= warp_end) continue;
        sums<M, N> score;
        scores_of<F>(
            score,
            [&](uint32_t(&a)[4], int m, int d) {
                if constexpr (HOLD)
                    for (int i = 0; i < 4; i++) a[i] = q[d / STEP][m][i];
                else
                    load_left(a, rows, 16 * m, d);
            },
            shared.k[stage], (int)z.D);
        scale_and_mask(score, f.scale, view, t, s0);
        float factor[M][2];
        if (online_softmax(score, online, factor)) rescale(out, factor);
        if (f.dropout.threshold)
            attention_apply_dropout<false>(score.at, f.dropout, task.b * z.H + task.head, t, s0);
        add_weighted<F, true>(out, score, shared.v[stage], (int)z.E);
    }
    finish_sums(f, out, online, task.b, task.head, t);
    store_rows<F>(f.y.at(task.b, t, task.head), f.y.row, view.T - t, z.E, out, 1, false);
}

// The arguments of the kernels, except their tasks.
template <class T>
static gd_status open_forward(const gd_call *call, forward_pass<T> *f)
{
    const attention_args *args = (const attention_args *)call->args;
    const gd_status status = attention_open_pass(call, f);
    f->view = {(int)f->z.T, (int)f->z.S, args->causal};
    f->scale = (float)(args->scale * per_ln2);
    f->y = attention_as_it_lies<T>(call->output[0]);
    return status;
}

template <class F>
static gd_status mma_forward(const gd_call *call)
{
    forward_pass<typename F::stored> f = {};
    if (open_forward(call, &f)) return gd_error_status(call->context);
    return by_width(f.z, [&](auto width) {
        constexpr int W = decltype(width)::value;
        f.tasks = attention_tasks_of(f.z.B, f.z.H, f.z.T, division<F, W>::rows);
        return attention_launch(call, forward_kernel<F, W>, f, division<F, W>::threads,
                                sizeof(forward_shared<F, W>));
    });
}

} // namespace attention_mma

#endif
