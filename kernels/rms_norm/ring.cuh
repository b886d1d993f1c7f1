// ring.cuh - what the kernels for wide rows share: the ring of tiles in shared memory, the producer
// that fills it, the order in which the consumers go through it, and the sums that the warps of a
// cluster exchange.
//
// A cluster of blocks shares a row, each block a slice of it; the clusters walk the rows, r, r + P,
// r + 2P, ..., so that all of them read in one neighbourhood of memory. Of each block one warp is
// the producer: it sends for the rows to come by bulk copies, and waits only for tiles to be given
// back. The other warps are the consumers. They go over a row twice: pass 1 gathers its sum; pass
// 2, when the sum is known, writes the result from the same tiles, which are still in shared
// memory.
//
// Pass 2 of a row goes in between the tiles of the next row's pass 1, LEAD tiles behind it. With
// rows of three tiles and a LEAD of 1 a step is:
//
//     read 0     read 1, write 0'     read 2, write 1'     write 2'     send the sum
//
// where ' is of the row before. So a warp that waits for a tile to arrive has just written one:
// reads and writes leave at an even pace, where a row written at once is a burst, and before that
// DRAM has nothing to write. And the sums have LEAD + 1 tiles' time to come.
//
// Of the ring's stages the tiles of a row and LEAD more are held, the others are on their way: too
// few of those, and DRAM waits; too many, and it is slower by 1 or 2% as well (plan.cu).
//
// Teams. A cluster may have two rows at once, each with a team of half its blocks. They wait for
// both rows' sums and so keep in step, and in one neighbourhood of DRAM, where two clusters would
// drift apart.
//
// How many sets of sums (EXCHANGES) there must be. A warp sends for row i + 2 at the end of step
// i + 2. In that step it has waited for the sums of row i + 1, which the last warp sent at the end
// of step i + 1, and so after it had read the sums of row i. Two are enough.
#ifndef GD_RMS_NORM_RING_CUH
#define GD_RMS_NORM_RING_CUH

#include <stddef.h>

#include <type_traits>

#include "rms_norm/async.cuh"
#include "rms_norm/pack.cuh"

