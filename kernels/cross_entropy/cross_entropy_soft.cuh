// cross_entropy_soft.cuh - cross_entropy where a row has more than one target, or none is worth
// exactly 1: class weights, label smoothing, probabilities, a loss for each row. A team of threads
// has a row. README.md derives it from the shares of the classes.
#ifndef GD_CROSS_ENTROPY_SOFT_CUH
#define GD_CROSS_ENTROPY_SOFT_CUH

#include "cross_entropy/formula.h"
#include "cross_entropy/rows.cuh"
#include "reduce/reduce.cuh"

template <class T>
struct soft_rows {
    target_list targets;   // target NULL: probabilities
    const T *x, *weight;   // weight NULL: ones
    const T *given;        // the probabilities, or NULL
    gd_compute<T> on, off; // a target's part, and what smoothing spreads: 1 - eps and eps / V
    int64_t rows;
    bool mean, none;

    __device__ bool counts(int64_t row) const
    {
        return given || targets.counts(row);
    }

    __device__ gd_compute<T> weight_of(int64_t j) const
    {
        return weight ? gd_load(weight[j]) : (gd_compute<T>)1;
    }

    // c_ij
    __device__ gd_compute<T> share_of(int64_t row, int64_t j) const
    {
        using C = gd_compute<T>;
        const C q =
            given ? (C)gd_load(given[row * targets.vocab + j]) : (C)(j == targets.target[row]);
        const C part = cross_entropy_part(q, on, off);
        return part == 0 ? (C)0 : cross_entropy_share(weight_of(j), part);
    }
};

template <class T>
static inline soft_rows<T> soft_rows_of(const gd_call *call)
{
    using C = gd_compute<T>;
    const gd_cross_entropy_args *args = (const gd_cross_entropy_args *)call->args;
    const gd_tensor *logits = call->input[0], *targets = call->input[1];
    const bool numbers = gd_tensor_dtype(targets) == GD_INT32;
    const int64_t vocab = gd_tensor_dim(logits, -1);
    soft_rows<T> s = {};
    if (numbers)
        s.targets = targets_of(call, targets, vocab);
    else
        s.given = gd_ptr<const T>(targets);
    s.targets.vocab = vocab;
    s.x = gd_ptr<const T>(logits);
    s.weight = gd_ptr<const T>(call->input[2]);
    s.on = (C)(1 - args->smoothing);
    s.off = (C)(args->smoothing / (double)(vocab ? vocab : 1));
    s.rows = 1;
    for (int d = 0; d + 1 < gd_tensor_ndim(logits); d++) s.rows *= gd_tensor_shape(logits)[d];
    s.mean = args->reduction == GD_MEAN;
    s.none = args->reduction == GD_NONE;
    return s;
}

// losses [rows]; max and log_sum [rows] may be NULL. The second pass reads what the first did.
template <class T, bool BLOCK>
__global__ static void __launch_bounds__(gd_team_most(BLOCK))
    soft_forward(double *losses, gd_compute<T> *max_out, gd_compute<T> *log_out, soft_rows<T> s)
{
    gd_in_turn();
    using C = gd_compute<T>;
    __shared__ C shared[32];
    const gd_team<BLOCK> team;
    const int64_t vocab = s.targets.vocab;
    for (int64_t r = team.row; r < s.rows; r += team.step) {
        const T *x = s.x + r * vocab;
        const bool counts = s.counts(r); // the same for the whole team
        C max = 0, log_sum = 0, loss = 0;
        if (counts) {
            gd_sum_exp<C> row;
            for (int64_t j = team.rank; j < vocab; j += team.size) row.add((C)gd_load(x[j]));
            row.reduce(team, shared);
            max = row.max;
            log_sum = log(row.sum);
            for (int64_t j = team.rank; j < vocab; j += team.size) {
                const C c = s.share_of(r, j);
                if (c != 0) loss += c * (log_sum - (gd_load(x[j]) - max));
            }
            loss = team.sum(loss, shared);
        }
        if (team.rank > 0) continue;
        losses[r] = loss;
        if (max_out) max_out[r] = max;
        if (log_out) log_out[r] = log_sum;
        if (s.given || counts || !s.targets.fault) continue;
        const int32_t t = s.targets.target[r];
        if (!(s.targets.use_ignore_index && t == s.targets.ignore_index)) *s.targets.fault = 1 + r;
    }
}

// One block: the losses as they are, or their sum, each thread every 1024th, then a tree; and the
// factor of a row.
template <class T>
__global__ static void __launch_bounds__(1024)
    soft_total(gd_compute<T> *out, gd_compute<T> *factor_out, const double *losses, soft_rows<T> s)
{
    gd_in_turn();
    using C = gd_compute<T>;
    __shared__ double shared[32];
    double sum = 0, counting = 0, divisor = 0;
    for (int64_t r = threadIdx.x; r < s.rows; r += blockDim.x) {
        sum += losses[r];
        if (s.none) out[r] = (C)losses[r];
        if (!s.counts(r)) continue;
        counting++;
        divisor += s.given ? 1 : (double)s.weight_of(s.targets.target[r]);
    }
    sum = gd_sum(sum, shared);
    counting = gd_sum(counting, shared);
    divisor = gd_sum(divisor, shared);
    if (threadIdx.x > 0) return;
    const double factor = !s.mean ? 1 : divisor == 0 ? (double)NAN : 1 / divisor;
    if (!s.none) *out = (C)(sum * factor);
    if (factor_out) *factor_out = (C)(counting > 0 ? factor : 0);
}

