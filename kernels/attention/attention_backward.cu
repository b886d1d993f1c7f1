// attention_backward.cu - the gradients of attention. The weights are recomputed tile by tile from
// the scores and the saved log-sum-exp (Dao et al. 2022, arXiv:2205.14135).
//
// One kernel, launched three times: each gradient is a sum over the tiles of the other side,
// weighted by a tile of p or of ds = p (dp - delta),
//
//     dq [rows are queries] = sum over keys of    ds   scale k
//     dk [rows are keys]    = sum over queries of ds^T scale q
//     dv [rows are keys]    = sum over queries of p^T  dy
//
// One block computes the whole sum for its rows, in order; for dk and dv over all query heads that
// read the key head. The scores are recomputed for each of the three gradients: that is a seventh
// more work than computing them once for dk and dv, but needs no sums shared between blocks.
#include "attention/delta.cuh"
#include "attention/dropout.cuh"
#include "attention/mask.cuh"
#include "attention/tensor_cores.h"
#include "attention/tiles.cuh"
#include "reduce/reduce.cuh"

enum attention_gradient { ATTENTION_DQ, ATTENTION_DK, ATTENTION_DV };

template <class T>
struct attention_backward_pass {
    attention_tasks tasks;
    attention_sizes z;
    bool causal, accumulate;
    gd_compute<T> scale;
    attention_heads<T> q, k, v, dy;
    const gd_compute<T> *lse;   // [B, H, T]
    const gd_compute<T> *delta; // [B, H, T]: sum of dy * y along E
    attention_heads<T> gradient;
    attention_dropout dropout;
    attention_mask<T> mask;
    gd_compute<T> *ds; // [B, H, T, S]: the gradient of the scores; NULL: not wanted
};

// The contribution of query head h to the gradient of SIDE rows (from row r0 on, chunk from column
// c0 on), which are queries for dq, and keys of head kv for dk and dv.
template <class T, int W, attention_gradient WHICH, class A>
__device__ inline void add_head(const attention_backward_pass<T> &p, attention_shared<A, W> &shared,
                                A (&out)[attention_side<A> / 16][W / 16], int64_t b, int64_t h,
                                int64_t kv, int64_t r0, int64_t c0)
{
    constexpr int SIDE = attention_side<A>, R = SIDE / 16;
    constexpr bool BY_KEY = WHICH != ATTENTION_DQ;
    const attention_sizes &z = p.z;
    const A *lse = p.lse + (b * z.H + h) * z.T, *delta = p.delta + (b * z.H + h) * z.T;

    // The other side: queries from the first that sees key r0, or keys up to the last one seen.
    int64_t first = 0, end = z.T;
    if (BY_KEY) {
        if (p.causal && r0 + z.T - z.S > 0) first = (r0 + z.T - z.S) / SIDE * SIDE;
    } else {
        end = attention_seen_by(z, p.causal, r0 + SIDE < z.T ? r0 + SIDE - 1 : z.T - 1);
    }
    for (int64_t o0 = first; o0 < end; o0 += SIDE) {
        const int64_t t0 = BY_KEY ? o0 : r0, s0 = BY_KEY ? r0 : o0;
        const attention_rows<T> q = p.q.rows(b, t0, h, z.T - t0);
        const attention_rows<T> k = p.k.rows(b, s0, kv, z.S - s0);
        const attention_rows<T> v = p.v.rows(b, s0, kv, z.S - s0);
        const attention_rows<T> dy = p.dy.rows(b, t0, h, z.T - t0);

        A weight[R][R], dweight[R][R];
        if (BY_KEY)
            attention_scores(weight, shared, k, p.scale, q, (A)1, z.D, false);
        else
            attention_scores(weight, shared, q, (A)1, k, p.scale, z.D, false);
        if (WHICH == ATTENTION_DK) attention_scores(dweight, shared, v, (A)1, dy, (A)1, z.E, false);
        if (WHICH == ATTENTION_DQ) attention_scores(dweight, shared, dy, (A)1, v, (A)1, z.E, false);
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++) {
                const int row = attention_ty() * R + i, column = attention_tx() + 16 * j;
                const int64_t t = t0 + (BY_KEY ? column : row), s = s0 + (BY_KEY ? row : column);
                const bool sees =
                    attention_sees(z, p.causal, t, s) && p.mask.add(weight[i][j], z, b, h, t, s);
                const A keep =
                    p.dropout.threshold ? attention_keep<A>(p.dropout, b * z.H + h, t, s) : (A)1;
                weight[i][j] = sees ? exp(weight[i][j] - lse[t]) : (A)0;
                if (WHICH == ATTENTION_DV)
                    weight[i][j] *= keep;
                else
                    weight[i][j] = sees ? weight[i][j] * (keep * dweight[i][j] - delta[t]) : (A)0;
                if (WHICH == ATTENTION_DQ && p.ds && c0 == 0 && t < z.T && s < z.S)
                    p.ds[((b * z.H + h) * z.T + t) * z.S + s] = weight[i][j];
            }
        attention_rows<T> weighed = WHICH == ATTENTION_DQ ? k : WHICH == ATTENTION_DK ? q : dy;
        weighed.data += c0;
        attention_add_weighted(out, weight, shared, weighed,
                               (WHICH == ATTENTION_DV ? z.E : z.D) - c0,
                               WHICH == ATTENTION_DV ? (A)1 : p.scale);
    }
}

