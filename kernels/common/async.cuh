// async.cuh - asynchronous copies, barriers that count their bytes, and clusters: features of
// compute capability 9.0, as PTX (NVIDIA's assembly language).
//
// A transaction barrier (mbarrier) is in one of its phases, numbered 0, 1, 2, ... A phase ends when
// the number of arrivals that it was initialised with has been reached and all bytes that were
// announced (barrier_expect) have landed. Threads wait for the end of phase i by its parity, i & 1.
// A bulk copy is issued by one thread, moves a contiguous piece of global memory into shared
// memory, and reports its bytes to a barrier when they are there. So one thread keeps many
// kilobytes in flight for the others.
//
// Shared memory is named by a 32-bit address, which shared_address() makes from a pointer. That
// takes tens of cycles: convert once, then add offsets.
//
// Functions that need more than the device compiled for has are empty: code for it must not call
// them.
#ifndef GD_ASYNC_CUH
#define GD_ASYNC_CUH

#include "launch.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define GD_ASM_80(...) asm volatile(__VA_ARGS__)
#else
#define GD_ASM_80(...)
#endif
#if GD_HOPPER
#define GD_ASM_90(...) asm volatile(__VA_ARGS__)
#else
#define GD_ASM_90(...)
#endif

namespace gd_async
{

// ---- Shared memory ------------------------------------------------------------------------------

__device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ inline uint4 load_shared(uint32_t address)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

__device__ inline float load_shared_float(uint32_t address)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
    return v;
}

__device__ inline void store_shared(uint32_t address, float v)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}

// One of the block's 16 hardware barriers, for `threads` threads in whole warps. __syncthreads uses
// number 0.
__device__ inline void named_barrier_sync(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- Copies by each thread ----------------------------------------------------------------------

// Copies of 16 bytes from global to shared memory, without registers (cp.async; since compute
// capability 8.0). copy_commit ends a group of a thread's copies; after copy_wait<N> all groups of
// the thread but its last N have arrived, and the thread itself may read them. For others there
// must be a barrier as well.
__device__ inline void copy_16(uint32_t to_shared, const void *from_global)
{
    GD_ASM_80("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to_shared), "l"(from_global)
              : "memory");
}
__device__ inline void copy_commit()
{
    GD_ASM_80("cp.async.commit_group;" ::: "memory");
}
template <int N>
__device__ inline void copy_wait()
{
    GD_ASM_80("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// The same, or zeros if not `wanted`.
__device__ inline void copy_16(uint32_t to_shared, const void *from_global, bool wanted)
{
    GD_ASM_80("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from_global),
              "r"(wanted ? 16 : 0)
              : "memory");
}
__device__ inline void copy_4(uint32_t to_shared, const void *from_global, bool wanted)
{
    GD_ASM_80("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to_shared), "l"(from_global),
              "r"(wanted ? 4 : 0)
              : "memory");
}
__device__ inline void copy_wait_all()
{
    GD_ASM_80("cp.async.wait_all;" ::: "memory");
}

// From DRAM to L2, ahead of time: the line at this address.
__device__ inline void prefetch_line(const void *global)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global) : "memory");
}

// Slots of 16 bytes in shared memory, one for each thread, in planes of a block's threads:
// neighbours use neighbouring banks. Up to 32 neighbouring lanes fill theirs with packs of a row by
// copy_16, so that neighbours also read neighbouring 16 bytes of it. A pack of two pieces is in the
// slots of two lanes, and there must be a __syncwarp between waiting and reading, and between
// reading and the next copy.
struct Slots {
    uint32_t base; // lane 0's, of the first plane
    int plane;     // bytes from plane to plane
    int lanes, lane;

    __device__ Slots(const char *shared, int lanes, int lane)
        : base(shared_address(shared) + 16 * ((int)threadIdx.x - lane)),
          plane(16 * (int)blockDim.x), lanes(lanes), lane(lane)
    {
    }
    // From plane `to` on: packs of N pieces, the first and up to lanes - 1 behind it, as far as
    // there are `packs`.
    template <int N>
    __device__ void copy(int to, const void *first, int packs) const
    {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int piece = k * lanes + lane;
            if (piece < N * packs)
                copy_16(base + (to + k) * plane + 16 * lane, (const uint4 *)first + piece);
        }
    }
    // This lane's pack.
    template <class Raw>
    __device__ void read(Raw &raw, int from) const
    {
        constexpr int N = (int)sizeof raw / 16;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int piece = N * lane + k, next = N > 1 && piece >= lanes;
            raw.part[k] = load_shared(base + (from + next) * plane + 16 * (piece - next * lanes));
        }
    }
};

// ---- Barriers -----------------------------------------------------------------------------------

