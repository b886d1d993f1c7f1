// attention_backward_mma.cu - the backward in 16 bits on tensor cores. The same mathematics as
// attention_backward.cu; attention_mma.cuh has the parts.
//
// Two kernels. One has a block's queries and goes through the keys:
//
//     dq = sum over keys of scale ds k           ds = p (dp - delta),  p = exp(scale q k^T - lse)
//
// the other has a block's keys and goes through the queries, of all query heads that share them:
//
//     dv = sum over queries of p^T dy            dk = sum over queries of scale ds^T q
//
// Both compute p and dp = dy v^T: seven products where five would do. For that no sum is shared by
// several blocks, and the results have the same bits in every run.
#include "attention/attention_mma.cuh"
#include "attention/delta.cuh"

template <class T>
struct attention_backward_mma_pass {
    attention_tasks tasks;
    attention_sizes z;
    attention_mma_view view;
    float scale;
    attention_heads<T> q, k, v, dy;
    const float *lse, *delta; // [B, H, T]
    attention_heads<T> dq, dk, dv;
    bool accumulate[3]; // into dq, dk, dv
};

// Rows of the side that passes.
template <int W>
constexpr int attention_backward_tile = W == 32 ? 64 : 32;

// The block's rows of two tensors, which stay; two stages of a tile of two others; and for the
// keys' kernel the lse and delta of two tiles.
template <class T, int W>
struct attention_backward_room {
    attention_mma_row<T, W> left[2][attention_mma_rows<W>];
    attention_mma_row<T, W> right[2][2][attention_backward_tile<W>]; // [stage]
    float lse[2][attention_backward_tile<W>], delta[2][attention_backward_tile<W>];
};

// p. The product is rounded by itself, as in the forward.
__device__ inline float weight_of(float score, float scale, float lse)
{
    return __expf(__fmul_rn(score, scale) - lse);
}

// ---- dq ---------------------------------------------------------------------------------------

// Scores become weights p; row 0 is query t, column 0 is key s. lse[m][r] is that of a lane's rows.
template <int M, int N>
__device__ inline void weights_by_query(attention_mma_sums<M, N> &score, const float (&lse)[M][2],
                                        float scale, const attention_mma_view &view, int t, int s)
{
    const bool all = s + N <= view.seen_by(t); // what the first query sees, the others do
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int seen = min(view.seen_by(t + attention_mma_row_of(m, i)), view.S) - s;
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                float &x = score.at[m][n][i];
                x = weight_of(x, scale, lse[m][i / 2]);
                if (!all && attention_mma_column_of(n, i) >= seen) x = 0;
            }
        }
}

// A task is a block's queries of one head. Late queries, which see the most keys, come first.
template <class T, int W>
static __global__ void __launch_bounds__(attention_mma_threads, 2)
    attention_dq_mma_kernel(const __grid_constant__ attention_backward_mma_pass<T> p)
{
    constexpr int M = attention_mma_groups<W>, ROWS = attention_mma_rows<W>;
    constexpr int N = attention_backward_tile<W>;
    extern __shared__ __align__(16) unsigned char memory[];
    auto &room = *(attention_backward_room<T, W> *)memory;
    const attention_sizes &z = p.z;
    const attention_mma_view &view = p.view;

    for (int64_t task_at = blockIdx.x; task_at < p.tasks.count(); task_at += gridDim.x) {
        const attention_task task = attention_task_at(p.tasks, task_at);
        const int64_t b = task.b, h = task.head, kv = h / z.G;
        const int t0 = (int)(p.tasks.tiles - 1 - task.tile) * ROWS;
        const int t = t0 + attention_mma_warp_row<W>(); // this warp's first
        const int end = view.seen_by(min(t0 + ROWS, view.T) - 1);
        const int warp_end = t < view.T ? view.seen_by(t + 16 * M - 1) : 0;
        const auto load = [&](int stage, int s0) {
            const attention_rows<T> k = {p.k.at(b, s0, kv), p.k.row, view.S - s0};
            const attention_rows<T> v = {p.v.at(b, s0, kv), p.v.row, view.S - s0};
            attention_mma_load<N>(room.right[stage][0], k, z.D);
            attention_mma_load<N>(room.right[stage][1], v, z.E);
        };

        float lse[M][2], delta[M][2];
        for (int m = 0; m < M; m++)
            for (int r = 0; r < 2; r++) {
                const int row = t + attention_mma_row_of(m, 2 * r);
                const int64_t at = (b * z.H + h) * z.T + row;
                lse[m][r] = row < view.T ? p.lse[at] : INFINITY;
                delta[m][r] = row < view.T ? p.delta[at] : 0;
            }
        __syncthreads(); // all are done with the task before
        const attention_rows<T> q = {p.q.at(b, t0, h), p.q.row, view.T - t0};
        const attention_rows<T> dy = {p.dy.at(b, t0, h), p.dy.row, view.T - t0};
        attention_mma_load<ROWS>(room.left[0], q, z.D);
        attention_mma_load<ROWS>(room.left[1], dy, z.E);
        if (end > 0) load(0, 0);

        attention_mma_sums<M, W> dq = {};
        int stage = 0;
        for (int s0 = 0; s0 < end; s0 += N, stage ^= 1) {
            gd_mma::copies_wait();
            __syncthreads(); // this tile is there, and all are done with the one before
            if (s0 + N < end) load(stage ^ 1, s0 + N);
            if (s0 >= warp_end) continue;
            const auto *k = room.right[stage][0], *v = room.right[stage][1];
            attention_mma_sums<M, N> weight, dscore;
            attention_mma_scores(weight, room.left[0] + attention_mma_warp_row<W>(), k);
            weights_by_query(weight, lse, p.scale, view, t, s0);
            attention_mma_scores(dscore, room.left[1] + attention_mma_warp_row<W>(), v);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        dscore.at[m][n][i] =
                            weight.at[m][n][i] * (dscore.at[m][n][i] - delta[m][i / 2]);
            attention_mma_weigh(dq, dscore, k);
        }
        gd_mma::copies_wait(); // also where there was no tile
        attention_mma_store(p.dq.at(b, t, h), p.dq.row, view.T - t, z.D, dq, p.scale,
                            p.accumulate[0]);
    }
}

