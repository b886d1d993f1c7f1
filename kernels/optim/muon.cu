// muon.cu - Muon's update of one matrix on a GPU: muon_cpu.c, with products by cuBLASLt. For
// parameters in bfloat16 the products are too, as Jordan's: their errors are small beside how far
// from 1 five steps leave the singular values.
//
// A captured step runs all kernels in every replay; if no update is made, the first writes zeros
// instead of gradients, and the last nothing.
#include <math.h>

#include "cuda/device_cuda.h"
#include "matmul/gemm.cuh"
#include "optim/muon.h"
#include "optim/rounded.cuh"

// Elements of X, which is of type P, computed on in T.
template <class T, class P, int V>
__device__ inline void muon_load(T (&value)[V], const P *x, int64_t first, int64_t n)
{
    P element[V];
    gd_load_guarded(element, x, first, n);
#pragma unroll
    for (int k = 0; k < V; k++) value[k] = (T)gd_load(element[k]);
}

template <class T, class P, int V>
__device__ inline void muon_store(P *x, const T (&value)[V], int64_t first, int64_t n)
{
    P element[V];
#pragma unroll
    for (int k = 0; k < V; k++) element[k] = gd_store<P>(value[k]);
    gd_store_guarded(x, element, first, n);
}

// m = momentum m + (1 - momentum) g;  x = m, or momentum m + (1 - momentum) g for Nesterov's.
template <class T, class P>
static __global__ void muon_momentum_kernel(P *x, T *m, const T *g, int64_t n, T momentum, T fresh,
                                            bool nesterov, const gd_update_state *state)
{
    gd_in_turn();
    constexpr int V = gd_pack_size<T>;
    const bool apply = state->apply;
    __shared__ gd_factor<T> factor;
    if (threadIdx.x == 0) factor = gd_factor<T>::of(state->factor);
    __syncthreads();
    GD_EACH(pack, gd_packs(n, V))
    {
        T grad[V] = {}, mean[V] = {};
        if (apply) {
            gd_load_guarded(grad, g, pack * V, n);
            gd_load_guarded(mean, m, pack * V, n);
            scale_by(grad, factor);
#pragma unroll
            for (int k = 0; k < V; k++) {
                mean[k] = momentum * mean[k] + fresh * grad[k];
                grad[k] = nesterov ? momentum * mean[k] + fresh * grad[k] : mean[k];
            }
            gd_store_guarded(m, mean, pack * V, n);
        }
        muon_store(x, grad, pack * V, n);
    }
}

// x / its norm
template <class T, class P>
static __global__ void muon_normalize_kernel(P *x, int64_t n, const double *squares)
{
    gd_in_turn();
    constexpr int V = gd_pack_size<T>;
    __shared__ gd_factor<T> factor;
    if (threadIdx.x == 0) factor = gd_factor<T>::of(*squares < MUON_LEAST ? 0 : 1 / sqrt(*squares));
    __syncthreads();
    GD_EACH(pack, gd_packs(n, V))
    {
        T value[V];
        muon_load(value, x, pack * V, n);
        scale_by(value, factor);
        muon_store(x, value, pack * V, n);
    }
}

// to = factor from
template <class T, class P>
static __global__ void muon_scale_kernel(P *to, const P *from, int64_t n, T factor)
{
    gd_in_turn();
    constexpr int V = gd_pack_size<T>;
    GD_EACH(pack, gd_packs(n, V))
    {
        T value[V];
        muon_load(value, from, pack * V, n);
#pragma unroll
        for (int k = 0; k < V; k++) value[k] *= factor;
        muon_store(to, value, pack * V, n);
    }
}

// w = (1 - lr wd) w - lr size x
template <class T, class P, class R>
static __global__ void muon_step_kernel(T *w, const P *x, R *rounded, int64_t n, double rate,
                                        double decay, double size, const gd_update_state *state)
{
    gd_in_turn();
    constexpr int V = gd_pack_size<T>;
    if (!state->apply) return;
    __shared__ T keep, step;
    if (threadIdx.x == 0) { // once, since the state's numbers are doubles
        keep = (T)(1 - state->rate * rate * decay);
        step = (T)(state->rate * rate * size);
    }
    __syncthreads();
    GD_EACH(pack, gd_packs(n, V))
    {
        T weight[V], value[V];
        gd_load_guarded(weight, w, pack * V, n);
        muon_load(value, x, pack * V, n);
        if constexpr (has_rounded<T, R>) follow(weight, rounded, pack * V, n);
#pragma unroll
        for (int k = 0; k < V; k++) weight[k] = keep * weight[k] - step * value[k];
        gd_store_guarded(w, weight, pack * V, n);
        if constexpr (has_rounded<T, R>) round_to(rounded, weight, pack * V, n);
    }
}

