// attention_forward.cu - attention by an online softmax (Milakov & Gimelshein 2018,
// arXiv:1805.02867) over tiles of keys (Dao et al. 2022, arXiv:2205.14135).
#include "attention/dropout.cuh"
#include "attention/mask.cuh"
#include "attention/tensor_cores.h"
#include "attention/tiles.cuh"

template <class T>
struct attention_forward_pass {
    attention_tasks tasks;
    attention_sizes z;
    bool causal;
    gd_compute<T> scale;
    attention_heads<T> q, k, v, y;
    gd_compute<T> *lse; // [B, H, T], or NULL
    attention_dropout dropout;
    attention_mask<T> mask;
};

// Replaces a tile of scores [SIDE, SIDE] by weights exp(score - largest), where `largest` is the
// largest score of the row so far. Sums made with an older maximum are rescaled by the factor
// exp(old - new).
template <class T, class A, int COLUMNS>
__device__ inline void
online_softmax(A (&score)[attention_side<A> / 16][attention_side<A> / 16],
               A (&largest)[attention_side<A> / 16], A (&total)[attention_side<A> / 16],
               A (&out)[attention_side<A> / 16][COLUMNS], const attention_forward_pass<T> &f,
               int64_t b, int64_t h, int64_t t, int64_t s)
{
    constexpr int R = attention_side<A> / 16;
#pragma unroll
    for (int i = 0; i < R; i++) {
        bool sees[R];
        A most = largest[i], sum = 0;
#pragma unroll
        for (int j = 0; j < R; j++) {
            sees[j] = attention_sees(f.z, f.causal, t + i, s + 16 * j) &&
                      f.mask.add(score[i][j], f.z, b, h, t + i, s + 16 * j);
            if (sees[j] && score[i][j] > most) most = score[i][j];
        }
        most = gd_combine(most, 16, [](A a, A b) { return a > b ? a : b; });
#pragma unroll
        for (int j = 0; j < R; j++) {
            score[i][j] = sees[j] ? exp(score[i][j] - most) : (A)0;
            sum += score[i][j];
        }
        sum = gd_sum(sum, 16);
        const A factor = largest[i] == most ? (A)1 : exp(largest[i] - most);
        largest[i] = most;
        total[i] = total[i] * factor + sum;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) out[i][c] *= factor;
    }
}

// A task is SIDE queries of one head, in a chunk of W columns of the values. Late queries, which
// see the most keys, come first.
template <class T, int W>
static __global__ void GD_LAUNCH_BOUNDS(attention_threads, 1)
    attention_forward_kernel(const __grid_constant__ attention_forward_pass<T> f)
{
    gd_in_turn();
    using A = gd_compute<T>;
    constexpr int SIDE = attention_side<A>, R = SIDE / 16;
    extern __shared__ __align__(16) unsigned char memory[];
    auto &shared = *(attention_shared<A, W> *)memory;
    const attention_sizes &z = f.z;

    for (int64_t n = blockIdx.x; n < f.tasks.count(); n += gridDim.x) {
        const attention_task task = attention_task_at(f.tasks, n);
        const int64_t t0 = (f.tasks.tiles - 1 - task.tile) * SIDE, e0 = task.chunk * W;
        const int64_t rows = z.T - t0, kv = task.head / z.G;
        const attention_rows<T> q = f.q.rows(task.b, t0, task.head, rows);
        const int64_t end = attention_seen_by(z, f.causal, rows < SIDE ? z.T - 1 : t0 + SIDE - 1);
        const int64_t t = t0 + attention_ty() * R; // of this thread's first row

        A out[R][W / 16], largest[R], total[R];
        for (int i = 0; i < R; i++) {
            largest[i] = -INFINITY, total[i] = 0;
            for (int c = 0; c < W / 16; c++) out[i][c] = 0;
        }
        for (int64_t s0 = 0; s0 < end; s0 += SIDE) {
            const attention_rows<T> k = f.k.rows(task.b, s0, kv, z.S - s0);
            const attention_rows<T> v = {f.v.at(task.b, s0, kv) + e0, f.v.row, z.S - s0};
            A weight[R][R];
            attention_scores(weight, shared, q, (A)1, k, f.scale, z.D, s0 > 0 && z.D <= W);
            online_softmax(weight, largest, total, out, f, task.b, task.head, t,
                           s0 + attention_tx());
#pragma unroll
            for (int i = 0; f.dropout.threshold && i < R * R; i++)
                weight[i / R][i % R] *=
                    attention_keep<A>(f.dropout, task.b * z.H + task.head, t + i / R,
                                      s0 + attention_tx() + i % R * 16);
            attention_add_weighted(out, weight, shared, v, z.E - e0, (A)1);
        }
        for (int i = 0; i < R && t + i < z.T; i++) {
            T *y = f.y.at(task.b, t + i, task.head) + e0;
            const bool sees = total[i] != 0;
            for (int c = 0; c < W / 16; c++) {
                const int e = attention_column<A>(c);
                if (e < z.E - e0) y[e] = gd_store<T>(sees ? out[i][c] / total[i] : (A)0);
            }
            if (f.lse && e0 == 0 && attention_tx() == 0)
                f.lse[(task.b * z.H + task.head) * z.T + t + i] = largest[i] + log(total[i]);
        }
    }
}

template <class T, int W>
static gd_status run_forward(const gd_call *call, attention_forward_pass<T> f)
{
    using A = gd_compute<T>;
    f.tasks = attention_tasks_of(f.z.B, f.z.H, f.z.T, attention_side<A>, f.z.E, W);
    return attention_launch(call, attention_forward_kernel<T, W>, f, attention_threads,
                            sizeof(attention_shared<A, W>));
}

extern "C" gd_status attention_forward_cuda(const gd_call *call)
{
    const attention_args *args = (const attention_args *)call->args;
    if (gd_tensor_count(call->output[0]) == 0 && !call->save[0]) return GD_OK;
    const attention_tensor_cores *fast = attention_tensor_cores_for(call);
    if (fast) return fast->forward(call);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        using A = gd_compute<T>;
        attention_forward_pass<T> f = {};
        f.causal = args->causal;
        f.scale = (A)args->scale;
        f.y = attention_as_it_lies<T>(call->output[0]);
        f.mask = attention_mask_of<T>(call);
        if (attention_open_pass(call, &f)) return gd_error_status(call->context);
        return attention_by_piece<T>(
            f.z, [&](auto width) { return run_forward<T, decltype(width)::value>(call, f); });
    });
}
