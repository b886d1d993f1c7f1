// mma.cuh - tensor cores, as PTX has them since compute capability 8.0: a warp multiplies small
// matrices that lie spread over its registers.
//
// One product is C [16, 8] += A [16, 16] B [16, 8], with A and B of 16 bits and C of float32. The
// lane 4 g + t holds, two neighbours in each register of A and B,
//
//     A   a[0] = A[g, 2t..]      a[1] = A[g + 8, 2t..]    a[2] = A[g, 2t + 8..]
//         a[3] = A[g + 8, 2t + 8..]
//     B   b[0] = B[2t.., g]      b[1] = B[2t + 8.., g]
//     C   c[0..1] = C[g, 2t..]   c[2..3] = C[g + 8, 2t..]
//
// C is spread as A is, so two C side by side, rounded to 16 bits, are an A without any exchange:
// scores become the weights of the next product where they are.
//
// Everything here is empty for older devices, which never call it: have_mma() says so.
#ifndef GD_ATTENTION_MMA_CUH
#define GD_ATTENTION_MMA_CUH

#include "cuda.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define GD_MMA_ASM(...) asm volatile(__VA_ARGS__)
#else
#define GD_MMA_ASM(...)
#endif

namespace gd_mma
{

// Whether the code that the driver chose for this kernel has what is here.
template <class Kernel>
static inline bool have_mma(Kernel *kernel)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 80;
}

__device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// ---- Fragments --------------------------------------------------------------------------------

// Rounds two neighbours to T, for one register.
template <class T>
__device__ inline uint32_t round_pair(float first, float second);
template <>
__device__ inline uint32_t round_pair<__nv_bfloat16>(float first, float second)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *(const uint32_t *)&pair;
}
template <>
__device__ inline uint32_t round_pair<__half>(float first, float second)
{
    const __half2 pair = __floats2half2_rn(first, second);
    return *(const uint32_t *)&pair;
}

// Reads four matrices of 8 x 8: lane 8 i + r gives the place of row r of matrix i (16 bytes on a
// multiple of 16), and lane 4 g + t gets row g, columns 2t and 2t + 1, of each in m[i].
__device__ inline void load_matrices(uint32_t (&m)[4], const void *row)
{
    GD_MMA_ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row)));
}

// The same, transposed: lane 4 g + t gets rows 2t and 2t + 1 of column g.
__device__ inline void load_matrices_transposed(uint32_t (&m)[4], const void *row)
{
    GD_MMA_ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row)));
}

// c += a b
template <class T>
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1);
template <>
__device__ inline void multiply_add<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1)
{
    GD_MMA_ASM("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void multiply_add<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1)
{
    GD_MMA_ASM("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- Copies that run by themselves ------------------------------------------------------------

// 16 bytes (or 4) from global to shared memory, both on a multiple of that; zeros if not `wanted`.
__device__ inline void copy_16(void *to_shared, const void *from, bool wanted)
{
    GD_MMA_ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)),
               "l"(from), "r"(wanted ? 16 : 0)
               : "memory");
}
__device__ inline void copy_4(void *to_shared, const void *from, bool wanted)
{
    GD_MMA_ASM("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to_shared)),
               "l"(from), "r"(wanted ? 4 : 0)
               : "memory");
}

// Until this thread's copies are there. The other threads see them after a barrier.
__device__ inline void copies_wait()
{
    GD_MMA_ASM("cp.async.wait_all;" ::: "memory");
}

} // namespace gd_mma

#undef GD_MMA_ASM

#endif