template <class T, int W, attention_gradient WHICH>
static __global__ void GD_LAUNCH_BOUNDS(attention_threads, 1)
    attention_backward_kernel(const __grid_constant__ attention_backward_pass<T> p)
{
    gd_in_turn();
    using A = gd_compute<T>;
    constexpr int SIDE = attention_side<A>, R = SIDE / 16;
    constexpr bool BY_KEY = WHICH != ATTENTION_DQ;
    extern __shared__ __align__(16) unsigned char memory[];
    auto &shared = *(attention_shared<A, W> *)memory;
    const int64_t rows = BY_KEY ? p.z.S : p.z.T, columns = WHICH == ATTENTION_DV ? p.z.E : p.z.D;

    for (int64_t n = blockIdx.x; n < p.tasks.count(); n += gridDim.x) {
        const attention_task task = attention_task_at(p.tasks, n);
        // The longest tasks come first: in a causal pass the late queries and the early keys.
        const int64_t tile = BY_KEY ? task.tile : p.tasks.tiles - 1 - task.tile;
        const int64_t r0 = tile * SIDE, c0 = task.chunk * W;
        A out[R][W / 16];
        for (int i = 0; i < R; i++)
            for (int c = 0; c < W / 16; c++) out[i][c] = 0;
        if (BY_KEY) {
            for (int64_t g = 0; g < p.z.G; g++) {
                const int64_t h = task.head * p.z.G + g;
                add_head<T, W, WHICH>(p, shared, out, task.b, h, task.head, r0, c0);
            }
        } else {
            const int64_t kv = task.head / p.z.G;
            add_head<T, W, WHICH>(p, shared, out, task.b, task.head, kv, r0, c0);
        }
        for (int i = 0; i < R; i++) {
            const int64_t row = r0 + attention_ty() * R + i;
            if (row >= rows) break;
            if (!p.gradient.data) break; // the scores' gradient alone was wanted
            T *to = p.gradient.at(task.b, row, task.head) + c0;
            for (int c = 0; c < W / 16; c++) {
                const int column = attention_column<A>(c);
                if (column >= columns - c0) continue;
                const A before = p.accumulate ? gd_load(to[column]) : (A)0;
                to[column] = gd_store<T>(before + out[i][c]);
            }
        }
    }
}

