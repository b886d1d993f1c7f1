// mma.cuh - tensor cores, as available in PTX since compute capability 8.0: a warp multiplies small
// matrices that are distributed over its registers.
//
// One product is C [16, 8] += A [16, K] B [K, 8]. 16-bit operands have K = 16, TF32 operands
// (float32 with 11 significant bits of mantissa) K = 8; either way a row of A is 32 bytes, and C is
// float32. Lane 4 g + t holds, with two neighbours per register if they have 16 bits,
//
//            16 bits                                TF32
//     A      a[0] = A[g, 2t..]                      a[0] = A[g, t]
//            a[1] = A[g + 8, 2t..]                  a[1] = A[g + 8, t]
//            a[2] = A[g, 2t + 8..]                  a[2] = A[g, t + 4]
//            a[3] = A[g + 8, 2t + 8..]              a[3] = A[g + 8, t + 4]
//     B      b[0] = B[2t.., g]                      b[0] = B[t, g]
//            b[1] = B[2t + 8.., g]                  b[1] = B[t + 4, g]
//     C      c[0..1] = C[g, 2t..]    c[2..3] = C[g + 8, 2t..]
//
// In bytes the two layouts are the same, so one way of loading serves both.
//
// All functions here are empty on older devices, where they are never called: they need a
// gd_cuda_limits.code of 80.
#ifndef GD_MMA_CUH
#define GD_MMA_CUH

#include "async.cuh"
#include "cuda.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define GD_MMA_ASM(...) asm volatile(__VA_ARGS__)
#else
#define GD_MMA_ASM(...)
#endif

namespace gd_mma
{

// ---- Formats ----------------------------------------------------------------------------------

// The format of a product's operands: how they are stored, and how an instruction reads them.
struct bf16 {
    using stored = __nv_bfloat16;
};
struct f16 {
    using stored = __half;
};
struct tf32 { // float32, rounded to TF32
    using stored = float;
};
// float32 as a sum of two TF32, x = big + rest, where big is x rounded and rest is the remainder.
// Of the four products of two such sums three are computed,
//
//     x y = big rest + rest big + big big     (rest rest, at most 2^-22 |x y|, is left out)
//
// The tensor core does not see the last bit of the rests, at most 2^-23 |x|. So the error of a
// product is at most 2^-21, in either direction.
struct tf32x3 {
    using stored = float;
};

template <class F>
constexpr bool is_16_bit = sizeof(typename F::stored) == 2;

// Whether an operand is a sum of two.
template <class F>
constexpr bool in_parts = false;
template <>
constexpr bool in_parts<tf32x3> = true;

// Some registers of A or B.
template <class F, int N>
struct fragment {
    uint32_t at[N];
};
template <int N>
struct fragment<tf32x3, N> {
    uint32_t at[N], rest[N];
};

__device__ inline uint32_t round_to_tf32(float x)
{
    uint32_t rounded = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    GD_MMA_ASM("cvt.rn.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
#else
    GD_MMA_ASM("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
#endif
    return rounded;
}

// Converts registers as loaded to a fragment: rounded to TF32, and split in two, where F needs it.
template <class F, int N>
__device__ inline fragment<F, N> fragment_of(const uint32_t (&x)[N])
{
    fragment<F, N> f;
#pragma unroll
    for (int i = 0; i < N; i++) {
        f.at[i] = is_16_bit<F> ? x[i] : round_to_tf32(__uint_as_float(x[i]));
        if constexpr (in_parts<F>)
            f.rest[i] = __float_as_uint(__uint_as_float(x[i]) - __uint_as_float(f.at[i]));
    }
    return f;
}

// x, or 0 if it is negative; NaN stays.
__device__ inline float not_negative(float x)
{
    GD_MMA_ASM("max.NaN.f32 %0, %0, 0f00000000;" : "+f"(x));
    return x;
}

// Two 16-bit neighbours in one register: rounded, and 0 for negative ones if RELU.
#define GD_MMA_ROUND_PAIR(FORMAT, TYPE)                                      \
    template <bool RELU>                                                     \
    __device__ inline uint32_t round_pair(FORMAT, float first, float second) \
    {                                                                        \
        uint32_t pair = 0;                                                   \
        if constexpr (RELU) {                                                \
            GD_MMA_ASM("cvt.rn.relu." TYPE "x2.f32 %0, %1, %2;"              \
                       : "=r"(pair)                                          \
                       : "f"(second), "f"(first));                           \
        } else {                                                             \
            GD_MMA_ASM("cvt.rn." TYPE "x2.f32 %0, %1, %2;"                   \
                       : "=r"(pair)                                          \
                       : "f"(second), "f"(first));                           \
        }                                                                    \
        return pair;                                                         \
    }
GD_MMA_ROUND_PAIR(bf16, "bf16")
GD_MMA_ROUND_PAIR(f16, "f16")
#undef GD_MMA_ROUND_PAIR

// Reads four matrices of 8 rows of 16 bytes: lane 8 i + r gives the address of row r of matrix i (a
// multiple of 16), and lane 4 g + t gets in m[i] the t-th 4 bytes of row g of matrix i.
__device__ inline void ldmatrix(uint32_t (&m)[4], const void *row)
{
    GD_MMA_ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(gd_async::shared_address(row)));
}

// The same for 16-bit elements, transposed: lane 4 g + t gets rows 2t and 2t + 1 of column g.
__device__ inline void ldmatrix_transposed(uint32_t (&m)[4], const void *row)
{
    GD_MMA_ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(gd_async::shared_address(row)));
}

// ---- Products ---------------------------------------------------------------------------------

// c += a b, one instruction.
#define GD_MMA_PRODUCT(FORMAT, SHAPE, TYPE)                                              \
    __device__ inline void mma(FORMAT, float(&c)[4], const uint32_t(&a)[4], uint32_t b0, \
                               uint32_t b1)                                              \
    {                                                                                    \
        GD_MMA_ASM("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 "       \
                   "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"     \
                   : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                      \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));      \
    }
GD_MMA_PRODUCT(bf16, "m16n8k16", "bf16")
GD_MMA_PRODUCT(f16, "m16n8k16", "f16")
GD_MMA_PRODUCT(tf32, "m16n8k8", "tf32")
#undef GD_MMA_PRODUCT

} // namespace gd_mma

#undef GD_MMA_ASM

#endif
