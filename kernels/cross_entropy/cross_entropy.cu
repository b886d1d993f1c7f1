// cross_entropy.cu - the CUDA kernels of cross_entropy.
#include "cross_entropy/cross_entropy_soft.cuh"

extern "C" gd_status cross_entropy_forward_cuda(const gd_call *call)
{
    if (!cross_entropy_is_short(call)) return launch_soft_forward(call);
    const gd_tensor *logits = call->input[0];
    const int64_t rows = gd_tensor_count(call->input[1]);
    target_list targets = targets_of(call, call->input[1], gd_tensor_dim(logits, -1));
    targets.fault = gd_cuda_fault_word(call, targets.vocab);
    double *losses = (double *)gd_call_scratch(call, (size_t)rows * sizeof *losses);
    if (!losses) return gd_error_status(call->context);
    return gd_by_dtype(gd_tensor_dtype(logits), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        const row_results<T> out = {losses, gd_ptr<C>(call->save[0]), gd_ptr<C>(call->save[1]),
                                    nullptr};
        if (launch_rows<T>(call, out, gd_ptr<T>(logits), targets.vocab, targets, rows))
            return gd_error_status(call->context);
        return launch_total(call, gd_ptr<C>(call->output[0]), gd_ptr<C>(call->save[2]), losses,
                            targets, rows);
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
    gd_in_turn();
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
            if (counts) in = gd_pack<T, V>::load(from, p);
            if (add) out = gd_pack<T, V>::load(to, p);
            for (int v = 0; v < V; v++) {
                C d = 0;
                if (counts) d = cross_entropy_dx(C(gd_load(in[v])), m, l, scale);
                if (counts && p * V + v == target) d = cross_entropy_dx_target(d, scale);
                out[v] = gd_store<T>(add ? gd_load(out[v]) + d : d);
            }
            out.store(to, p);
        }
    }
}

extern "C" gd_status cross_entropy_backward_cuda(const gd_call *call)
{
    if (!cross_entropy_is_short(call)) return launch_soft_backward(call);
    gd_tensor *out = call->dinput[0];
    if (!out || gd_tensor_count(out) == 0) return GD_OK;
    const int64_t rows = gd_tensor_count(call->input[1]);
    const target_list targets = targets_of(call, call->input[1], gd_tensor_dim(out, -1));
    return gd_by_dtype(gd_tensor_dtype(call->input[0]), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        const T *x = gd_ptr<T>(call->input[0]);
        T *dx = gd_ptr<T>(out);
        const bool packed = gd_rows_pack<T>(targets.vocab, x, dx);
        return gd_by_team<T>(rows, targets.vocab, packed, [&](auto grid, auto pack, auto block) {
            return gd_launch(call, grid, row_backward<T, pack, block>, dx, x,
                             gd_ptr<C>(call->save[0]), gd_ptr<C>(call->save[1]),
                             gd_ptr<C>(call->doutput[0]), gd_ptr<C>(call->save[2]), targets, rows,
                             call->accumulate[0]);
        });
    });
}