// ---- dk and dv --------------------------------------------------------------------------------

// Transposed: row 0 is key s, column 0 is query t, and the lse are those of the columns.
template <int M, int N>
__device__ inline void weights_by_key(attention_mma_sums<M, N> &score, const float *lse,
                                      float scale, const attention_mma_view &view, int s, int t)
{
    const bool all = t + N <= view.T && s + 16 * M <= view.seen_by(t);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            // The first column, a query, that sees this row's key.
            const int key = s + attention_mma_row_of(m, i);
            const int first = view.causal ? key - (view.S - view.T) - t : 0;
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                float &x = score.at[m][n][i];
                const int column = attention_mma_column_of(n, i);
                x = weight_of(x, scale, lse[column]);
                if (!all && (column < first || column >= view.T - t)) x = 0;
            }
        }
}

// A task is a block's keys of one key head. Early keys, which most queries see, come first.
template <class T, int W>
static __global__ void __launch_bounds__(attention_mma_threads, 2)
    attention_dkv_mma_kernel(const __grid_constant__ attention_backward_mma_pass<T> p)
{
    constexpr int M = attention_mma_groups<W>, ROWS = attention_mma_rows<W>;
    constexpr int N = attention_backward_tile<W>;
    extern __shared__ __align__(16) unsigned char memory[];
    auto &room = *(attention_backward_room<T, W> *)memory;
    const attention_sizes &z = p.z;
    const attention_mma_view &view = p.view;

    for (int64_t task_at = blockIdx.x; task_at < p.tasks.count(); task_at += gridDim.x) {
        const attention_task task = attention_task_at(p.tasks, task_at);
        const int b = (int)task.b, kv = (int)task.head, G = (int)z.G;
        const int s0 = (int)task.tile * ROWS;
        const int s = s0 + attention_mma_warp_row<W>(); // this warp's first
        // Queries from the tile of the first that sees key s0 on.
        const int sees = s0 - (view.S - view.T), first = view.causal && sees > 0 ? sees / N * N : 0;
        const auto load = [&](int stage, int h, int t0) {
            const attention_rows<T> q = {p.q.at(b, t0, h), p.q.row, view.T - t0};
            const attention_rows<T> dy = {p.dy.at(b, t0, h), p.dy.row, view.T - t0};
            attention_mma_load<N>(room.right[stage][0], q, z.D);
            attention_mma_load<N>(room.right[stage][1], dy, z.E);
            const int i = threadIdx.x % N;
            const bool inside = t0 + i < view.T;
            const int64_t at = (b * z.H + h) * z.T + (inside ? t0 + i : 0);
            if (threadIdx.x < N)
                gd_mma::copy_4(&room.lse[stage][i], p.lse + at, inside);
            else if (threadIdx.x < 2 * N)
                gd_mma::copy_4(&room.delta[stage][i], p.delta + at, inside);
        };

        __syncthreads(); // all are done with the task before
        const attention_rows<T> keys = {p.k.at(b, s0, kv), p.k.row, view.S - s0};
        const attention_rows<T> values = {p.v.at(b, s0, kv), p.v.row, view.S - s0};
        attention_mma_load<ROWS>(room.left[0], keys, z.D);
        attention_mma_load<ROWS>(room.left[1], values, z.E);
        if (first < view.T) load(0, kv * G, first);

        attention_mma_sums<M, W> dk = {}, dv = {};
        int stage = 0;
        int h = kv * G, t0 = first; // heads in order, and their queries in order
        for (bool more = first < view.T; more; stage ^= 1) {
            const int t = t0;
            t0 += N;
            if (t0 >= view.T) t0 = first, h++;
            more = h < (kv + 1) * G;
            gd_mma::copies_wait();
            __syncthreads(); // this tile is there, and all are done with the one before
            if (more) load(stage ^ 1, h, t0);
            if (s >= view.S || view.seen_by(t + N - 1) <= s) continue;
            const auto *q = room.right[stage][0], *dy = room.right[stage][1];
            attention_mma_sums<M, N> weight, dscore;
            attention_mma_scores(weight, room.left[0] + attention_mma_warp_row<W>(), q);
            weights_by_key(weight, room.lse[stage], p.scale, view, s, t);
            if (p.dv.data) attention_mma_weigh(dv, weight, dy);
            if (!p.dk.data) continue;
            attention_mma_scores(dscore, room.left[1] + attention_mma_warp_row<W>(), dy);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float delta = room.delta[stage][attention_mma_column_of(n, i)];
                        dscore.at[m][n][i] = weight.at[m][n][i] * (dscore.at[m][n][i] - delta);
                    }
            attention_mma_weigh(dk, dscore, q);
        }
        gd_mma::copies_wait(); // also where there was no tile
        const int rows = view.S - s;
        if (p.dk.data)
            attention_mma_store(p.dk.at(b, s, kv), p.dk.row, rows, z.D, dk, p.scale,
                                p.accumulate[1]);
        if (p.dv.data)
            attention_mma_store(p.dv.at(b, s, kv), p.dv.row, rows, z.E, dv, 1, p.accumulate[2]);
    }
}

