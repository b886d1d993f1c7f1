// pack.cuh - vectors of 16 bytes and what is in them; sums over lanes.
//
// The widest load and store of a thread is 16 bytes: 4 floats or 8 numbers of 16 bits. The kernels
// move such vectors as uint4 and turn them into floats where they compute.
#ifndef GD_RMS_NORM_PACK_CUH
#define GD_RMS_NORM_PACK_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "gradus/tensor.h"

namespace gd_rms
{

// How many T a vector holds.
template <class T>
constexpr int vector_size = 16 / (int)sizeof(T);

template <class T>
constexpr gd_dtype dtype_of = GD_FLOAT32;
template <>
constexpr gd_dtype dtype_of<__nv_bfloat16> = GD_BFLOAT16;
template <>
constexpr gd_dtype dtype_of<__half> = GD_FLOAT16;

__device__ inline void unpack(float *v, uint4 bits, const float *)
{
    v[0] = __uint_as_float(bits.x), v[1] = __uint_as_float(bits.y);
    v[2] = __uint_as_float(bits.z), v[3] = __uint_as_float(bits.w);
}

// A bfloat16 is the upper half of a float.
__device__ inline void unpack(float *v, uint4 bits, const __nv_bfloat16 *)
{
    const unsigned word[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(word[i] << 16);
        v[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
}

__device__ inline void unpack(float *v, uint4 bits, const __half *)
{
    const unsigned word[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2 *>(&word[i]));
        v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
    }
}

template <class T>
__device__ inline void unpack(float *v, uint4 bits)
{
    unpack(v, bits, (const T *)nullptr);
}

__device__ inline uint4 pack(const float *v, const float *)
{
    return make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                      __float_as_uint(v[3]));
}

__device__ inline uint4 pack(const float *v, const __nv_bfloat16 *)
{
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
        word[i] = *reinterpret_cast<const unsigned *>(&pair);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

__device__ inline uint4 pack(const float *v, const __half *)
{
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const __half2 pair = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
        word[i] = *reinterpret_cast<const unsigned *>(&pair);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

template <class T>
__device__ inline uint4 pack(const float *v)
{
    return pack(v, (const T *)nullptr);
}

// Hides from the compiler that these bits are known, so that what is computed from them again is
// not kept in registers instead: a kernel short of registers is the loser in that bargain.
__device__ inline void forget(uint4 &bits)
{
    asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
}

// ---- What leaves the second-level cache first ---------------------------------------------------
//
// A kernel that reads x once and writes y once needs neither in the cache, and yet it matters which
// of the two leaves first: lines of y wait there to be written to DRAM. With more data than the
// cache holds, a forward whose x is marked to outlive y is 2 to 4% faster than one that marks
// nothing; where y outlives x it is 3 to 5% slower, and where both are marked alike nothing
// changes. So x is read with the priority evict_last, and y written with the normal one; in the
// backward x and dy, and dx.
//
// Kernels know beforehand whether there is so much (rms_norm.cu): where all fits, the marks cost 1%
// or more, and so do the longer instructions that carry them.
__device__ inline uint64_t keep_policy()
{
    uint64_t policy = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
#endif
    return policy;
}

// Like *p, but not put off by the compiler until the value is wanted.
__device__ inline uint4 load_now(const uint4 *p)
{
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

// volatile: it must stay behind wait_for_previous().
__device__ inline uint4 load_and_keep(const uint4 *p, uint64_t policy)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint4 v;
    asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "l"(policy));
    return v;
#else
    (void)policy;
    return *p;
#endif
}

// 1 / sqrt(v): the fast approximation, good to two units, and a step of Newton's. What is 0,
// infinite or not a number stays as the approximation has it.
__device__ inline float reciprocal_root(float v)
{
    const float r = rsqrtf(v), error = fmaf(-v * r, r, 1.0f);
    return fabsf(error) < 0.5f ? fmaf(0.5f * r, error, r) : r;
}

// v rounded to T and back.
template <class T>
__device__ inline float rounded(float v)
{
    return static_cast<float>(static_cast<T>(v));
}

// ---- Weights: of any dtype, chosen at run time, since they are read once for many rows ----------

// Four numbers from w[i]; i a multiple of 4 and w aligned to 16 bytes.
__device__ inline float4 load4(const void *w, gd_dtype dtype, int64_t i)
{
    if (dtype == GD_FLOAT32) return __ldg(reinterpret_cast<const float4 *>((const float *)w + i));
    if (dtype == GD_FLOAT64) {
        const double *d = (const double *)w + i;
        return make_float4((float)d[0], (float)d[1], (float)d[2], (float)d[3]);
    }
    const uint2 bits = __ldg(reinterpret_cast<const uint2 *>((const uint16_t *)w + i));
    const uint4 wide = make_uint4(bits.x, bits.y, 0, 0);
    float v[8];
    if (dtype == GD_BFLOAT16)
        unpack<__nv_bfloat16>(v, wide);
    else
        unpack<__half>(v, wide);
    return make_float4(v[0], v[1], v[2], v[3]);
}

// v[0..V) = w[i..i+V) + add, or `otherwise` where w is NULL.
template <int V>
__device__ inline void load_weight(float *v, const void *w, gd_dtype dtype, int64_t i, float add,
                                   float otherwise)
{
#pragma unroll
    for (int j = 0; j < V; j += 4) {
        if (w) {
            const float4 four = load4(w, dtype, i + j);
            v[j] = four.x + add, v[j + 1] = four.y + add;
            v[j + 2] = four.z + add, v[j + 3] = four.w + add;
        } else {
            v[j] = v[j + 1] = v[j + 2] = v[j + 3] = otherwise;
        }
    }
}

// ---- Results of any dtype -----------------------------------------------------------------------

template <class A>
__device__ inline A read_as(const void *p, gd_dtype dtype, int64_t i)
{
    if (dtype == GD_FLOAT32) return (A)((const float *)p)[i];
    if (dtype == GD_FLOAT64) return (A)((const double *)p)[i];
    if (dtype == GD_BFLOAT16) return (A)(float)((const __nv_bfloat16 *)p)[i];
    return (A)(float)((const __half *)p)[i];
}

template <class A>
__device__ inline void write_as(void *p, gd_dtype dtype, int64_t i, A v)
{
    if (dtype == GD_FLOAT32)
        ((float *)p)[i] = (float)v;
    else if (dtype == GD_FLOAT64)
        ((double *)p)[i] = (double)v;
    else if (dtype == GD_BFLOAT16)
        ((__nv_bfloat16 *)p)[i] = (__nv_bfloat16)v;
    else
        ((__half *)p)[i] = (__half)v;
}

// ---- Sums ---------------------------------------------------------------------------------------

// The sum over groups of LANES neighbouring lanes, in every lane. Each step adds the same two
// numbers in both of a pair of lanes, so all lanes get the same bits.
template <int LANES>
__device__ inline float lane_sum(float v)
{
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step);
    return v;
}

__device__ inline double lane_sum_double(double v)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step);
    return v;
}

} // namespace gd_rms
#endif
