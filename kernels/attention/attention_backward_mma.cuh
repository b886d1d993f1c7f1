// attention_backward_mma.cuh - the backward on tensor cores. The same mathematics as
// attention_backward.cu; attention_mma.cuh has the shared parts.
//
// Two kernels. In the first a block has queries and iterates over the keys:
//
//     dq = sum over keys of scale ds k           ds = p (dp - delta),  p = exp(scale q k^T - lse)
//
// Before that it stores delta = sum of dy * y for the second, in which a block has keys and
// iterates over the queries of all query heads that share them:
//
//     dv = sum over queries of p^T dy            dk = sum over queries of scale ds^T q
//
// Both compute p and dp = dy v^T: seven products where five would do. In return, blocks share no
// sums, and the results have the same bits in every run.
#ifndef GD_ATTENTION_BACKWARD_MMA_CUH
#define GD_ATTENTION_BACKWARD_MMA_CUH

#include "attention/attention_forward_mma.cuh"
#include "attention/delta.cuh"

namespace attention_mma
{

template <class T>
struct backward_pass {
    attention_tasks tasks;
    attention_sizes z;
    head_view view;
    float scale, scale_of_exponents;
    attention_heads<T> q, k, v, y, dy;
    const float *lse; // [B, H, T], to base 2
    float *delta;     // [B, H, T]
    attention_heads<T> dq, dk, dv;
    bool accumulate[3];   // into dq, dk, dv
    const float2 *angles; // [T, D / 2] by which dq and dk are turned back, or NULL
    attention_dropout dropout;
};

// The block's rows of two tensors, which stay; two stages for a tile of two others; and the lse and
// delta of the queries among them.
template <class F, int W>
struct backward_shared {
    using row = tile_row<typename F::stored, W>;
    static constexpr int N = division<F, W>::backward_tile;
    static constexpr int ROWS = division<F, W>::rows;
    row left[2][ROWS];
    row right[2][2][N]; // [stage]
    alignas(8) float lse[2][N], delta[2][N > ROWS ? N : ROWS];
};

// p. The product is rounded separately, as in the forward.
__device__ inline float weight_of(float score, float scale, float lse)
{
    return gd_exp2_approx(__fmul_rn(score, scale) - lse);
}

// Replaces dp by ds = p (dp - delta). delta(m, n) belongs to a lane's two rows, or to its two
// columns: BY_COLUMN. With dropout dp is first multiplied as the weight was; a dropped weight is
// stored as -p.
template <bool BY_COLUMN, int M, int N, class Delta>
__device__ inline void score_gradients(sums<M, N> &dscore, const sums<M, N> &weight,
                                       const attention_dropout &dropout, Delta delta)
{
    dscore.each([&](float &x, int m, int n, int i) {
        const float2 pair = delta(m, n);
        const float d = (BY_COLUMN ? i % 2 : i / 2) ? pair.y : pair.x, p = weight.at[m][n][i];
        x = fabsf(p) * ((p < 0 ? 0 : dropout.scale_f32) * x - d);
    });
}

// ---- dq ---------------------------------------------------------------------------------------

// delta of the block's queries from t0 on, a thread for each, whose dy is there: kept, and stored
// for the second kernel.
template <class T, class Shared>
__device__ __forceinline__ void store_delta(const backward_pass<T> &p, Shared &shared, int64_t b,
                                            int64_t h, int t0)
{
    const int r = threadIdx.x;
    float sum = 0;
    if (t0 + r < p.view.T) {
        sum = attention_row_product(p.y.at(b, t0 + r, h), shared.left[1][r].at, (int)p.z.E, 0, 1);
        p.delta[(b * p.z.H + h) * p.z.T + t0 + r] = sum;
    }
    shared.delta[0][r] = sum;
}

// A task is a block's queries of one head. Late queries, which see the most keys, come first.
template <class F, int W>
static __global__ void GD_LAUNCH_BOUNDS(division<F, W>::threads, division<F, W>::blocks)
    dq_kernel(const __grid_constant__ backward_pass<typename F::stored> p)
{
    gd_in_turn();
    using T = typename F::stored;
    using plan = division<F, W>;
    constexpr int M = plan::groups, ROWS = plan::rows, N = plan::backward_tile;
    extern __shared__ __align__(16) unsigned char memory[];
    auto &shared = *(backward_shared<F, W> *)memory;
    const attention_sizes &z = p.z;
    const head_view &view = p.view;
    const int warp_row = row_of_warp<F, W>();

    const attention_task task = attention_task_at(p.tasks, blockIdx.x);
    const int64_t b = task.b, h = task.head, kv = h / z.G;
    const int t0 = (int)(p.tasks.tiles - 1 - task.tile) * ROWS;
    const int t = t0 + warp_row; // this warp's first
    const int end = p.dq.data ? view.seen_by(min(t0 + ROWS, view.T) - 1) : 0;
    const int warp_end = t < view.T ? view.seen_by(t + 16 * M - 1) : 0;
    const auto load = [&](int stage, int s0) {
        load_tile<N>(shared.right[stage][0], p.k.rows(b, s0, kv, view.S - s0), z.D);
        load_tile<N>(shared.right[stage][1], p.v.rows(b, s0, kv, view.S - s0), z.E);
    };

    load_tile<ROWS>(shared.left[0], p.q.rows(b, t0, h, view.T - t0), z.D);
    load_tile<ROWS>(shared.left[1], p.dy.rows(b, t0, h, view.T - t0), z.E);
    if (end > 0) load(0, 0);
    gd_async::copy_wait_all();
    __syncthreads();
    if (threadIdx.x < ROWS) store_delta(p, shared, b, h, t0);
    if (!p.dq.data) return;
    __syncthreads();
    float lse[M][2], delta[M][2];
    for (int m = 0; m < M; m++)
        for (int r = 0; r < 2; r++) {
            const int row = row_of(m, 2 * r);
            lse[m][r] = t + row < view.T ? p.lse[(b * z.H + h) * z.T + t + row] : INFINITY;
            delta[m][r] = shared.delta[0][warp_row + row];
        }

    const int widest = (int)(z.D > z.E ? z.D : z.E);
    sums<M, W> dq = {};
    int stage = 0;
    for (int s0 = 0; s0 < end; s0 += N, stage ^= 1) {
        gd_async::copy_wait_all();
        __syncthreads(); // this tile has arrived, and all are done with the one before
        if (s0 + N < end) load(stage ^ 1, s0 + N);
        if (s0 >= warp_end) continue;
        const auto *k = shared.right[stage][0], *v = shared.right[stage][1];
        sums<M, N> both[2], &weight = both[0], &dscore = both[1];
        two_scores<F>(both, {shared.left[0] + warp_row, shared.left[1] + warp_row}, {k, v}, widest);
        weight.each([&](float &x, int m, int, int i) {
            x = weight_of(x, p.scale_of_exponents, lse[m][i / 2]);
        });
        mask_unseen(weight, view, t, s0, 0);
        if (p.dropout.threshold)
            attention_apply_dropout<false>(weight.at, p.dropout, b * z.H + h, t, s0);
        score_gradients<false>(dscore, weight, p.dropout,
                               [&](int m, int) { return make_float2(delta[m][0], delta[m][1]); });
        add_weighted<F, false>(dq, dscore, k, (int)z.D);
    }
    if (p.angles) rotate_back<F>(dq, p.angles, t, view.T);
    store_rows<F>(p.dq.at(b, t, h), p.dq.row, view.T - t, z.D, dq, p.scale, p.accumulate[0]);
}

// ---- dk and dv --------------------------------------------------------------------------------

// Transposed: row 0 is key s, column 0 is query t; lse [N] belongs to the columns.
template <int M, int N>
__device__ inline void weights_by_key(sums<M, N> &score, const float *lse, float scale,
                                      const head_view &view, int s, int t)
{
    score.each([&](float &x, int, int n, int i) {
        const float2 pair = *(const float2 *)&lse[column_of(n, 0)];
        x = weight_of(x, scale, i % 2 ? pair.y : pair.x);
    });
    if (t + N <= view.T && s + 16 * M <= view.seen_by(t)) return;
    score.each([&](float &x, int m, int n, int i) {
        // The first column, a query, that sees this row's key.
        const int key = s + row_of(m, i), column = column_of(n, i);
        const int first = key >= view.S ? N : view.causal ? key - (view.S - view.T) - t : 0;
        if (column < first || column >= view.T - t) x = 0;
    });
}

// Loads lse and delta of N queries from t0 on.
template <int N, class T>
__device__ __forceinline__ void load_lse_and_delta(const backward_pass<T> &p, float *lse,
                                                   float *delta, int b, int h, int t0)
{
    const int i = threadIdx.x % N;
    const bool inside = t0 + i < p.view.T;
    const int64_t at = (b * p.z.H + h) * p.z.T + (inside ? t0 + i : 0);
    if (threadIdx.x < N)
        gd_async::copy_4(gd_async::shared_address(&lse[i]), p.lse + at, inside);
    else if (threadIdx.x < 2 * N)
        gd_async::copy_4(gd_async::shared_address(&delta[i]), p.delta + at, inside);
}

// A task is a block's keys of one key head. Early keys, which most queries see, come first.
// Computes dk, dv, or both if the registers hold them.
template <class F, int W, bool DK, bool DV>
static __global__ void GD_LAUNCH_BOUNDS(division<F, W>::threads, division<F, W>::blocks)
    dkv_kernel(const __grid_constant__ backward_pass<typename F::stored> p)
{
    gd_in_turn();
    using T = typename F::stored;
    using plan = division<F, W>;
    constexpr int M = plan::groups, ROWS = plan::rows, N = plan::backward_tile;
    extern __shared__ __align__(16) unsigned char memory[];
    auto &shared = *(backward_shared<F, W> *)memory;
    const attention_sizes &z = p.z;
    const head_view &view = p.view;
    const int warp_row = row_of_warp<F, W>();

    const attention_task task = attention_task_at(p.tasks, blockIdx.x);
    const int b = (int)task.b, kv = (int)task.head, G = (int)z.G;
    const int s0 = (int)task.tile * ROWS;
    const int s = s0 + warp_row; // this warp's first
    // Queries from the tile of the first that sees key s0 on, one head after another.
    const int sees = s0 - (view.S - view.T), from = view.causal && sees > 0 ? sees / N * N : 0;
    const int tiles = from < view.T ? (view.T - from + N - 1) / N : 0, end = tiles * G;
    const auto load = [&](int n) {
        const int stage = n % 2, h = kv * G + n / tiles, t0 = from + n % tiles * N;
        load_tile<N>(shared.right[stage][0], p.q.rows(b, t0, h, view.T - t0), z.D);
        load_tile<N>(shared.right[stage][1], p.dy.rows(b, t0, h, view.T - t0), z.E);
        load_lse_and_delta<N>(p, shared.lse[stage], shared.delta[stage], b, h, t0);
    };

    load_tile<ROWS>(shared.left[0], p.k.rows(b, s0, kv, view.S - s0), z.D);
    load_tile<ROWS>(shared.left[1], p.v.rows(b, s0, kv, view.S - s0), z.E);
    if (end > 0) load(0);

    const int widest = (int)(z.D > z.E ? z.D : z.E);
    sums<M, W> dk = {}, dv = {};
    for (int n = 0; n < end; n++) {
        const int stage = n % 2, t = from + n % tiles * N;
        gd_async::copy_wait_all();
        __syncthreads(); // this tile has arrived, and all are done with the one before
        if (n + 1 < end) load(n + 1);
        if (s >= view.S || view.seen_by(t + N - 1) <= s) continue;
        const auto *q = shared.right[stage][0], *dy = shared.right[stage][1];
        sums<M, N> both[2], &weight = both[0], &dscore = both[1];
        two_scores<F>(both, {shared.left[0] + warp_row, shared.left[1] + warp_row}, {q, dy},
                      widest);
        weights_by_key(weight, shared.lse[stage], p.scale_of_exponents, view, s, t);
        if (p.dropout.threshold)
            attention_apply_dropout<true>(weight.at, p.dropout, b * z.H + kv * G + n / tiles, s, t);
        if (DV && p.dv.data) add_weighted<F, true>(dv, weight, dy, (int)z.E);
        if (!DK || !p.dk.data) continue;
        score_gradients<true>(dscore, weight, p.dropout, [&](int, int n) {
            return *(const float2 *)&shared.delta[stage][column_of(n, 0)];
        });
        add_weighted<F, false>(dk, dscore, q, (int)z.D);
    }
    gd_async::copy_wait_all(); // even if there was no tile
    const int rows = view.S - s;
    if (DK && p.angles) rotate_back<F>(dk, p.angles, s, view.S);
    if (DK && p.dk.data)
        store_rows<F>(p.dk.at(b, s, kv), p.dk.row, rows, z.D, dk, p.scale, p.accumulate[1]);
    if (DV && p.dv.data)
        store_rows<F>(p.dv.at(b, s, kv), p.dv.row, rows, z.E, dv, p.dropout.scale_f32,
                      p.accumulate[2]);
}

// ---- Launching --------------------------------------------------------------------------------

// The shared memory of a block of either pass.
template <class F>
static size_t shared_bytes(int64_t widest)
{
    size_t shared = 0;
    attention_sizes z = {};
    z.D = widest;
    (void)by_width(z, [&](auto width) {
        constexpr int W = decltype(width)::value;
        shared = sizeof(forward_shared<F, W>);
        if (shared < sizeof(backward_shared<F, W>)) shared = sizeof(backward_shared<F, W>);
        return GD_OK;
    });
    return shared;
}

template <class F, int W, bool DK, bool DV>
static gd_status run_dkv(const gd_call *call, backward_pass<typename F::stored> p)
{
    if (!(DK && p.dk.data) && !(DV && p.dv.data)) return GD_OK;
    p.tasks = attention_tasks_of(p.z.B, p.z.KV, p.z.S, division<F, W>::rows);
    return attention_launch(call, dkv_kernel<F, W, DK, DV>, p, division<F, W>::threads,
                            sizeof(backward_shared<F, W>));
}

template <class F, int W>
static gd_status run_backward(const gd_call *call, backward_pass<typename F::stored> p)
{
    p.tasks = attention_tasks_of(p.z.B, p.z.H, p.z.T, division<F, W>::rows);
    gd_status status = attention_launch(call, dq_kernel<F, W>, p, division<F, W>::threads,
                                        sizeof(backward_shared<F, W>));
    if constexpr (W <= 128) {
        if (!status) status = run_dkv<F, W, true, true>(call, p);
    } else {
        if (!status) status = run_dkv<F, W, false, true>(call, p);
        if (!status) status = run_dkv<F, W, true, false>(call, p);
    }
    return status;
}

// The arguments of the kernels, except their tasks and delta.
template <class T>
static gd_status open_backward(const gd_call *call, const float *angles, backward_pass<T> *p)
{
    const attention_args *args = (const attention_args *)call->args;
    const gd_status status = attention_open_pass(call, p);
    const attention_sizes &z = p->z;
    p->view = {(int)z.T, (int)z.S, args->causal};
    p->scale = (float)args->scale;
    p->scale_of_exponents = (float)(args->scale * per_ln2);
    p->y = attention_as_it_lies<T>(call->output[0]);
    p->dy = attention_as_it_lies<T>(call->doutput[0]);
    attention_heads<T> *const gradient[] = {&p->dq, &p->dk, &p->dv};
    for (int i = 0; i < 3; i++) {
        *gradient[i] = attention_as_it_lies<T>(call->dinput[i]);
        p->accumulate[i] = call->accumulate[i];
    }
    p->angles = (const float2 *)angles;
    if (angles) { // one tensor of all heads
        p->dk.data += z.H * p->dk.head;
        p->dv.data += (z.H + z.KV) * p->dv.head;
    }
    return status;
}

template <class F>
static gd_status mma_backward(const gd_call *call, const float *angles)
{
    backward_pass<typename F::stored> p = {};
    if (open_backward(call, angles, &p)) return gd_error_status(call->context);
    p.delta = (float *)gd_call_scratch(call, (size_t)(p.z.B * p.z.H * p.z.T) * sizeof(float));
    if (!p.delta) return gd_error_status(call->context);
    return by_width(p.z,
                    [&](auto width) { return run_backward<F, decltype(width)::value>(call, p); });
}

} // namespace attention_mma

#endif
