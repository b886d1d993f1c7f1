// cross_entropy.cu - the CUDA kernels of cross_entropy.
#include "cross_entropy/cross_entropy.h"
#include "device_cuda.h"
#include "row_team.cuh"

// The targets of a call. Those that are neither in the vocabulary nor ignored are an error that the
// host learns of later; until then they are left out like ignored ones, so nothing reads beside x.
struct target_list {
    const int32_t *target;
    int64_t vocab;
    int32_t ignore_index;
    bool use_ignore_index;
    int64_t *fault; // may be NULL

    __device__ bool counts(int64_t row) const
    {
        const int32_t t = target[row];
        return t >= 0 && t < vocab && !(use_ignore_index && t == ignore_index);
    }
};

static target_list targets_of(const gd_call *call)
{
    const gd_cross_entropy_args *args = (const gd_cross_entropy_args *)call->args;
    const gd_tensor *logits = call->input[0];
    target_list targets = {};
    targets.target = (const int32_t *)gd_tensor_data(call->input[1]);
    targets.vocab = gd_tensor_dim(logits, -1);
    targets.ignore_index = args->ignore_index;
    targets.use_ignore_index = args->use_ignore_index;
    return targets;
}

// ---- Forward ----------------------------------------------------------------------------------

// A team for each row of x [rows, V]: losses[row] = logsumexp(x) - x[target], and the two parts of
// the logsumexp.
template <class T, int V, bool BLOCK>
__global__ static void __launch_bounds__(gd_team_most(BLOCK))
    row_forward(double *losses, gd_compute<T> *max_out, gd_compute<T> *log_out, const T *x,
                target_list targets, int64_t rows)
{
    using C = gd_compute<T>;
    __shared__ C shared[32];
    const gd_team<BLOCK> team;
    for (int64_t r = team.row; r < rows; r += team.step) {
        const T *from = x + r * targets.vocab;
        const bool counts = targets.counts(r);
        C max = 0, log_sum = 0, loss = 0;
        if (counts) { // the same for the whole team
            gd_sum_exp<C> row;
            for (int64_t p = team.rank; p < targets.vocab / V; p += team.size) {
                const gd_pack<T, V> pack = gd_load_pack<T, V>(from, p);
                for (int v = 0; v < V; v++) row.add(gd_load(pack.element[v]));
            }
            row.reduce(team, shared);
            max = row.max;
            log_sum = log(row.sum);
            loss = log_sum - (gd_load(from[targets.target[r]]) - max);
        }
        if (team.rank > 0) continue;
        losses[r] = loss;
        if (max_out) max_out[r] = max;
        if (log_out) log_out[r] = log_sum;
        const bool ignored = targets.use_ignore_index && targets.target[r] == targets.ignore_index;
        if (!counts && !ignored && targets.fault) *targets.fault = 1 + r;
    }
}

// One block: the rows' losses, each thread every 1024th, then a tree; and the factor of a row.
template <class C>
__global__ static void __launch_bounds__(1024) total(C *loss, C *factor_out, const double *losses,
                                                     target_list targets, int64_t rows, bool mean)
{
    __shared__ double shared[32];
    double sum = 0, counting = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
        sum += losses[r];
        counting += targets.counts(r);
    }
    sum = gd_block_reduce(sum, shared, gd_plus());
    counting = gd_block_reduce(counting, shared, gd_plus());
    if (threadIdx.x > 0) return;
    const double factor = mean ? 1 / counting : 1;
    *loss = (C)(sum * factor); // no rows: 0 * inf = NaN
    if (factor_out) *factor_out = (C)(counting > 0 ? factor : 0);
}

