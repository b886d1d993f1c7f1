// linear_cross_entropy.cu - products by cuBLASLt (kernels/matmul/gemm.cuh) around one kernel that
// reads a row of logits and overwrites it with the data for its gradient.
#include "cross_entropy/rows.cuh"
#include "linear_cross_entropy/linear_cross_entropy.h"
#include "matmul/gemm.cuh"

// ---- Forward ----------------------------------------------------------------------------------

// `rows` rows from `first` on: their logits and their losses; over the logits the residual, if
// needed.
template <class T>
static gd_status run_rows(const gd_call *call, T *logits, double *losses, target_list targets,
                          int64_t first, int64_t rows, gd_gemm_workspace *workspace)
{
    const head_sizes s = head_sizes_of(call);
    const gd_dtype dtype = gd_tensor_dtype(call->input[0]);
    T *x = gd_ptr<T>(call->input[0]) + first * s.K;
    const gd_gemm product = gd_gemm_of(dtype, rows, s.V, s.K, {logits, s.V, 1}, {x, s.K, 1},
                                       {gd_tensor_data(call->input[1]), 1, s.K}, false);
    if (gd_gemm_cuda(call, product, workspace)) return gd_error_status(call->context);
    targets.target += first;
    targets.first = first;
    /* [d] */
    const row_results<T> out = {losses + first, nullptr, nullptr, call->save[0] ? logits : nullptr};
    return launch_rows<T>(call, out, logits, targets, rows);
}

extern "C" gd_status linear_cross_entropy_forward_cuda(const gd_call *call)
{
    const head_sizes s = head_sizes_of(call);
    target_list targets = targets_of(call, call->input[2], s.V);
    targets.fault = gd_cuda_fault_word(call, s.V);
    double *losses = (double *)gd_call_scratch(call, (size_t)s.M * sizeof *losses);
    if (!losses) return gd_error_status(call->context);
    return gd_by_dtype(gd_tensor_dtype(call->input[0]), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        T *logits = gd_ptr<T>(call->save[0]);
        int64_t piece = s.M;
        if (!call->save[0]) {
            piece = gd_min64(s.M, head_piece(&s, sizeof(T)));
            logits = (T *)gd_call_scratch(call, (size_t)(piece * s.V) * sizeof(T));
            if (!logits) return gd_error_status(call->context);
        }
        gd_gemm_workspace workspace = {};
        for (int64_t first = 0; first < s.M; first += piece) {
            const int64_t rows = gd_min64(piece, s.M - first);
            if (run_rows<T>(call, logits, losses, targets, first, rows, &workspace))
                return gd_error_status(call->context);
        }
        return launch_total(call, gd_ptr<C>(call->output[0]), gd_ptr<C>(call->save[1]), losses,
                            targets, s.M);
    });
}

// ---- Backward ---------------------------------------------------------------------------------

// The factors of a product and of its addend for cuBLASLt: for dx, then for dweight. The host need
// not know dloss.
template <class C>
__global__ static void scalar_kernel(C *scalars, const C *dloss, const C *factor, bool add_dx,
                                     bool add_dweight)
{
    scalars[0] = scalars[2] = *dloss * *factor; /* [alpha] */
    scalars[1] = add_dx;
    scalars[3] = add_dweight;
}

// With d = softmax(logits) - [j = target] and alpha = dloss * factor:
// dx = alpha d weight,  dweight = alpha d^T x
extern "C" gd_status linear_cross_entropy_backward_cuda(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0], *dweight = call->dinput[1];
    const head_sizes s = head_sizes_of(call);
    const gd_dtype dtype = gd_tensor_dtype(call->input[0]);
    const gd_cuda_matrix d = {gd_tensor_data(call->save[0]), s.V, 1};
    const gd_cuda_matrix x = {gd_tensor_data(call->input[0]), s.K, 1};
    const gd_cuda_matrix weight = {gd_tensor_data(call->input[1]), s.K, 1};
    return gd_by_dtype(call->dtype, [&](auto zero) {
        using C = gd_compute<decltype(zero)>;
        C *scalars = (C *)gd_call_scratch(call, 4 * sizeof(C));
        if (!scalars) return gd_error_status(call->context);
        scalar_kernel<<<1, 1, 0, gd_stream(call)>>>(
            scalars, (const C *)gd_tensor_data(call->doutput[0]),
            (const C *)gd_tensor_data(call->save[1]), call->accumulate[0], call->accumulate[1]);
        if (gd_launched(call)) return gd_error_status(call->context);
        gd_gemm_workspace workspace = {};
        if (dx) {
            /* [dx] */
            gd_gemm product = gd_gemm_of(dtype, s.M, s.K, s.V, {gd_tensor_data(dx), s.K, 1}, d,
                                         weight, call->accumulate[0]);
            product.scalars = scalars;
            if (gd_gemm_cuda(call, product, &workspace)) return gd_error_status(call->context);
        }
        if (dweight) {
            /* [dw] */
            gd_gemm product = gd_gemm_of(dtype, s.V, s.K, s.M, {gd_tensor_data(dweight), s.K, 1},
                                         gd_transposed(d), x, call->accumulate[1]);
            product.c_dtype = gd_tensor_dtype(dweight);
            product.scalars = scalars + 2;
            if (gd_gemm_cuda(call, product, &workspace)) return gd_error_status(call->context);
        }
        return gd_error_status(call->context);
    });
}
