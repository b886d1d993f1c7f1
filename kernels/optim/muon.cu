// muon.cu - Muon's update of one matrix on a GPU: muon_cpu.c, with products by cuBLASLt.
//
// A captured step runs all kernels in every replay; if no update is made, the first writes zeros
// instead of gradients, and the last nothing.
#include <math.h>

#include "cuda/device_cuda.h"
#include "matmul/gemm.cuh"
#include "optim/muon.h"
#include "optim/rounded.cuh"

constexpr int threads = 256;

// m = momentum m + (1 - momentum) g;  x = m, or momentum m + (1 - momentum) g for Nesterov's.
template <class T>
static __global__ void muon_momentum_kernel(T *x, T *m, const T *g, int64_t n, T momentum, T fresh,
                                            bool nesterov, const gd_update_state *state)
{
    constexpr int V = gd_pack_size<T>;
    const bool apply = state->apply;
    __shared__ gd_factor<T> factor;
    if (threadIdx.x == 0) factor = gd_factor<T>::of(state->factor);
    __syncthreads();
    GD_EACH(pack, gd_packs(n, V))
    {
        T grad[V] = {}, mean[V] = {};
        if (apply) {
            gd_pack_load(grad, g, pack * V, n);
            gd_pack_load(mean, m, pack * V, n);
            scale_by(grad, factor);
#pragma unroll
            for (int k = 0; k < V; k++) {
                mean[k] = momentum * mean[k] + fresh * grad[k];
                grad[k] = nesterov ? momentum * mean[k] + fresh * grad[k] : mean[k];
            }
            gd_pack_store(m, mean, pack * V, n);
        }
        gd_pack_store(x, grad, pack * V, n);
    }
}

// x / its norm
template <class T>
static __global__ void muon_normalize_kernel(T *x, int64_t n, const double *squares)
{
    constexpr int V = gd_pack_size<T>;
    __shared__ T factor;
    if (threadIdx.x == 0) factor = (T)(1 / fmax(sqrt(*squares), MUON_EPS));
    __syncthreads();
    GD_EACH(pack, gd_packs(n, V))
    {
        T value[V];
        gd_pack_load(value, x, pack * V, n);
#pragma unroll
        for (int k = 0; k < V; k++) value[k] *= factor;
        gd_pack_store(x, value, pack * V, n);
    }
}

// to = factor from
template <class T>
static __global__ void muon_scale_kernel(T *to, const T *from, int64_t n, T factor)
{
    constexpr int V = gd_pack_size<T>;
    GD_EACH(pack, gd_packs(n, V))
    {
        T value[V];
        gd_pack_load(value, from, pack * V, n);
#pragma unroll
        for (int k = 0; k < V; k++) value[k] *= factor;
        gd_pack_store(to, value, pack * V, n);
    }
}

// w = (1 - lr wd) w - lr size x
template <class T, class R>
static __global__ void muon_step_kernel(T *w, const T *x, R *rounded, int64_t n, double rate,
                                        double decay, double size, const gd_update_state *state)
{
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
        gd_pack_load(weight, w, pack * V, n);
        gd_pack_load(value, x, pack * V, n);
        if constexpr (has_rounded<T, R>) follow(weight, rounded, pack * V, n);
#pragma unroll
        for (int k = 0; k < V; k++) weight[k] = keep * weight[k] - step * value[k];
        gd_pack_store(w, weight, pack * V, n);
        if constexpr (has_rounded<T, R>) round_to(rounded, weight, pack * V, n);
    }
}

// c += alpha a b
template <class T>
static gd_status add_product(const gd_call *call, int64_t M, int64_t N, int64_t K, T *c,
                             gd_cuda_matrix a, gd_cuda_matrix b, double alpha, bool accumulate,
                             gd_gemm_workspace *workspace)
{
    gd_gemm product = gd_gemm_of(call->dtype, M, N, K, {c, N, 1}, a, b, accumulate);
    product.alpha = alpha;
    return gd_gemm_cuda(call, product, workspace);
}

