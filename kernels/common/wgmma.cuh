// wgmma.cuh - features of compute capability 9.0 alone: products by a warp group of four warps
// with operands in shared memory (wgmma), and tiles copied there by TMA. Compiled for sm_90a alone.
//
// A tile in shared memory is divided into panels of 64 columns of 16 bits: a row of a panel is 128
// bytes, eight rows are 1024. In row r the 16-byte chunk c is stored at the place of chunk c ^ (r
// mod 8) (128-byte swizzle), so that both columns and rows are read without bank conflicts. TMA
// writes this layout and wgmma reads it, with the panel's rows as rows of the operand or as its
// columns.
#ifndef GD_WGMMA_CUH
#define GD_WGMMA_CUH

#include <cudaTypedefs.h>

#include "mma.cuh"

namespace gd_wgmma
{

using gd_async::shared_address;
using gd_mma::bf16;
using gd_mma::f16;

constexpr int group = 128; // threads of four warps
constexpr int panel = 64;  // columns of 16 bits in 128 bytes
constexpr int aligned = 1024;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GD_WGMMA_ASM(...) asm volatile(__VA_ARGS__)
#else
#define GD_WGMMA_ASM(...)
#endif

// ---- Copies -----------------------------------------------------------------------------------

// Copies the box of `map` at these columns, head, row and batch, zero-filled beyond the tensor's
// ends.
__device__ inline void tma_load(void *to, const CUtensorMap *map, gd_async::barrier &b, int column,
                                int head, int row, int batch)
{
    GD_WGMMA_ASM("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(head), "r"(row), "r"(batch), "r"(shared_address(&b))
                 : "memory");
}

// The same for a matrix, at this column and row.
__device__ inline void tma_load(void *to, const CUtensorMap *map, gd_async::barrier &b, int column,
                                int row)
{
    GD_WGMMA_ASM("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(&b))
                 : "memory");
}

// Stores a box that is in shared memory, leaving out what is past the tensor's last row or column.
// A box with nothing inside is an illegal instruction. Called by one thread, after fence_async() in
// those that wrote the box, and a barrier.
__device__ inline void tma_store(const CUtensorMap *map, const void *from, int column, int head,
                                 int row, int batch)
{
    GD_WGMMA_ASM("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group "
                 "[%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
                 "r"(column), "r"(head), "r"(row), "r"(batch), "r"(shared_address(from))
                 : "memory");
}
// Waits until this thread's stores have read shared memory.
__device__ inline void tma_stores_wait()
{
    GD_WGMMA_ASM("cp.async.bulk.commit_group;" ::: "memory");
    GD_WGMMA_ASM("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Takes registers for each of this group's threads, from those that another group of the block has
// given back; waits until there are enough. N is a multiple of 8.
template <int N>
__device__ inline void more_registers()
{
    GD_WGMMA_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
// Gives back the registers beyond N of each of this group's threads.
template <int N>
__device__ inline void fewer_registers()
{
    GD_WGMMA_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// The driver's function that makes a CUtensorMap; NULL if it has none.
static inline PFN_cuTensorMapEncodeTiled_v12000 map_encoder()
{
    static PFN_cuTensorMapEncodeTiled_v12000 encode;
    cudaDriverEntryPointQueryResult found;
    if (!encode && (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode,
                                                     12000, cudaEnableDefault, &found) ||
                    found != cudaDriverEntryPointSuccess)) {
        encode = nullptr;
    }
    return encode;
}

// ---- Products ---------------------------------------------------------------------------------

// The wgmma descriptor of an operand in shared memory, in units of 16 bytes: its start; 1, which is
// ignored as long as one panel is enough; the distance between its groups of eight rows; and the
// swizzle described above.
struct descriptor {
    uint32_t begin;

    __device__ explicit descriptor(const void *at) : begin(shared_address(at) >> 4 | 1u << 16) {}
    // The descriptor `bytes` further on.
    __device__ uint64_t at(int bytes) const
    {
        return (uint64_t)(begin + bytes / 16) | (uint64_t)(1024 / 16 | 1 << 30) << 32;
    }
};

// A 64 x 64 operand in blocks of 8 x 8, without a swizzle: at[k / 8][m / 8][k % 8][m % 8], where
// the product sums over k. Where a lane holds two neighbours in m, as in the C of mma.cuh, a warp
// writes a block as 128 contiguous bytes.
struct blocks {
    static constexpr int block = 32; // words
    uint32_t at[64 / 8][64 / 8][block];

    // The descriptor from row k on: the distances between blocks in k and in m, and no swizzle.
    __device__ uint64_t descriptor(int k) const
    {
        const uint32_t along_m = sizeof at[0][0], along_k = sizeof at[0];
        return (uint64_t)(shared_address(at[k / 8]) >> 4 | along_k / 16 << 16) |
               (uint64_t)(along_m / 16) << 32;
    }
};

// Called before the first product, after its registers were used otherwise.
__device__ inline void fence()
{
    GD_WGMMA_ASM("wgmma.fence.sync.aligned;" ::: "memory");
}

// Products are asynchronous. Ends a batch of them.
__device__ inline void commit()
{
    GD_WGMMA_ASM("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most the N latest batches are running.
template <int N>
__device__ inline void wait()
{
    GD_WGMMA_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define GD_C4(c, j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define GD_C32(c)                                                                              \
    GD_C4(c, 0), GD_C4(c, 1), GD_C4(c, 2), GD_C4(c, 3), GD_C4(c, 4), GD_C4(c, 5), GD_C4(c, 6), \
        GD_C4(c, 7)
#define GD_REGISTERS_32                                                                          \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19," \
    " %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// c [64, 64] += a [64, 16] b [16, 64], or = if not `add`; a lane holds of c what it holds of the C
// of mma.cuh for its warp's 16 rows. The first: a and b in shared memory; a tile's rows are rows of
// a and columns of b, or if TRANSPOSED columns of a and rows of b. The second: a in registers, as
// in mma.cuh; a tile's rows are rows of b.
#define GD_WGMMA_PRODUCTS(FORMAT, TYPE)                                                      \
    template <bool TRANSPOSED>                                                               \
    __device__ inline void wgmma(FORMAT, float(&c)[8][4], uint64_t a, uint64_t b, bool add)  \
    {                                                                                        \
        GD_WGMMA_ASM("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"                        \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE             \
                     " " GD_REGISTERS_32 ", %32, %33, add, 1, 1, %35, %35;\n}"               \
                     : GD_C32(c)                                                             \
                     : "l"(a), "l"(b), "r"((int)add), "n"((int)TRANSPOSED));                 \
    }                                                                                        \
    __device__ inline void wgmma(FORMAT, float(&c)[8][4], const uint32_t(&a)[4], uint64_t b) \
    {                                                                                        \
        GD_WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE             \
                     " " GD_REGISTERS_32 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"          \
                     : GD_C32(c)                                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                  \
    }
GD_WGMMA_PRODUCTS(bf16, "bf16")
GD_WGMMA_PRODUCTS(f16, "f16")
#undef GD_WGMMA_PRODUCTS
#undef GD_REGISTERS_32
#undef GD_C32
#undef GD_C4

#undef GD_WGMMA_ASM

} // namespace gd_wgmma

#endif
