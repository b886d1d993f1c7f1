// ring.cuh - shared by the kernels for wide rows: a pipeline in shared memory, the producer that
// fills it, the order in which the consumers process it, and the exchange of sums between the warps
// of a cluster.
//
// A cluster of blocks shares a row, each block a slice of it; a cluster processes rows r, r + P, r
// + 2P, ..., so that all clusters read from the same region of memory, which DRAM serves faster.
// One warp of each block is the producer: it issues bulk copies of the coming rows into the stages
// of a ring, and waits only for stages to be released. The other warps are the consumers. A stage
// holds one pack of each input for each of their threads; a row is CHUNKS stages. They make two
// passes over a row: pass 1 computes its sum; pass 2, when the sum is known, writes the result from
// the same stages, which are still in shared memory.
//
// Pass 2 of a row is interleaved with pass 1 of the next, LEAD stages behind. With three stages to
// a row and a LEAD of 1 a step is:
//
//     read 0     read 1, write 0'     read 2, write 1'     write 2'     send the sum
//
// where ' marks the row before. So a warp that waits for a stage to arrive has just written one:
// reads and writes are issued at an even rate, whereas a row written at once is a burst that leaves
// DRAM with nothing to write before it. And the sums have LEAD + 1 stages' time to arrive.
//
// Why two sets of sums (EXCHANGES) are enough: a warp sends for row i + 2 at the end of step i + 2.
// In that step it has waited for the sums of row i + 1, which the last warp sent at the end of step
// i + 1, and so after it had read the sums of row i.
#ifndef GD_RMS_NORM_RING_CUH
#define GD_RMS_NORM_RING_CUH

#include <stddef.h>

#include "rms_norm/kernels.cuh"

