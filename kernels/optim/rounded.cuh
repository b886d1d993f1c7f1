// rounded.cuh - what the kernels of all optimizers do to gradients and to parameters in 16 bits.
#ifndef GRADUS_ROUNDED_CUH
#define GRADUS_ROUNDED_CUH

#include <type_traits>

#include "optim/services.h"
#include "pack.cuh"

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
    gd_load_guarded(value, rounded, first, n);
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
    gd_store_guarded(rounded, value, first, n);
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

#endif