extern "C" gd_status cross_entropy_forward_cuda(const gd_call *call)
{
    const gd_cross_entropy_args *args = (const gd_cross_entropy_args *)call->args;
    const int64_t rows = gd_tensor_count(call->input[1]);
    target_list targets = targets_of(call);
    targets.fault = gd_cuda_fault_word(call, targets.vocab);
    double *losses = (double *)gd_call_scratch(call, (size_t)rows * sizeof *losses);
    if (!losses) return gd_error_status(call->context);
    return gd_by_dtype(gd_tensor_dtype(call->input[0]), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        const T *x = gd_ptr<T>(call->input[0]);
        C *max = gd_ptr<C>(call->save[0]), *log_sum = gd_ptr<C>(call->save[1]);
        if (rows > 0) {
            const gd_team_launch launch = gd_team_for(rows, targets.vocab);
            const bool packed = gd_rows_pack<T>(targets.vocab, x);
            gd_by_team<T>(packed, launch.block, [&](auto pack, auto block) {
                row_forward<T, decltype(pack)::value, decltype(block)::value>
                    <<<launch.blocks, launch.threads, 0, gd_stream(call)>>>(losses, max, log_sum, x,
                                                                            targets, rows);
            });
            if (gd_launched(call)) return gd_error_status(call->context);
        }
        total<<<1, 1024, 0, gd_stream(call)>>>(gd_ptr<C>(call->output[0]), gd_ptr<C>(call->save[2]),
                                               losses, targets, rows, args->reduction == GD_MEAN);
        return gd_launched(call);
    });
}

// ---- Backward ---------------------------------------------------------------------------------

// dx[i, j] = dloss * factor * (softmax(x[i])[j] - [j = t_i]), element by element, so dx may be x.
template <class T, int V, bool BLOCK>
__global__ static void __launch_bounds__(gd_team_most(BLOCK))
    row_backward(T *dx, const T *x, const gd_compute<T> *max, const gd_compute<T> *log_sum,
                 const gd_compute<T> *dloss, const gd_compute<T> *factor, target_list targets,
                 int64_t rows, bool add)
{
    using C = gd_compute<T>;
    const gd_team<BLOCK> team;
    const C scale = *dloss * *factor;
    for (int64_t r = team.row; r < rows; r += team.step) {
        const T *from = x + r * targets.vocab;
        T *to = dx + r * targets.vocab;
        const bool counts = targets.counts(r);
        if (!counts && add) continue;
        const C m = max[r], l = log_sum[r];
        const int64_t target = targets.target[r];
        for (int64_t p = team.rank; p < targets.vocab / V; p += team.size) {
            gd_pack<T, V> in = {}, out = {};
            if (counts) in = gd_load_pack<T, V>(from, p);
            if (add) out = gd_load_pack<T, V>(to, p);
            for (int v = 0; v < V; v++) {
                C d = 0;
                if (counts) d = exp(gd_load(in.element[v]) - m - l) * scale;
                if (counts && p * V + v == target) d -= scale;
                out.element[v] = gd_store<T>(add ? gd_load(out.element[v]) + d : d);
            }
            gd_store_pack(to, p, out);
        }
    }
}

extern "C" gd_status cross_entropy_backward_cuda(const gd_call *call)
{
    gd_tensor *out = call->dinput[0];
    if (!out || gd_tensor_count(out) == 0) return GD_OK;
    const int64_t rows = gd_tensor_count(call->input[1]);
    const target_list targets = targets_of(call);
    return gd_by_dtype(gd_tensor_dtype(call->input[0]), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        const T *x = gd_ptr<T>(call->input[0]);
        T *dx = gd_ptr<T>(out);
        const gd_team_launch launch = gd_team_for(rows, targets.vocab);
        const bool packed = gd_rows_pack<T>(targets.vocab, x, dx);
        gd_by_team<T>(packed, launch.block, [&](auto pack, auto block) {
            row_backward<T, decltype(pack)::value, decltype(block)::value>
                <<<launch.blocks, launch.threads, 0, gd_stream(call)>>>(
                    dx, x, gd_ptr<C>(call->save[0]), gd_ptr<C>(call->save[1]),
                    gd_ptr<C>(call->doutput[0]), gd_ptr<C>(call->save[2]), targets, rows,
                    call->accumulate[0]);
        });
        return gd_launched(call);
    });
}