// c += alpha a b
template <class P>
static gd_status add_product(const gd_call *call, int64_t M, int64_t N, int64_t K, P *c,
                             gd_cuda_matrix a, gd_cuda_matrix b, double alpha, bool accumulate,
                             gd_gemm_workspace *workspace)
{
    gd_gemm product = gd_gemm_of(call->kernel_dtype, M, N, K, {c, N, 1}, a, b, accumulate);
    product.alpha = alpha;
    return gd_gemm_cuda(call, product, workspace);
}

// next = a X + (b A + c A A) X with A = X X^T, or for a matrix of more rows than columns, with A =
// X^T X, next = a X + X (b A + c A A). A and A A are `gram` and `square`.
template <class T, class P>
static gd_status newton_schulz_step(const gd_call *call, P *next, P *x, P *gram, P *square,
                                    int64_t rows, int64_t columns, gd_gemm_workspace *workspace)
{
    const bool tall = rows > columns;
    const int64_t small = tall ? columns : rows, large = tall ? rows : columns;
    const int per_block = gd_threads * gd_pack_size<T>;
    const gd_cuda_matrix X = {x, columns, 1}, A = {gram, small, 1}, B = {square, small, 1};
    if (add_product<P>(call, small, small, large, gram, tall ? gd_transposed(X) : X,
                       tall ? X : gd_transposed(X), 1, false, workspace))
        return gd_error_status(call->context);
    if (gd_launch(call, gd_grid_for(small * small, per_block), muon_scale_kernel<T, P>, square,
                  gram, small * small, (T)MUON_B) ||
        add_product<P>(call, small, small, small, square, A, A, MUON_C, true, workspace))
        return gd_error_status(call->context);
    if (gd_launch(call, gd_grid_for(rows * columns, per_block), muon_scale_kernel<T, P>, next, x,
                  rows * columns, (T)MUON_A))
        return gd_error_status(call->context);
    return add_product<P>(call, rows, columns, small, next, tall ? X : B, tall ? B : X, 1, true,
                          workspace);
}

template <class T, class P>
static gd_status muon(const gd_call *call, const gd_update_arrays *arrays, int64_t rows,
                      int64_t columns, const gd_muon_rule *rule, const gd_update_state *state)
{
    const int64_t n = rows * columns, small = rows < columns ? rows : columns;
    const gd_grid grid = gd_grid_for(n, gd_threads * gd_pack_size<T>);
    P *x = (P *)gd_call_scratch(call, (size_t)n * sizeof(P));
    P *next = (P *)gd_call_scratch(call, (size_t)n * sizeof(P));
    P *const gram = (P *)gd_call_scratch(call, (size_t)(small * small) * sizeof(P));
    P *const square = (P *)gd_call_scratch(call, (size_t)(small * small) * sizeof(P));
    double *const squares = (double *)gd_call_scratch(call, sizeof(double));
    if (gd_error_status(call->context)) return gd_error_status(call->context);

    if (gd_launch(call, grid, muon_momentum_kernel<T, P>, x, (T *)arrays->state[0],
                  (const T *)arrays->g, n, (T)rule->momentum, (T)(1 - rule->momentum),
                  rule->nesterov, state))
        return gd_error_status(call->context);
    gd_sum_squares_cuda(squares, x, call->kernel_dtype, n, NULL, call->context);
    if (gd_launch(call, grid, muon_normalize_kernel<T, P>, x, n, squares))
        return gd_error_status(call->context);
    gd_gemm_workspace workspace = {};
    for (int step = 0; step < MUON_STEPS; step++) {
        if (newton_schulz_step<T>(call, next, x, gram, square, rows, columns, &workspace))
            return gd_error_status(call->context);
        P *const old = x;
        x = next;
        next = old;
    }
    gd_status status = GD_OK;
    by_rounded<T>(arrays->rounded, [&](auto *data) {
        using R = std::remove_pointer_t<decltype(data)>;
        status = gd_launch(call, grid, muon_step_kernel<T, P, R>, (T *)arrays->w, x, data, n,
                           rule->rate, rule->weight_decay, muon_size(rule, rows, columns), state);
    });
    return status;
}

extern "C" void gd_muon_cuda(const gd_update_arrays *arrays, int64_t rows, int64_t columns,
                             const gd_muon_rule *rule, const gd_update_state *state,
                             gd_context *ctx)
{
    if (rows * columns == 0) return;
    gd_op messages = {};
    messages.name = "muon";
    gd_call call = {};
    call.context = ctx;
    call.op = &messages;
    call.dtype = arrays->dtype;
    const bool narrow = arrays->rounded.data && arrays->rounded.dtype == GD_BFLOAT16;
    call.kernel_dtype = narrow ? GD_BFLOAT16 : arrays->dtype;
    if (arrays->dtype == GD_FLOAT64)
        muon<double, double>(&call, arrays, rows, columns, rule, state);
    else if (narrow)
        muon<float, __nv_bfloat16>(&call, arrays, rows, columns, rule, state);
    else
        muon<float, float>(&call, arrays, rows, columns, rule, state);
}
