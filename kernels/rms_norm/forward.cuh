// forward.cuh - the arithmetic that the forward kernels share, a vector of 16 bytes at a time:
//     rstd = 1 / sqrt(sum of x^2 / N + eps)    y = x rstd factor + bias    factor = weight + offset
// PLAIN is a call of the plain kind (plan.cuh).
#ifndef GD_RMS_NORM_FORWARD_CUH
#define GD_RMS_NORM_FORWARD_CUH

#include "rms_norm/pack.cuh"
#include "rms_norm/plan.cuh"

namespace gd_rms
{

// factor of the vector at col.
template <class T, bool PLAIN>
__device__ inline void load_factor(float *factor, const Forward &a, int64_t col)
{
    constexpr int V = vector_size<T>;
    if (PLAIN) {
        unpack<T>(factor, __ldg((const uint4 *)((const T *)a.weight + col)));
#pragma unroll
        for (int i = 0; i < V; i++) factor[i] += (float)a.offset;
    } else {
        load_weight<V>(factor, a.weight, a.weight_dtype, col, (float)a.offset, 1.0f);
    }
}

// y of one vector from x and factor. FORGET: in kernels that have seen x before, rather unpack it
// again than keep all of a row unpacked.
template <class T, bool PLAIN, bool FORGET>
__device__ inline uint4 normalise(const Forward &a, uint4 x, float rstd, const float *factor,
                                  int64_t col)
{
    constexpr int V = vector_size<T>;
    float v[V];
    if (FORGET) forget(x);
    unpack<T>(v, x);
#pragma unroll
    for (int i = 0; i < V; i++) v[i] *= rstd;
    if (!PLAIN && a.round) {
#pragma unroll
        for (int i = 0; i < V; i++) v[i] = rounded<T>(v[i]);
    }
#pragma unroll
    for (int i = 0; i < V; i++) v[i] *= factor[i];
    if (!PLAIN && a.bias) {
        float w[V];
        load_weight<V>(w, a.bias, a.weight_dtype, col, 0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < V; i++) v[i] += w[i];
    }
    return pack<T>(v);
}

// sum and the squares of one vector of x.
template <class T>
__device__ inline float square_sum(uint4 x, float sum)
{
    float v[vector_size<T>];
    unpack<T>(v, x);
#pragma unroll
    for (int i = 0; i < vector_size<T>; i++) sum = fmaf(v[i], v[i], sum);
    return sum;
}

__device__ inline float rstd_of(float sum, const Forward &a)
{
    return reciprocal_root(fmaf(sum, a.per_col, (float)a.eps));
}

} // namespace gd_rms
#endif