namespace gd_rms
{

constexpr int EXCHANGES = 2;
constexpr int MOST_SUMS = 16 * 16; // warps of a cluster
constexpr int MOST_STAGES = 32;
constexpr int SOON = 2; // rows of a cluster that are prefetched to L2 before it may read them

struct Shared {
    uint64_t full[MOST_STAGES];  // a stage has arrived
    uint64_t empty[MOST_STAGES]; // all threads have released it
    uint64_t arrived[EXCHANGES]; // all sums of a row have arrived
    float sums[EXCHANGES][MOST_SUMS];
};
constexpr int RING_AT = (sizeof(Shared) + 127) / 128 * 128;

// Bytes of a stage per thread, for inputs of these types.
template <int V, class... T>
constexpr int stage_bytes = (0 + ... + (V * (int)sizeof(T)));

#if GD_HOPPER

// A position in a ring.
struct Place {
    int stage;
    uint32_t parity;
    __device__ void next(int stages)
    {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

// One block's part of the ring: the inputs are of types T..., V elements to a pack.
template <int V, class... T>
struct Ring {
    static constexpr int INPUTS = sizeof...(T), ALL = stage_bytes<V, T...>;
    uint32_t base;                                // the address of Shared; behind it is the ring
    const int stages, threads, warps, warp, lane; // threads: of the consumers
    const int blocks, rank;                       // of the cluster
    const int begin, length;                      // this block's slice of a row, in packs
    Place ahead, behind;                          // stages of pass 1 and of pass 2
    Place sent, got;                              // sums, likewise

    __device__ Ring(char *shared, int stages, int packs)
        : base(shared_address(shared)), stages(stages), threads((int)blockDim.x - 32),
          warps(threads / 32), warp((int)threadIdx.x / 32), lane((int)threadIdx.x % 32),
          blocks((int)cluster_size()), rank((int)cluster_rank()),
          begin(rank * ((packs + blocks - 1) / blocks)),
          length(min((packs + blocks - 1) / blocks, packs - begin)), ahead{0, 0}, behind{0, 0},
          sent{0, 0}, got{0, 0}
    {
        // Otherwise the compiler computes it again wherever it is used.
        asm volatile("" : "+r"(base));
        // total() adds up more of them than there are warps.
        for (int i = (int)threadIdx.x; i < EXCHANGES * MOST_SUMS; i += (int)blockDim.x)
            ((Shared *)shared)->sums[i / MOST_SUMS][i % MOST_SUMS] = 0;
        if (threadIdx.x == 0) {
            for (Place p = {0, 0}; p.stage < stages; p.stage++) {
                barrier_init(full(p), 1);
                barrier_init(empty(p), threads);
            }
            for (Place p = {0, 0}; p.stage < EXCHANGES; p.stage++) barrier_init(arrived(p), 1);
            barrier_init_done();
            for (Place p = {0, 0}; p.stage < EXCHANGES; p.stage++)
                barrier_expect(arrived(p), 4 * blocks * warps);
        }
        __syncthreads();
        cluster_sync();
    }

    __device__ uint32_t full(const Place &place) const
    {
        return base + (uint32_t)(offsetof(Shared, full) + sizeof(uint64_t) * place.stage);
    }
    __device__ uint32_t empty(const Place &place) const
    {
        return base + (uint32_t)(offsetof(Shared, empty) + sizeof(uint64_t) * place.stage);
    }
    __device__ uint32_t arrived(const Place &place) const
    {
        return base + (uint32_t)(offsetof(Shared, arrived) + sizeof(uint64_t) * place.stage);
    }
    __device__ uint32_t sums(const Place &place) const
    {
        return base + (uint32_t)(offsetof(Shared, sums) + sizeof(float) * MOST_SUMS * place.stage);
    }
    __device__ uint32_t stage(const Place &place) const
    {
        return base + (uint32_t)(RING_AT + ALL * threads * place.stage);
    }

    // The producer's part for one row, of which from[] is this block's slice. In the first round
    // the parity is that of the phase before the first, which counts as complete.
    __device__ void fetch(Place &place, const char *const (&from)[INPUTS], int chunks,
                          uint64_t policy)
    {
        constexpr int bytes[] = {V * (int)sizeof(T)...};
#pragma unroll 1
        for (int t = 0; t < chunks; t++) {
            const int at = t * threads, there = max(0, min(threads, length - at));
            uint32_t to = stage(place);
            barrier_wait(empty(place), place.parity);
            barrier_expect(full(place), ALL * there);
#pragma unroll
            for (int i = 0; there && i < INPUTS; to += bytes[i] * threads, i++)
                bulk_copy(to, from[i] + (int64_t)at * bytes[i], bytes[i] * there, full(place),
                          policy);
            place.next(stages);
        }
    }

    // This thread's pack of a stage, for the input of type U that follows `before` bytes per
    // thread. Beyond the row's end it is whatever the stage held before.
    template <class U>
    __device__ gd_raw_pack<U, V> load(const Place &place, int before) const
    {
        gd_raw_pack<U, V> raw;
        const uint32_t from = stage(place) + before * threads + (uint32_t)sizeof raw * threadIdx.x;
#pragma unroll
        for (int k = 0; k < (int)sizeof raw / 16; k++) raw.part[k] = load_shared(from + 16 * k);
        return raw;
    }

    // This thread's packs of a row are c * threads + threadIdx.x for c below this.
    __device__ int mine() const
    {
        return (length - (int)threadIdx.x + threads - 1) / threads;
    }

    // Sends this warp's sum to every block of the cluster.
    __device__ void send_sum(float v)
    {
        v = gd_warp_reduce(v, gd_plus());
        if (lane < blocks)
            send(sums(sent) + 4 * (uint32_t)(rank * warps + warp), v, arrived(sent),
                 (uint32_t)lane);
        sent.next(EXCHANGES);
    }

    // The sum over the row, in the same order in every warp.
    __device__ float total()
    {
        barrier_wait_cluster(arrived(got), got.parity);
        if (threadIdx.x == 0) barrier_expect(arrived(got), 4 * blocks * warps);
        const uint32_t from = sums(got) + 4 * (uint32_t)lane;
        float v = 0;
#pragma unroll
        for (int i = 0; i < MOST_SUMS; i += 32) v += load_shared_float(from + 4 * i);
        got.next(EXCHANGES);
        return gd_warp_reduce(v, gd_plus());
    }

    // Every thread arrives for itself. One lane could arrive for its warp after a __syncwarp, which
    // is no faster, but compute-sanitizer's racecheck would not see that the other lanes' reads
    // come first.
    __device__ void give_back()
    {
        barrier_arrive(empty(behind));
        behind.next(stages);
    }
};

// A consumer's steps for the rows first, first + stride, ...: step(row, READS, WRITES) does pass 1
// of row + stride, if READS, and pass 2 of `row`, if WRITES. The first step only reads, and its row
// is first - stride; the last only writes. READS and WRITES are compile-time constants.
template <class Step>
__device__ inline void walk_rows(int64_t first, int64_t rows, int64_t stride, const Step &step)
{
    constexpr std::true_type yes;
    constexpr std::false_type no;
    if (first >= rows) return;
    int64_t row = first;
    step(row - stride, yes, no);
#pragma unroll 1
    for (; row + stride < rows; row += stride) step(row, yes, yes);
    step(row, no, yes);
}

#endif

inline Shape ring_shape(const ClusterPlan &p, int stage_bytes)
{
    Shape shape = {p.clusters * p.cluster, p.threads + 32};
    shape.shared = RING_AT + (size_t)(p.threads * stage_bytes * p.stages);
    shape.cluster = p.cluster;
    return shape;
}

} // namespace gd_rms
#endif