// next = a X + (b A + c A A) X with A = X X^T, or for a matrix of more rows than columns, with A =
// X^T X, next = a X + X (b A + c A A). A and A A are `gram` and `square`.
template <class T>
static gd_status newton_schulz_step(const gd_call *call, T *next, T *x, T *gram, T *square,
                                    int64_t rows, int64_t columns, gd_gemm_workspace *workspace)
{
    const bool tall = rows > columns;
    const int64_t small = tall ? columns : rows, large = tall ? rows : columns;
    const int per_block = threads * gd_pack_size<T>;
    const cudaStream_t stream = gd_stream(call);
    const gd_cuda_matrix X = {x, columns, 1}, A = {gram, small, 1}, B = {square, small, 1};
    if (add_product<T>(call, small, small, large, gram, tall ? gd_transposed(X) : X,
                       tall ? X : gd_transposed(X), 1, false, workspace))
        return gd_error_status(call->context);
    muon_scale_kernel<<<gd_blocks(small * small, per_block), threads, 0, stream>>>(
        square, gram, small * small, (T)MUON_B);
    if (gd_launched(call) ||
        add_product<T>(call, small, small, small, square, A, A, MUON_C, true, workspace))
        return gd_error_status(call->context);
    muon_scale_kernel<<<gd_blocks(rows * columns, per_block), threads, 0, stream>>>(
        next, x, rows * columns, (T)MUON_A);
    if (gd_launched(call)) return gd_error_status(call->context);
    return add_product<T>(call, rows, columns, small, next, tall ? X : B, tall ? B : X, 1, true,
                          workspace);
}

template <class T>
static gd_status muon(const gd_call *call, const gd_update_arrays *arrays, int64_t rows,
                      int64_t columns, const gd_muon_rule *rule, const gd_update_state *state)
{
    const int64_t n = rows * columns, small = rows < columns ? rows : columns;
    const unsigned blocks = gd_blocks(n, threads * gd_pack_size<T>);
    const cudaStream_t stream = gd_stream(call);
    T *x = (T *)gd_call_scratch(call, (size_t)n * sizeof(T));
    T *next = (T *)gd_call_scratch(call, (size_t)n * sizeof(T));
    T *const gram = (T *)gd_call_scratch(call, (size_t)(small * small) * sizeof(T));
    T *const square = (T *)gd_call_scratch(call, (size_t)(small * small) * sizeof(T));
    double *const squares = (double *)gd_call_scratch(call, sizeof(double));
    if (gd_error_status(call->context)) return gd_error_status(call->context);

    muon_momentum_kernel<<<blocks, threads, 0, stream>>>(
        x, (T *)arrays->state[0], (const T *)arrays->g, n, (T)rule->momentum,
        (T)(1 - rule->momentum), rule->nesterov, state);
    if (gd_launched(call)) return gd_error_status(call->context);
    gd_sum_squares_cuda(squares, x, call->dtype, n, call->context);
    muon_normalize_kernel<<<blocks, threads, 0, stream>>>(x, n, squares);
    if (gd_launched(call)) return gd_error_status(call->context);
    gd_gemm_workspace workspace = {};
    for (int step = 0; step < MUON_STEPS; step++) {
        if (newton_schulz_step(call, next, x, gram, square, rows, columns, &workspace))
            return gd_error_status(call->context);
        T *const old = x;
        x = next;
        next = old;
    }
    gd_status status = GD_OK;
    by_rounded<T>(arrays->rounded, [&](auto *data) {
        muon_step_kernel<<<blocks, threads, 0, stream>>>((T *)arrays->w, x, data, n, rule->rate,
                                                         rule->weight_decay,
                                                         muon_size(rule, rows, columns), state);
        status = gd_launched(call);
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
    call.dtype = call.kernel_dtype = arrays->dtype;
    if (arrays->dtype == GD_FLOAT64)
        muon<double>(&call, arrays, rows, columns, rule, state);
    else
        muon<float>(&call, arrays, rows, columns, rule, state);
}
