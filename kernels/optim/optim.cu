// optim.cu - SGD and AdamW on a GPU: the formulas of optim_cpu.c, one pass over the arrays.
//
// An update does a few operations for every 28 bytes it moves (AdamW), so the memory decides how
// long it takes: threads take 16 bytes of each array at a time, and parameters in 16 bits are
// rounded in the same pass. The gradients are clipped in it, too. Whether there is an update at
// all, and its numbers, one small kernel decides before; none of it passes through the host.
#include <math.h>

#include <type_traits>

#include "cuda/device_cuda.h"
#include "optim/decide.h"
#include "pack.cuh"

constexpr int threads = 256;

static cudaStream_t stream_of(const gd_context *ctx)
{
    return (cudaStream_t)gd_context_stream(ctx);
}

// ---- Deciding ---------------------------------------------------------------------------------

template <class T>
static __global__ void add_loss_kernel(gd_update_state *state, T *dloss, const T *loss,
                                       double fraction)
{
    state->loss += fraction * (double)gd_load(*loss);
    *dloss = gd_store<T>(fraction * (double)state->scale.factor);
}

extern "C" void gd_add_loss_cuda(gd_update_state *state, void *dloss, const void *loss,
                                 gd_dtype dtype, double fraction, gd_context *ctx)
{
    gd_by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        add_loss_kernel<<<1, 1, 0, stream_of(ctx)>>>(state, (T *)dloss, (const T *)loss, fraction);
        return gd_service_launched(ctx, "add_loss");
    });
}

// A thread for each note that kernels may have left (device_cuda.h), which lies in the host's
// memory and so takes a microsecond to be read: all are read at once. The slot lies there, too.
static __global__ void __launch_bounds__(GD_CUDA_FAULTS)
    decide_kernel(gd_update_state *state, gd_update_slot *slots, gd_update_rule rule,
                  const volatile int64_t *fault_words, int faults)
{
    const bool fault = (int)threadIdx.x < faults && fault_words[threadIdx.x] != 0;
    const bool any = __syncthreads_or(fault);
    unsigned long long nanoseconds; // the same clock for all kernels, also across graphs
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    if (threadIdx.x == 0) gd_decide(state, slots, &rule, any, (double)nanoseconds * 1e-9);
}

extern "C" void gd_decide_cuda(gd_update_state *state, gd_update_slot *slots,
                               const gd_update_rule *rule, gd_context *ctx)
{
    const gd_cuda *cuda = gd_cuda_of(ctx);
    decide_kernel<<<1, GD_CUDA_FAULTS, 0, cuda->stream>>>(state, slots, *rule, cuda->fault_words,
                                                          cuda->faults);
    gd_service_launched(ctx, "decide");
}

// What a kernel takes of the gradients: rounded as gd_params_scale_grads rounds, and before it is
// added to anything.
template <class T, int V>
__device__ inline void scale_by(T (&grad)[V], gd_factor<T> factor)
{
#pragma unroll
    for (int k = 0; k < V; k++) grad[k] = factor.times(grad[k]);
}

// ---- Parameters in 16 bits, and their masters (gd_rounded in services.h) ----------------------

// R is what the parameters are stored in; T where there are none beside w.
template <class T, class R>
constexpr bool has_rounded = !std::is_same<T, R>::value;

// Masters that do not round to their parameters take their values.
template <class T, class R, int V>
__device__ inline void follow(T (&master)[V], const R *rounded, int64_t first, int64_t n)
{
    R value[V];
    gd_pack_load(value, rounded, first, n);
#pragma unroll
    for (int k = 0; k < V; k++) {
        const T theirs = gd_load(value[k]);
        if (!(gd_load(gd_store<R>(master[k])) == theirs)) master[k] = theirs;
    }
}

template <class T, class R, int V>
__device__ inline void round_to(R *rounded, const T (&master)[V], int64_t first, int64_t n)
{
    R value[V];
#pragma unroll
    for (int k = 0; k < V; k++) value[k] = gd_store<R>(master[k]);
    gd_pack_store(rounded, value, first, n);
}

// Calls body with the pointer in its type.
template <class T, class Body>
static void by_rounded(gd_rounded rounded, Body body)
{
    if constexpr (std::is_same<T, float>::value) {
        if (rounded.data && rounded.dtype == GD_BFLOAT16)
            return body((__nv_bfloat16 *)rounded.data);
        if (rounded.data) return body((__half *)rounded.data);
    }
    body((T *)nullptr);
}

// ---- SGD --------------------------------------------------------------------------------------

// What is the same in every update, in the type that is computed in.
template <class T>
struct sgd_numbers {
    T decay, momentum, fresh;
    bool nesterov, first;
};

template <class T>
__device__ inline void sgd_element(T *w, T *v, T g, T lr, bool first, const sgd_numbers<T> &s)
{
    const T grad = g + s.decay * *w;
    *v = first ? grad : s.momentum * *v + s.fresh * grad;
    *w -= lr * (s.nesterov ? grad + s.momentum * *v : *v);
}