namespace gd_rms
{

constexpr int EXCHANGES = 2;
constexpr int MOST_SUMS = 16 * 16;       // warps of a cluster
constexpr int TEAM_SUMS = MOST_SUMS / 2; // where there are two teams
constexpr int MOST_STAGES = 32;

// The most consumers. With the producer's warp 480 leave a thread 128 registers, 512 leave 96.
constexpr int FORWARD_RING_THREADS = 512;
constexpr int backward_ring_threads(int chunks)
{
    return chunks == 2 || chunks == 4 ? 512 : 480;
}

constexpr int SOON = 2; // rows of a cluster that are brought to L2 before it may read them

struct Shared {
    uint64_t full[MOST_STAGES];  // a tile is there
    uint64_t empty[MOST_STAGES]; // all threads have given it back
    uint64_t arrived[EXCHANGES]; // all sums of a row are there
    float sums[EXCHANGES][MOST_SUMS];
};
constexpr int RING_AT = (sizeof(Shared) + 127) / 128 * 128;

// A walk around the ring of tiles.
struct Place {
    int stage;
    uint32_t parity;
    __device__ void next(int stages)
    {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

#if GD_HOPPER

// One block's part in it. INPUTS arrays come in, tile by tile, side by side.
template <int INPUTS>
struct Ring {
    uint32_t base;                                // the address of Shared; behind it are the tiles
    const int stages, threads, warps, warp, lane; // threads: of the consumers
    const int blocks, rank;                       // of the cluster
    const int members, member, team;              // blocks to a row; which of them, and of the rows
    const int begin, length;                      // this block's slice of a row, in vectors
    const int tile_vectors;
    Place ahead, behind; // tiles of pass 1 and of pass 2
    Place sent, got;     // sums, likewise

    __device__ Ring(char *shared, int stages, int tile_chunks, int teams, int vectors)
        : base(shared_address(shared)), stages(stages), threads((int)blockDim.x - 32),
          warps(threads / 32), warp((int)threadIdx.x / 32), lane((int)threadIdx.x % 32),
          blocks((int)cluster_size()), rank((int)cluster_rank()), members(blocks / teams),
          member(rank % members), team(rank / members),
          begin(member * ((vectors + members - 1) / members)),
          length(min((vectors + members - 1) / members, vectors - begin)),
          tile_vectors(tile_chunks * threads), ahead{0, 0}, behind{0, 0}, sent{0, 0}, got{0, 0}
    {
        // Or the compiler asks for it again wherever it is used.
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
    __device__ uint32_t tile(const Place &place) const
    {
        return base + (uint32_t)(RING_AT + 16 * INPUTS * tile_vectors * place.stage);
    }

    // The producer's part for one row, of which x (and dy) is this block's slice; `exists`: not so
    // where the other team has the last row. The first time round the parity is that of the phase
    // before the first, which counts as over.
    __device__ void fetch(Place &place, const uint4 *x, const uint4 *dy, bool exists,
                          int tiles_of_row, bool keep)
    {
        const int vectors = exists ? length : 0;
#pragma unroll 1
        for (int t = 0; t < tiles_of_row; t++) {
            const int at = t * tile_vectors, there = max(0, min(tile_vectors, vectors - at));
            barrier_wait(empty(place), place.parity);
            barrier_expect(full(place), INPUTS * 16 * there);
            if (there) {
                bulk_copy(tile(place), x + at, 16 * there, full(place), keep);
                if (INPUTS == 2)
                    bulk_copy(tile(place) + 16 * tile_vectors, dy + at, 16 * there, full(place),
                              keep);
            }
            place.next(stages);
        }
    }

    // This thread's vector k of a tile of the first (0) or second (1) input. Beyond the row's end
    // it is what the tile had before.
    __device__ uint4 load(const Place &place, int input, int k) const
    {
        return load_shared(tile(place) +
                           16 * (uint32_t)(input * tile_vectors + k * threads + (int)threadIdx.x));
    }

    // The vectors of a row that this thread has are k * threads + threadIdx.x for k below this.
    __device__ int mine() const
    {
        return (length - (int)threadIdx.x + threads - 1) / threads;
    }

    // This warp's sum to every block of the cluster: the other team's wait for it, too.
    __device__ void send_sum(float v)
    {
        v = lane_sum<32>(v);
        if (lane < blocks)
            send(sums(sent) + 4 * (uint32_t)(team * TEAM_SUMS + member * warps + warp), v,
                 arrived(sent), (uint32_t)lane);
        sent.next(EXCHANGES);
    }

    // The sum over this team's row, in the same order in every warp.
    __device__ float total()
    {
        barrier_wait_cluster(arrived(got), got.parity);
        if (threadIdx.x == 0) barrier_expect(arrived(got), 4 * blocks * warps);
        const uint32_t from = sums(got) + 4 * (uint32_t)(team * TEAM_SUMS + lane);
        float v = 0;
#pragma unroll
        for (int i = 0; i < TEAM_SUMS; i += 32) v += load_shared_float(from + 4 * i);
        if (members * warps > TEAM_SUMS) // all of them are one team's
#pragma unroll
            for (int i = TEAM_SUMS; i < MOST_SUMS; i += 32) v += load_shared_float(from + 4 * i);
        got.next(EXCHANGES);
        return lane_sum<32>(v);
    }

    // Every thread for itself. One lane could speak for its warp after a __syncwarp, but then
    // compute-sanitizer's racecheck does not see that the other lanes' reads come first; it is no
    // slower.
    __device__ void give_back()
    {
        barrier_arrive(empty(behind));
        behind.next(stages);
    }
};

// A consumer's steps for the rows first, first + stride, ..., of the cluster's first team:
// step(row, READS, WRITES) does pass 1 of row + stride, if READS, and pass 2 of `row`, if WRITES.
// The first step only reads, and its row is first - stride; the last only writes, and then alone
// the second team may have none to write. Both are known when it is compiled.
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

} // namespace gd_rms
#endif
