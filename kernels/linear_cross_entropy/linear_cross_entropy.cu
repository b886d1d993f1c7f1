// linear_cross_entropy.cu - products by cuBLASLt (kernels/matmul/gemm.cuh) around one kernel that
// reads a row of logits and overwrites it with the data for its gradient.
#include "cross_entropy/rows.cuh"
#include "linear_cross_entropy/linear_cross_entropy.h"
#include "map.cuh"
#include "matmul/gemm.cuh"

// The weight with rows of zeros for the padding of the logits, or in place if they have none; NULL,
// with the error set, if there is no memory.
static void *padded_weight(const gd_call *call)
{
    const gd_tensor *weight = call->input[1];
    const head_sizes s = head_sizes_of(call);
    const gd_dtype dtype = gd_tensor_dtype(weight);
    const int64_t rows = head_columns(call, dtype);
    if (rows == s.V || s.K == 0) return gd_tensor_data(weight);
    const size_t row = (size_t)s.K * gd_dtype_size(dtype), bytes = (size_t)s.V * row;
    char *padded = (char *)gd_call_scratch(call, (size_t)rows * row);
    if (!padded) return nullptr;
    cudaError_t error = cudaMemcpyAsync(padded, gd_tensor_data(weight), bytes,
                                        cudaMemcpyDeviceToDevice, gd_stream(call));
    if (!error) error = cudaMemsetAsync(padded + bytes, 0, rows * row - bytes, gd_stream(call));
    return gd_cuda_check(call->context, error, "copy") ? nullptr : padded;
}

// With the residual d of `rows` rows from `first` on: c (+)= d weight, only these rows of it
// (gradient 0, dx), or c (+)= d^T x (gradient 1, dweight). d is padded, and so is the weight; c is
// if it is a save.
static gd_gemm gradient_product(const gd_call *call, int gradient, const gd_tensor *c, void *d,
                                void *weight, int64_t first, int64_t rows, bool add)
{
    const head_sizes s = head_sizes_of(call);
    const gd_dtype dtype = gd_tensor_dtype(call->input[0]), c_dtype = gd_tensor_dtype(c);
    const int64_t before = first * s.K, columns = head_columns(call, dtype);
    const gd_cuda_matrix residual = {d, columns, 1};
    gd_cuda_matrix x = {gd_tensor_data(call->input[0]), s.K, 1}, out = {gd_tensor_data(c), s.K, 1};
    gd_gemm product;
    if (gradient == 0) {
        out.data = (char *)out.data + before * (int64_t)gd_dtype_size(c_dtype);
        product = gd_gemm_of(dtype, rows, s.K, columns, out, residual, {weight, s.K, 1}, add);
    } else {
        x.data = (char *)x.data + before * (int64_t)gd_dtype_size(dtype);
        product =
            gd_gemm_of(dtype, gd_tensor_dim(c, 0), s.K, rows, out, gd_transposed(residual), x, add);
    }
    product.c_dtype = c_dtype;
    return product;
}

// ---- Forward ----------------------------------------------------------------------------------

// The padding of the logits: words of probability 0.
template <class T>
__global__ static void pad_kernel(T *logits, int64_t V, int64_t columns, int64_t rows)
{
    gd_in_turn();
    const int64_t padding = columns - V;
    GD_EACH(i, rows * padding)
    {
        logits[i / padding * columns + V + i % padding] = gd_store<T>(-(gd_compute<T>)INFINITY);
    }
}

// `rows` rows from `first` on: their logits and their losses; over the logits d, if needed; in
// pieces their part of the gradients.
template <class T>
static gd_status run_rows(const gd_call *call, T *logits, void *weight, double *losses,
                          target_list targets, int64_t first, int64_t rows,
                          gd_gemm_workspace *workspace)
{
    const int64_t K = head_sizes_of(call).K;
    const gd_dtype dtype = gd_tensor_dtype(call->input[0]);
    const int64_t columns = head_columns(call, dtype);
    T *x = gd_ptr<T>(call->input[0]) + first * K;
    const gd_gemm product =
        gd_gemm_of(dtype, rows, columns, K, {logits, columns, 1}, {x, K, 1}, {weight, 1, K}, false);
    if (gd_gemm_cuda(call, product, workspace)) return gd_error_status(call->context);
    if (gd_launch(call, gd_grid_for(rows * (columns - targets.vocab)), pad_kernel<T>, logits,
                  targets.vocab, columns, rows))
        return gd_error_status(call->context);
    targets.target += first;
    targets.first = first;
    const row_results<T> out = {losses + first, nullptr, nullptr,
                                call->save[SAVE_FACTOR] ? logits : nullptr};
    gd_status status = launch_rows<T>(call, out, logits, columns, targets, rows);
    for (int i = 0; i < 2 && !status; i++) {
        const gd_tensor *saved = call->save[SAVE_DX + i];
        if (!saved) continue;
        const bool add = i == 1 && first > 0;
        status = gd_gemm_cuda(
            call, gradient_product(call, i, saved, logits, weight, first, rows, add), workspace);
    }
    return status;
}

extern "C" gd_status linear_cross_entropy_forward_cuda(const gd_call *call)
{
    const head_sizes s = head_sizes_of(call);
    target_list targets = targets_of(call, call->input[2], s.V);
    targets.fault = gd_cuda_fault_word(call, s.V);
    double *losses = (double *)gd_call_scratch(call, (size_t)s.M * sizeof *losses);
    void *weight = losses ? padded_weight(call) : nullptr;
    if (!weight && gd_error_status(call->context)) return gd_error_status(call->context);
    return gd_by_dtype(gd_tensor_dtype(call->input[0]), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        T *logits = gd_ptr<T>(call->save[SAVE_D]);
        const int64_t piece = head_piece(call, sizeof(T));
        if (!call->save[SAVE_D]) {
            const int64_t most = gd_min64(piece, s.M);
            const int64_t columns = head_columns(call, gd_tensor_dtype(call->input[0]));
            logits = (T *)gd_call_scratch(call, (size_t)(most * columns) * sizeof(T));
            if (!logits) return gd_error_status(call->context);
        }
        gd_gemm_workspace workspace = {};
        for (int64_t first = 0; first < s.M; first += piece) {
            const int64_t rows = gd_min64(piece, s.M - first);
            if (run_rows<T>(call, logits, weight, losses, targets, first, rows, &workspace))
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
    gd_in_turn();
    scalars[0] = scalars[2] = *dloss * *factor;
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
    return gd_by_dtype(gd_tensor_dtype(gradient), [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        gd_layout in[] = {gd_cuda_layout(saved)};
        in[0].shape = gd_tensor_shape(gradient); // without padding
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
        if (gd_launch(call, {1, 1}, scalar_kernel<C>, scalars, gd_ptr<C>(call->doutput[0]),
                      gd_ptr<C>(call->save[SAVE_FACTOR]), call->accumulate[0], call->accumulate[1]))
            return gd_error_status(call->context);
        gd_gemm_workspace workspace = {};
        for (int i = 0; i < 2; i++) {
            if (!call->dinput[i]) continue;
            void *weight = i == 0 ? padded_weight(call) : nullptr;
            if (gd_error_status(call->context)) return gd_error_status(call->context);
            gd_gemm product =
                gradient_product(call, i, call->dinput[i], gd_tensor_data(call->save[SAVE_D]),
                                 weight, 0, head_sizes_of(call).M, call->accumulate[i]);
            product.scalars = scalars + 2 * i;
            if (gd_gemm_cuda(call, product, &workspace)) return gd_error_status(call->context);
        }
        return GD_OK;
    });
}
