// optim.cu - SGD and AdamW on a GPU: the formulas of optim_cpu.c, one pass over the arrays.
//
// An update does a few operations for every 28 bytes it moves (AdamW), so the memory decides how
// long it takes: threads take 16 bytes of each array at a time, and parameters in 16 bits are
// rounded in the same pass.
#include <math.h>

#include <type_traits>

#include "pack.cuh"

constexpr int threads = 256;

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

// What does not change from element to element, computed once, in double, on the host.
template <class T>
struct sgd_numbers {
    T lr, decay, momentum, fresh;
    bool nesterov, first;
};

template <class T>
__device__ inline void sgd_element(T *w, T *v, T g, const sgd_numbers<T> &s)
{
    const T grad = g + s.decay * *w;
    *v = s.first ? grad : s.momentum * *v + s.fresh * grad;
    *w -= s.lr * (s.nesterov ? grad + s.momentum * *v : *v);
}

// v is NULL without momentum.
template <class T, class R>
static __global__ void sgd_kernel(T *w, T *v, const T *g, R *rounded, int64_t n, sgd_numbers<T> s)
{
    constexpr int V = gd_pack_size<T>;
    GD_EACH(pack, gd_packs(n, V))
    {
        T weight[V], velocity[V] = {}, grad[V];
        gd_pack_load(weight, w, pack * V, n);
        if (v && !s.first) gd_pack_load(velocity, v, pack * V, n);
        gd_pack_load(grad, g, pack * V, n);
        if constexpr (has_rounded<T, R>) follow(weight, rounded, pack * V, n);
#pragma unroll
        for (int k = 0; k < V; k++) sgd_element(&weight[k], &velocity[k], grad[k], s);
        if (v) gd_pack_store(v, velocity, pack * V, n);
        gd_pack_store(w, weight, pack * V, n);
        if constexpr (has_rounded<T, R>) round_to(rounded, weight, pack * V, n);
    }
}

template <class T>
static void sgd(void *w, void *v, const void *g, gd_rounded rounded, int64_t n,
                const gd_sgd_step *step, cudaStream_t stream)
{
    sgd_numbers<T> s = {(T)step->lr,       (T)step->weight_decay,
                        (T)step->momentum, (T)(1 - step->dampening),
                        step->nesterov,    step->first};
    if (!v) s.momentum = 0, s.nesterov = false, s.first = true; // then w -= lr grad
    by_rounded<T>(rounded, [&](auto *data) {
        sgd_kernel<<<gd_blocks(n, threads * gd_pack_size<T>), threads, 0, stream>>>(
            (T *)w, (T *)v, (const T *)g, data, n, s);
    });
}

extern "C" void gd_sgd_cuda(void *w, void *v, const void *g, gd_dtype dtype, gd_rounded rounded,
                            int64_t n, const gd_sgd_step *step, gd_context *ctx)
{
    if (n == 0) return;
    const cudaStream_t stream = (cudaStream_t)gd_context_stream(ctx);
    if (dtype == GD_FLOAT64)
        sgd<double>(w, v, g, rounded, n, step, stream);
    else
        sgd<float>(w, v, g, rounded, n, step, stream);
    gd_service_launched(ctx, "sgd");
}

// ---- AdamW ------------------------------------------------------------------------------------

// optim_cpu.c says what rate and scale are.
template <class T>
struct adamw_numbers {
    T keep, rate, scale, beta1, fresh1, beta2, fresh2, eps;
};

template <class T, class R>
static __global__ void adamw_kernel(T *w, T *m, T *v, const T *g, R *rounded, int64_t n,
                                    adamw_numbers<T> a)
{
    constexpr int V = gd_pack_size<T>;
    GD_EACH(pack, gd_packs(n, V))
    {
        T weight[V], mean[V], square[V], grad[V];
        gd_pack_load(weight, w, pack * V, n);
        gd_pack_load(mean, m, pack * V, n);
        gd_pack_load(square, v, pack * V, n);
        gd_pack_load(grad, g, pack * V, n);
        if constexpr (has_rounded<T, R>) follow(weight, rounded, pack * V, n);
#pragma unroll
        for (int k = 0; k < V; k++) {
            mean[k] = a.beta1 * mean[k] + a.fresh1 * grad[k];
            square[k] = a.beta2 * square[k] + a.fresh2 * grad[k] * grad[k];
            weight[k] = a.keep * weight[k] - a.rate * mean[k] / (a.scale * sqrt(square[k]) + a.eps);
        }
        gd_pack_store(w, weight, pack * V, n);
        gd_pack_store(m, mean, pack * V, n);
        gd_pack_store(v, square, pack * V, n);
        if constexpr (has_rounded<T, R>) round_to(rounded, weight, pack * V, n);
    }
}

template <class T>
static void adamw(void *w, void *m, void *v, const void *g, gd_rounded rounded, int64_t n,
                  const gd_adamw_step *step, cudaStream_t stream)
{
    const double t = (double)step->step;
    const adamw_numbers<T> a = {(T)(1 - step->lr * step->weight_decay),
                                (T)(step->lr / (1 - pow(step->beta1, t))),
                                (T)(1 / sqrt(1 - pow(step->beta2, t))),
                                (T)step->beta1,
                                (T)(1 - step->beta1),
                                (T)step->beta2,
                                (T)(1 - step->beta2),
                                (T)step->eps};
    by_rounded<T>(rounded, [&](auto *data) {
        adamw_kernel<<<gd_blocks(n, threads * gd_pack_size<T>), threads, 0, stream>>>(
            (T *)w, (T *)m, (T *)v, (const T *)g, data, n, a);
    });
}

extern "C" void gd_adamw_cuda(void *w, void *m, void *v, const void *g, gd_dtype dtype,
                              gd_rounded rounded, int64_t n, const gd_adamw_step *step,
                              gd_context *ctx)
{
    if (n == 0) return;
    const cudaStream_t stream = (cudaStream_t)gd_context_stream(ctx);
    if (dtype == GD_FLOAT64)
        adamw<double>(w, m, v, g, rounded, n, step, stream);
    else
        adamw<float>(w, m, v, g, rounded, n, step, stream);
    gd_service_launched(ctx, "adamw");
}