// v is NULL without momentum.
template <class T, class R>
static __global__ void sgd_kernel(T *w, T *v, const T *g, R *rounded, int64_t n, sgd_numbers<T> s,
                                  const gd_update_state *state)
{
    constexpr int V = gd_pack_size<T>;
    if (!state->apply) return;
    __shared__ T lr;
    __shared__ gd_factor<T> factor;
    if (threadIdx.x == 0) { // once, since the state's numbers are doubles
        lr = (T)state->rate;
        factor = gd_factor<T>::of(state->factor);
    }
    __syncthreads();
    const bool first = s.first || state->first;
    GD_EACH(pack, gd_packs(n, V))
    {
        T weight[V], velocity[V] = {}, grad[V];
        gd_pack_load(weight, w, pack * V, n);
        if (v && !first) gd_pack_load(velocity, v, pack * V, n);
        gd_pack_load(grad, g, pack * V, n);
        scale_by(grad, factor);
        if constexpr (has_rounded<T, R>) follow(weight, rounded, pack * V, n);
#pragma unroll
        for (int k = 0; k < V; k++) sgd_element(&weight[k], &velocity[k], grad[k], lr, first, s);
        if (v) gd_pack_store(v, velocity, pack * V, n);
        gd_pack_store(w, weight, pack * V, n);
        if constexpr (has_rounded<T, R>) round_to(rounded, weight, pack * V, n);
    }
}

template <class T>
static void sgd(void *w, void *v, const void *g, gd_rounded rounded, int64_t n,
                const gd_sgd_rule *rule, const gd_update_state *state, cudaStream_t stream)
{
    sgd_numbers<T> s = {(T)rule->weight_decay, (T)rule->momentum, (T)(1 - rule->dampening),
                        rule->nesterov, false};
    if (!v) s.momentum = 0, s.nesterov = false, s.first = true; // then w -= lr grad
    by_rounded<T>(rounded, [&](auto *data) {
        sgd_kernel<<<gd_blocks(n, threads * gd_pack_size<T>), threads, 0, stream>>>(
            (T *)w, (T *)v, (const T *)g, data, n, s, state);
    });
}

extern "C" void gd_sgd_cuda(void *w, void *v, const void *g, gd_dtype dtype, gd_rounded rounded,
                            int64_t n, const gd_sgd_rule *rule, const gd_update_state *state,
                            gd_context *ctx)
{
    if (n == 0) return;
    if (dtype == GD_FLOAT64)
        sgd<double>(w, v, g, rounded, n, rule, state, stream_of(ctx));
    else
        sgd<float>(w, v, g, rounded, n, rule, state, stream_of(ctx));
    gd_service_launched(ctx, "sgd");
}

// ---- AdamW ------------------------------------------------------------------------------------

template <class T>
struct adamw_numbers {
    T beta1, fresh1, beta2, fresh2, eps;
    double decay;
};

template <class T, class R>
static __global__ void adamw_kernel(T *w, T *m, T *v, const T *g, R *rounded, int64_t n,
                                    adamw_numbers<T> a, const gd_update_state *state)
{
    constexpr int V = gd_pack_size<T>;
    if (!state->apply) return;
    __shared__ T keep, rate, scale; // optim_cpu.c says what rate and scale are
    __shared__ gd_factor<T> factor;
    if (threadIdx.x == 0) { // once, since the state's numbers are doubles
        keep = (T)(1 - state->rate * a.decay);
        rate = (T)state->rate_by_bias1;
        scale = (T)state->root_by_bias2;
        factor = gd_factor<T>::of(state->factor);
    }
    __syncthreads();
    GD_EACH(pack, gd_packs(n, V))
    {
        T weight[V], mean[V], square[V], grad[V];
        gd_pack_load(weight, w, pack * V, n);
        gd_pack_load(mean, m, pack * V, n);
        gd_pack_load(square, v, pack * V, n);
        gd_pack_load(grad, g, pack * V, n);
        scale_by(grad, factor);
        if constexpr (has_rounded<T, R>) follow(weight, rounded, pack * V, n);
#pragma unroll
        for (int k = 0; k < V; k++) {
            mean[k] = a.beta1 * mean[k] + a.fresh1 * grad[k];
            square[k] = a.beta2 * square[k] + a.fresh2 * grad[k] * grad[k];
            weight[k] = keep * weight[k] - rate * mean[k] / (scale * sqrt(square[k]) + a.eps);
        }
        gd_pack_store(w, weight, pack * V, n);
        gd_pack_store(m, mean, pack * V, n);
        gd_pack_store(v, square, pack * V, n);
        if constexpr (has_rounded<T, R>) round_to(rounded, weight, pack * V, n);
    }
}

template <class T>
static void adamw(void *w, void *m, void *v, const void *g, gd_rounded rounded, int64_t n,
                  const gd_adamw_rule *rule, const gd_update_state *state, cudaStream_t stream)
{
    const adamw_numbers<T> a = {(T)rule->beta1,       (T)(1 - rule->beta1), (T)rule->beta2,
                                (T)(1 - rule->beta2), (T)rule->eps,         rule->weight_decay};
    by_rounded<T>(rounded, [&](auto *data) {
        adamw_kernel<<<gd_blocks(n, threads * gd_pack_size<T>), threads, 0, stream>>>(
            (T *)w, (T *)m, (T *)v, (const T *)g, data, n, a, state);
    });
}

extern "C" void gd_adamw_cuda(void *w, void *m, void *v, const void *g, gd_dtype dtype,
                              gd_rounded rounded, int64_t n, const gd_adamw_rule *rule,
                              const gd_update_state *state, gd_context *ctx)
{
    if (n == 0) return;
    if (dtype == GD_FLOAT64)
        adamw<double>(w, m, v, g, rounded, n, rule, state, stream_of(ctx));
    else
        adamw<float>(w, m, v, g, rounded, n, rule, state, stream_of(ctx));
    gd_service_launched(ctx, "adamw");
}