__device__ inline void barrier_init(uint32_t barrier, int arrivals)
{
    GD_ASM_90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes the initial barriers visible to bulk copies and to the other blocks of the cluster.
__device__ inline void barrier_init_done()
{
    GD_ASM_90("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive(uint32_t barrier)
{
    GD_ASM_90("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and announces bytes to come in this phase.
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    GD_ASM_90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
              : "memory");
}

// Acquires the writes of threads of this block and of bulk copies.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity)
{
    GD_ASM_90("{\n"
              ".reg .pred done;\n"
              "again:\n"
              "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
              "@!done bra again;\n"
              "}" ::"r"(barrier),
              "r"(parity)
              : "memory");
}

// Acquires the writes of other blocks of the cluster. It also empties L1, so do not use it for
// anything else.
__device__ inline void barrier_wait_cluster(uint32_t barrier, uint32_t parity)
{
    GD_ASM_90("{\n"
              ".reg .pred done;\n"
              "again:\n"
              "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
              "@!done bra again;\n"
              "}" ::"r"(barrier),
              "r"(parity)
              : "memory");
}

// The same for a barrier by its name.
struct barrier {
    uint64_t word;
};
__device__ inline void barrier_init(barrier &b, int arrivals)
{
    barrier_init(shared_address(&b), arrivals);
}
__device__ inline void barrier_arrive(barrier &b)
{
    barrier_arrive(shared_address(&b));
}
__device__ inline void barrier_expect(barrier &b, uint32_t bytes)
{
    barrier_expect(shared_address(&b), bytes);
}
__device__ inline void barrier_wait(barrier &b, uint32_t parity)
{
    barrier_wait(shared_address(&b), parity);
}

// Makes this thread's writes to shared memory visible to bulk copies, TMA and wgmma.
__device__ inline void fence_async()
{
    GD_ASM_90("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Bulk copies --------------------------------------------------------------------------------

// From global to shared memory. bytes and both addresses: multiples of 16.
__device__ inline void bulk_copy(void *to_shared, const void *from_global, uint32_t bytes,
                                 barrier &b)
{
    GD_ASM_90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
              "[%0], [%1], %2, [%3];" ::"r"(shared_address(to_shared)),
              "l"(from_global), "r"(bytes), "r"(shared_address(&b))
              : "memory");
}

// The same by addresses, with a policy of load_policy.
__device__ inline void bulk_copy(uint32_t to_shared, const void *from_global, uint32_t bytes,
                                 uint32_t barrier, uint64_t policy)
{
    GD_ASM_90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
              ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to_shared),
              "l"(from_global), "r"(bytes), "r"(barrier), "l"(policy)
              : "memory");
}

// From DRAM to L2, ahead of time; bytes and address: multiples of 16.
//
// This may come before wait_for_previous, even for numbers that the previous kernel has not written
// yet: all writes and reads of the GPU go through L2, so that kernel changes the line there, and
// the old numbers are never read.
__device__ inline void bulk_prefetch(const void *global, uint32_t bytes)
{
    GD_ASM_90("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

// ---- Clusters ----------------------------------------------------------------------------------

__device__ inline uint32_t cluster_rank()
{
    uint32_t rank = 0;
    GD_ASM_90("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ inline uint32_t cluster_size()
{
    uint32_t size = 1;
    GD_ASM_90("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

// Waits for all threads of the cluster, and makes what they wrote before they arrived visible.
__device__ inline void cluster_sync()
{
    GD_ASM_90("barrier.cluster.arrive.release.aligned;" ::: "memory");
    GD_ASM_90("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address by which this block accesses, in the shared memory of block `rank` of the cluster,
// the place of `address` in its own.
__device__ inline uint32_t cluster_address(uint32_t address, uint32_t rank)
{
    uint32_t remote = address;
    GD_ASM_90("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

// Writes v to `address` in the shared memory of block `rank`, and reports its 4 bytes to `barrier`
// there.
__device__ inline void cluster_send(uint32_t address, float v, uint32_t barrier, uint32_t rank)
{
    GD_ASM_90(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
            cluster_address(address, rank)),
        "r"(__float_as_uint(v)), "r"(cluster_address(barrier, rank))
        : "memory");
}

// ---- Cache policies -----------------------------------------------------------------------------

// A cache policy for loads. Data that is read once and written once does not need L2, but it
// matters which of the two leaves it first: lines of the result wait there to be written to DRAM.
// With more data than L2 holds, a kernel whose inputs are marked to outlive its results
// (evict_last) is 2 to 4% faster than one that marks nothing; the other way round it is 3 to 5%
// slower. If everything fits, the mark costs 1% or more, so `keep` is the caller's choice.
__device__ inline uint64_t load_policy(bool keep)
{
    uint64_t last = 0, normal = 0;
    GD_ASM_80("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
    GD_ASM_80("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
    return keep ? last : normal;
}

} // namespace gd_async

#undef GD_ASM_80
#undef GD_ASM_90
#endif