// ---- Launching --------------------------------------------------------------------------------

template <class T, int W>
static gd_status run_backward(const gd_call *call, attention_backward_mma_pass<T> p)
{
    constexpr size_t bytes = sizeof(attention_backward_room<T, W>);
    constexpr int rows = attention_mma_rows<W>;
    gd_status status = GD_OK;
    if (p.dq.data) {
        p.tasks = attention_mma_tasks(p.z.B, p.z.H, p.z.T, rows);
        status =
            attention_launch(call, attention_dq_mma_kernel<T, W>, p, attention_mma_threads, bytes);
    }
    if (!status && (p.dk.data || p.dv.data)) {
        p.tasks = attention_mma_tasks(p.z.B, p.z.KV, p.z.S, rows);
        status =
            attention_launch(call, attention_dkv_mma_kernel<T, W>, p, attention_mma_threads, bytes);
    }
    return status;
}

gd_status attention_backward_mma(const gd_call *call)
{
    const attention_args *args = (const attention_args *)call->args;
    const attention_sizes z = attention_sizes_of(call);
    return attention_mma_by_type(call, z, [&](auto zero, auto width) {
        using T = decltype(zero);
        attention_backward_mma_pass<T> p = {};
        p.z = z;
        p.view = {(int)z.T, (int)z.S, args->causal};
        p.scale = (float)args->scale;
        p.dy = attention_packed<T>(call->doutput[0]);
        p.lse = gd_ptr<float>(call->save[0]);
        attention_heads<T> *const gradient[] = {&p.dq, &p.dk, &p.dv};
        for (int i = 0; i < 3; i++) {
            *gradient[i] = attention_packed<T>(call->dinput[i]);
            p.accumulate[i] = call->accumulate[i];
        }
        if (attention_open(call, call->input[0], &p.q) ||
            attention_open(call, call->input[1], &p.k) ||
            attention_open(call, call->input[2], &p.v) ||
            attention_delta(call, p.dy, z, &p.delta)) {
            return gd_error_status(call->context);
        }
        return run_backward<T, decltype(width)::value>(call, p);
    });
}