template <class T, int W, attention_gradient WHICH>
static gd_status run_gradient(const gd_call *call, attention_backward_pass<T> p)
{
    using A = gd_compute<T>;
    const gd_tensor *gradient = call->dinput[WHICH]; // of q, k, v
    const bool scores = WHICH == ATTENTION_DQ && p.ds;
    if ((!gradient || gd_tensor_count(gradient) == 0) && !scores) return GD_OK;
    const int64_t *shape = gd_tensor_shape(call->input[WHICH]);
    p.gradient = attention_as_it_lies<T>(gradient);
    p.accumulate = call->accumulate[WHICH];
    p.tasks = attention_tasks_of(shape[0], shape[2], shape[1], attention_side<A>, shape[3], W);
    return attention_launch(call, attention_backward_kernel<T, W, WHICH>, p, attention_threads,
                            sizeof(attention_shared<A, W>));
}

// A bias gets the sum of the scores' gradient over its copies.
template <class T>
static gd_status reduce_dbias(const gd_call *call, const attention_backward_pass<T> &p)
{
    using A = gd_compute<T>;
    const attention_sizes &z = p.z;
    const gd_tensor *dbias = call->dinput[3];
    const int64_t shape[] = {z.B, z.H, z.T, z.S};
    const int64_t strides[] = {z.H * z.T * z.S, z.T * z.S, z.S, 1};
    const gd_dtype dtype = sizeof(A) == 8 ? GD_FLOAT64 : GD_FLOAT32;
    const gd_layout terms[] = {{p.ds, dtype, 4, shape, strides}};
    return gd_cuda_reduce_over<A>(call, gd_ptr<T>(dbias), call->accumulate[3],
                                  gd_cuda_layout(dbias), 4, shape, terms,
                                  gd_sum_of<A, gd_itself>{});
}

// delta [B, H, T]
template <class A>
struct attention_delta_array {
    A *data;
    int64_t T;

    __device__ auto operator()(int64_t head, int64_t t) const
    {
        A *to = data + head * T + t;
        return [to](A delta) { *to = delta; };
    }
};

template <class T, int W>
static gd_status run_gradients(const gd_call *call, const attention_backward_pass<T> &p)
{
    gd_status status = run_gradient<T, W, ATTENTION_DQ>(call, p);
    if (!status) status = run_gradient<T, W, ATTENTION_DK>(call, p);
    if (!status) status = run_gradient<T, W, ATTENTION_DV>(call, p);
    if (!status && p.ds) status = reduce_dbias(call, p);
    return status;
}

// No gradient reached y.
static gd_status write_zeros(const gd_call *call)
{
    for (int i = 0; i < 4; i++)
        if (call->dinput[i]) gd_begin_gradient(call, i);
    return gd_error_status(call->context);
}

extern "C" gd_status attention_backward_cuda(const gd_call *call)
{
    const attention_args *args = (const attention_args *)call->args;
    const attention_sizes z = attention_sizes_of(call);
    if (!call->doutput[0]) return write_zeros(call);
    const attention_tensor_cores *fast = attention_tensor_cores_for(call);
    if (fast) return fast->backward(call, nullptr);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        using A = gd_compute<T>;
        attention_backward_pass<T> p = {};
        p.causal = args->causal;
        p.scale = (A)args->scale;
        p.dy = attention_as_it_lies<T>(call->doutput[0]);
        p.mask = attention_mask_of<T>(call);
        if (call->dinput[3] && gd_tensor_count(call->dinput[3]) > 0) {
            // What no tile reaches, since no query sees it, is 0.
            const int64_t count = z.B * z.H * z.T * z.S;
            p.ds = (A *)gd_call_scratch(call, (size_t)count * sizeof(A));
            if (!p.ds) return gd_error_status(call->context);
            const gd_dtype dtype = sizeof(A) == 8 ? GD_FLOAT64 : GD_FLOAT32;
            gd_fill_cuda(p.ds, dtype, 0, count, call->context);
        }
        A *delta = (A *)gd_call_scratch(call, (size_t)(z.B * z.H * z.T) * sizeof(A));
        p.delta = delta;
        if (!delta || attention_open_pass(call, &p) ||
            attention_delta(call, p.dy, z, z.T, attention_delta_array<A>{delta, z.T})) {
            return gd_error_status(call->context);
        }
        return attention_by_piece<T>(
            z, [&](auto width) { return run_gradients<T, decltype(width)::value>(call, p); });
    });
}
