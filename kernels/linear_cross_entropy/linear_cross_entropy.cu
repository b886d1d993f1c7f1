// linear_cross_entropy.cu - products by cuBLASLt (kernels/matmul/gemm.cuh) around one kernel that
// reads a row of logits and overwrites it with the data for its gradient.
#include "cross_entropy/rows.cuh"
#include "linear_cross_entropy/linear_cross_entropy.h"
#include "map.cuh"
#include "matmul/gemm.cuh"

// With the residual d [rows, V] of `rows` rows from `first` on: c (+)= d weight, only these rows of
// it (gradient 0, dx), or c (+)= d^T x (gradient 1, dweight).
static gd_gemm gradient_product(const gd_call *call, int gradient, const gd_tensor *c, void *d,
                                int64_t first, int64_t rows, bool add)
{
    const head_sizes s = head_sizes_of(call);
    const gd_dtype dtype = gd_tensor_dtype(call->input[0]), c_dtype = gd_tensor_dtype(c);
    const int64_t before = first * s.K;
    const gd_cuda_matrix residual = {d, s.V, 1}, weight = {gd_tensor_data(call->input[1]), s.K, 1};
    gd_cuda_matrix x = {gd_tensor_data(call->input[0]), s.K, 1}, out = {gd_tensor_data(c), s.K, 1};
    gd_gemm product;
    if (gradient == 0) {
        out.data = (char *)out.data + before * (int64_t)gd_dtype_size(c_dtype);
        product = gd_gemm_of(dtype, rows, s.K, s.V, out, residual, weight, add); /* [dx] */
    } else {
        x.data = (char *)x.data + before * (int64_t)gd_dtype_size(dtype);
        product =
            gd_gemm_of(dtype, s.V, s.K, rows, out, gd_transposed(residual), x, add); /* [dw] */
    }
    product.c_dtype = c_dtype;
    return product;
}

// ---- Forward ----------------------------------------------------------------------------------

// `rows` rows from `first` on: their logits and their losses; over the logits d, if needed; in
// pieces their part of the gradients.
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
    const row_results<T> out = {losses + first, nullptr, nullptr,
                                call->save[SAVE_FACTOR] ? logits : nullptr};
    gd_status status = launch_rows<T>(call, out, logits, targets, rows);
    for (int i = 0; i < 2 && !status; i++) {
        const gd_tensor *saved = call->save[SAVE_DX + i];
        if (!saved) continue;
        const bool add = i == 1 && first > 0;
        status = gd_gemm_cuda(call, gradient_product(call, i, saved, logits, first, rows, add),
                              workspace);
    }
    return status;
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
        T *logits = gd_ptr<T>(call->save[SAVE_D]);
        const int64_t piece = head_piece(call, sizeof(T));
        if (!call->save[SAVE_D]) {
            const int64_t most = gd_min64(piece, s.M);
            logits = (T *)gd_call_scratch(call, (size_t)(most * s.V) * sizeof(T));
            if (!logits) return gd_error_status(call->context);
        }
        gd_gemm_workspace workspace = {};
        for (int64_t first = 0; first < s.M; first += piece) {
            const int64_t rows = gd_min64(piece, s.M - first);
            if (run_rows<T>(call, logits, losses, targets, first, rows, &workspace))
                return gd_error_status(call->context);
        }
        return launch_total(call, gd_ptr<C>(call->output[0]), gd_ptr<C>(call->save[SAVE_FACTOR]),
                            losses, targets, s.M);
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

// alpha times what the forward saved.
template <class C>
struct times_alpha {
    const C *dloss, *factor;

    __device__ C operator()(C saved) const
    {
        return *dloss * *factor * saved;
    }
};

// After a forward in pieces: dinput[i] (+)= alpha times its product, which is saved.
static gd_status scale_saved(const gd_call *call, int i)
{
    const gd_tensor *gradient = call->dinput[i], *saved = call->save[SAVE_DX + i];
    if (!gradient) return GD_OK;
    if (head_check_saved(call, i)) return GD_ERROR_STATE;
    return gd_by_dtype(gd_tensor_dtype(gradient), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        const gd_layout in[] = {gd_cuda_layout(saved)};
        const times_alpha<C> scale = {gd_ptr<C>(call->doutput[0]),
                                      gd_ptr<C>(call->save[SAVE_FACTOR])};
        return gd_map<T, C>(call, gd_ptr<T>(gradient), call->accumulate[i], gradient, in, scale);
    });
}

// With d = softmax(logits) - [j = target] and alpha = dloss * factor:
// dx = alpha d weight,  dweight = alpha d^T x
extern "C" gd_status linear_cross_entropy_backward_cuda(const gd_call *call)
{
    if (!call->save[SAVE_D]) {
        if (scale_saved(call, 0)) return gd_error_status(call->context);
        return scale_saved(call, 1);
    }
    return gd_by_dtype(call->dtype, [&](auto zero) {
        using C = gd_compute<decltype(zero)>;
        C *scalars = (C *)gd_call_scratch(call, 4 * sizeof(C));
        if (!scalars) return gd_error_status(call->context);
        scalar_kernel<<<1, 1, 0, gd_stream(call)>>>(scalars, gd_ptr<C>(call->doutput[0]),
                                                    gd_ptr<C>(call->save[SAVE_FACTOR]),
                                                    call->accumulate[0], call->accumulate[1]);
        if (gd_launched(call)) return gd_error_status(call->context);
        gd_gemm_workspace workspace = {};
        for (int i = 0; i < 2; i++) {
            if (!call->dinput[i]) continue;
            gd_gemm product =
                gradient_product(call, i, call->dinput[i], gd_tensor_data(call->save[SAVE_D]), 0,
                                 head_sizes_of(call).M, call->accumulate[i]);
            product.scalars = scalars + 2 * i;
            if (gd_gemm_cuda(call, product, &workspace)) return gd_error_status(call->context);
        }
        return GD_OK;
    });
}
