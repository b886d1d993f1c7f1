// ring.cuh - what the kernels for wide rows share: the ring of tiles in shared memory, the producer
// that fills it, and the sums that the warps of a cluster exchange.
//
// A cluster of blocks (often just one block) shares a row, each block a slice of it; the clusters
// walk the rows, r, r + P, r + 2P, ..., so that all of them read in one neighbourhood of memory. Of
// each block one warp is the producer: it sends for the rows to come by bulk copies, and waits only
// for tiles to be given back. The other warps are the consumers.
//
// How many sets of sums (EXCHANGES) there must be. A warp may send for row i + n only when no warp
// can still be reading row i's. Before sending it has waited for the sums of row i + n - 2 at the
// earliest, with lookahead; so every warp had sent those, and (with lookahead) had finished row
// i + n - 4. That is row i for n = 4.
#ifndef GD_RMS_NORM_RING_CUH
#define GD_RMS_NORM_RING_CUH

#include "rms_norm/async.cuh"
#include "rms_norm/pack.cuh"

namespace gd_rms
{

constexpr int EXCHANGES = 4;
constexpr int MOST_SUMS = 16 * 16; // warps of a cluster
constexpr int MOST_STAGES = 32;
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
    Shared &sh;
    uint4 *const tiles;
    const int stages, threads, warps, warp, lane; // threads: of the consumers
    const int blocks, rank;                       // of the cluster
    const int begin, length;                      // this block's slice of a row, in vectors
    const int tile_vectors;
    Place ahead, behind; // tiles of pass 1 and of pass 2
    Place sent, got;     // sums, likewise

    __device__ Ring(char *shared, int stages, int tile_chunks, int vectors)
        : sh(*(Shared *)shared), tiles((uint4 *)(shared + RING_AT)), stages(stages),
          threads((int)blockDim.x - 32), warps(threads / 32), warp((int)threadIdx.x / 32),
          lane((int)threadIdx.x % 32), blocks((int)cluster_size()), rank((int)cluster_rank()),
          begin(rank * ((vectors + blocks - 1) / blocks)),
          length(min((vectors + blocks - 1) / blocks, vectors - begin)),
          tile_vectors(tile_chunks * threads), ahead{0, 0}, behind{0, 0}, sent{0, 0}, got{0, 0}
    {
        if (threadIdx.x == 0) {
            for (int s = 0; s < stages; s++) {
                barrier_init(&sh.full[s], 1);
                barrier_init(&sh.empty[s], threads);
            }
            // Alone, a block's warps write their sums and arrive; in a cluster bytes do.
            for (int e = 0; e < EXCHANGES; e++)
                barrier_init(&sh.arrived[e], blocks > 1 ? 1 : warps);
            barrier_init_done();
            for (int e = 0; blocks > 1 && e < EXCHANGES; e++)
                barrier_expect(&sh.arrived[e], 4 * blocks * warps);
        }
        __syncthreads();
        cluster_sync();
    }

    __device__ uint4 *tile(const Place &place) const
    {
        return tiles + (size_t)place.stage * INPUTS * tile_vectors;
    }

    // The producer's part for one row, of which x (and dy) is this block's slice. The first time
    // round the parity is that of the phase before the first, which counts as over.
    __device__ void fetch(Place &place, const uint4 *x, const uint4 *dy, int tiles_of_row,
                          bool keep)
    {
#pragma unroll 1
        for (int t = 0; t < tiles_of_row; t++) {
            const int at = t * tile_vectors, there = max(0, min(tile_vectors, length - at));
            uint64_t *const full = &sh.full[place.stage];
            barrier_wait(&sh.empty[place.stage], place.parity);
            barrier_expect(full, INPUTS * 16 * there);
            if (there) {
                bulk_copy(tile(place), x + at, 16 * there, full, keep);
                if (INPUTS == 2)
                    bulk_copy(tile(place) + tile_vectors, dy + at, 16 * there, full, keep);
            }
            place.next(stages);
        }
    }

    // This warp's sum to every block of the cluster.
    __device__ void send_sum(float v)
    {
        v = lane_sum<32>(v);
        uint64_t *const arrived = &sh.arrived[sent.stage];
        if (blocks > 1) {
            if (lane < blocks)
                send(&sh.sums[sent.stage][rank * warps + warp], v, arrived, (uint32_t)lane);
        } else if (lane == 0) {
            sh.sums[sent.stage][warp] = v;
            barrier_arrive(arrived);
        }
        sent.next(EXCHANGES);
    }

    // The sum over the row, in the same order in every warp.
    __device__ float total()
    {
        uint64_t *const arrived = &sh.arrived[got.stage];
        barrier_wait(arrived, got.parity);
        if (blocks > 1 && threadIdx.x == 0) barrier_expect(arrived, 4 * blocks * warps);
        float v = 0;
        for (int i = lane; i < blocks * warps; i += 32) v += sh.sums[got.stage][i];
        got.next(EXCHANGES);
        return lane_sum<32>(v);
    }

    // Every thread for itself. One lane could speak for its warp after a __syncwarp, but then
    // compute-sanitizer's racecheck does not see that the other lanes' reads come first; it is no
    // slower.
    __device__ void give_back()
    {
        barrier_arrive(&sh.empty[behind.stage]);
        behind.next(stages);
    }
};

#endif

} // namespace gd_rms
#endif