// dx and dq may be NULL; dx may be x.
template <class T, bool BLOCK>
__global__ static void __launch_bounds__(gd_team_most(BLOCK))
    soft_backward(T *dx, T *dq, const gd_compute<T> *max, const gd_compute<T> *log_sum,
                  const gd_compute<T> *dloss, const gd_compute<T> *factor, soft_rows<T> s,
                  bool add_x, bool add_q)
{
    gd_in_turn();
    using C = gd_compute<T>;
    __shared__ C shared[32];
    const gd_team<BLOCK> team;
    const int64_t vocab = s.targets.vocab;
    for (int64_t r = team.row; r < s.rows; r += team.step) {
        const bool counts = s.counts(r);
        const C g = *factor * dloss[s.none ? r : 0], m = max[r], l = log_sum[r];
        C total = 0;
        for (int64_t j = team.rank; counts && j < vocab; j += team.size) total += s.share_of(r, j);
        total = team.sum(total, shared);
        for (int64_t j = team.rank; j < vocab; j += team.size) {
            const int64_t at = r * vocab + j;
            const C log_p = gd_load(s.x[at]) - m - l, w = s.on * s.weight_of(j);
            const C c = counts ? s.share_of(r, j) : (C)0, pull = cross_entropy_pull(total, log_p);
            const C d = counts ? cross_entropy_soft_dx(g, pull, c) : (C)0;
            const C slope = cross_entropy_soft_dq(g, w, log_p);
            if (dq) dq[at] = gd_store<T>(add_q ? gd_load(dq[at]) + slope : slope);
            if (dx) dx[at] = gd_store<T>(add_x ? gd_load(dx[at]) + d : d);
        }
    }
}

static inline gd_status launch_soft_forward(const gd_call *call)
{
    return gd_by_dtype(gd_tensor_dtype(call->input[0]), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        soft_rows<T> s = soft_rows_of<T>(call);
        if (!s.given) s.targets.fault = gd_cuda_fault_word(call, s.targets.vocab);
        double *losses = (double *)gd_call_scratch(call, (size_t)s.rows * sizeof *losses);
        if (!losses) return gd_error_status(call->context);
        const gd_status status =
            gd_by_team<T>(s.rows, s.targets.vocab, false, [&](auto grid, auto, auto block) {
                return gd_launch(call, grid, soft_forward<T, block>, losses,
                                 gd_ptr<C>(call->save[0]), gd_ptr<C>(call->save[1]), s);
            });
        if (status) return status;
        return gd_launch(call, {1, 1024}, soft_total<T>, gd_ptr<C>(call->output[0]),
                         gd_ptr<C>(call->save[2]), losses, s);
    });
}

// The term of dw, without the factor of a row.
template <class C>
struct soft_weight_term {
    C on, off;

    __device__ C operator()(C max, C log_sum, C dloss, C x, C q) const
    {
        return cross_entropy_soft_dw(dloss, cross_entropy_part(q, on, off), x - max - log_sum);
    }
};

template <class C>
struct soft_weight_sum : gd_sum_of<C, soft_weight_term<C>> {
    const C *factor;

    __device__ C result(C sum, int64_t) const
    {
        return sum * *factor;
    }
};

// dw [V] (+)= the sums over the rows.
template <class T>
static inline gd_status soft_weight_gradient(const gd_call *call, const soft_rows<T> &s)
{
    using C = gd_compute<T>;
    const int64_t shape[] = {s.rows, s.targets.vocab}, packed[] = {s.targets.vocab, 1};
    const int64_t rows[] = {s.rows, 1}, apart[] = {1, 0};
    const auto of_row = [&](const gd_tensor *t) {
        const gd_layout layout = {gd_tensor_data(t), call->dtype, 2, rows, apart};
        return layout;
    };
    const gd_layout dloss = {gd_tensor_data(call->doutput[0]), call->dtype, 0, rows, apart};
    const gd_layout result = {nullptr, call->dtype, 1, shape + 1, packed + 1};
    const gd_layout x = {gd_tensor_data(call->input[0]), call->dtype, 2, shape, packed};
    const gd_layout q = {gd_tensor_data(call->input[1]), call->dtype, 2, shape, packed};
    const gd_layout in[] = {of_row(call->save[0]), of_row(call->save[1]),
                            s.none ? of_row(call->doutput[0]) : dloss, x, q};
    soft_weight_sum<C> sum = {};
    sum.term = {s.on, s.off};
    sum.factor = gd_ptr<const C>(call->save[2]);
    return gd_cuda_reduce_over<T, C, 3>(call, gd_ptr<T>(call->dinput[2]), call->accumulate[2],
                                        result, 2, shape, in, sum);
}

static inline gd_status launch_soft_backward(const gd_call *call)
{
    return gd_by_dtype(gd_tensor_dtype(call->input[0]), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        const soft_rows<T> s = soft_rows_of<T>(call);
        if (call->dinput[2]) { // before dx, which may be x
            const gd_status status = soft_weight_gradient<T>(call, s);
            if (status) return status;
        }
        if (s.rows * s.targets.vocab == 0) return GD_OK;
        return gd_by_team<T>(s.rows, s.targets.vocab, false, [&](auto grid, auto, auto block) {
            return gd_launch(call, grid, soft_backward<T, block>, gd_ptr<T>(call->dinput[0]),
                             gd_ptr<T>(call->dinput[1]), gd_ptr<const C>(call->save[0]),
                             gd_ptr<const C>(call->save[1]), gd_ptr<const C>(call->doutput[0]),
                             gd_ptr<const C>(call->save[2]), s, call->accumulate[0],
                             call->accumulate[1]);
        });
    });
}

#endif
