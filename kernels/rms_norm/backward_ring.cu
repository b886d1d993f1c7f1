// backward_ring.cu - dx and the partial sums of dw for wide rows (N from 1024 to 262144).
//
// A cluster of blocks (often just one block) shares a row, each block a slice of it; P clusters walk
// the rows, r, r + P, r + 2P, ..., so that all of them read in one neighbourhood of memory. Of each
// block one warp is the producer: it sends for x and dy of the rows to come by bulk copies into a
// ring of tiles in shared memory, and waits only for tiles to be given back. The other warps, the
// consumers, hold factor and the sums of dw of their columns in registers from first row to last.
//
// A row takes two passes over its tiles, both from shared memory; DRAM is read once:
//   1. each warp sums h * xhat over its columns and sends the sum to every block of the cluster
//      (st.async: the value, and its 4 bytes counted on a barrier there);
//   2. when all warps' sums have come, each warp adds them, in the same order everywhere, and
//      writes dx, adds to dw, and gives the tiles back.
// With lookahead, pass 1 of row i + 1 comes before pass 2 of row i, so that the sums travel while
// there is something to do. No barrier over the whole block is in the loop.
//
// How many sets of sums (EXCHANGES) there must be. A warp may send for row i + n only when no warp
// can still be reading row i's. Before sending it has waited for the sums of row i + n - 2 at the
// earliest, with lookahead; so every warp had sent those, and (with lookahead) had finished row
// i + n - 4. That is row i for n = 4.
#include "rms_norm/async.cuh"
#include "rms_norm/cuda.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/pack.cuh"

namespace gd_rms
{

constexpr int EXCHANGES = 4;
constexpr int MOST_SUMS = 16 * 16; // warps of a cluster
constexpr int MOST_STAGES = 32;

struct Shared {
    uint64_t full[MOST_STAGES];  // a tile is there
    uint64_t empty[MOST_STAGES]; // all warps have given it back
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

// CHUNKS: vectors of a row that each thread holds; TILE: of those, how many make a tile.
template <class T, int CHUNKS, int TILE, int THREADS>
__global__ void __launch_bounds__(THREADS + 32)
    backward_ring(const __grid_constant__ Backward a, int stages, int lookahead)
{
#if GD_HOPPER
    constexpr int V = vector_size<T>;
    constexpr int TILES = CHUNKS / TILE;
    extern __shared__ __align__(128) char shared[];
    Shared &sh = *(Shared *)shared;
    char *const ring = shared + RING_AT;

    const int threads = (int)blockDim.x - 32, warps = threads / 32; // consumers
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int blocks = (int)cluster_size(), rank = (int)cluster_rank();
    const int vectors = (int)(a.cols / V), slice = (vectors + blocks - 1) / blocks;
    const int begin = rank * slice, length = min(slice, vectors - begin);
    const int tile_vectors = TILE * threads;
    const int64_t first = blockIdx.x / blocks, step = gridDim.x / blocks;
    const uint32_t sums = (uint32_t)(blocks * warps);

    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; s++)
            barrier_init(&sh.full[s], 1), barrier_init(&sh.empty[s], warps);
        // Alone, a block's warps write their sums and arrive; in a cluster what arrives is bytes.
        for (int e = 0; e < EXCHANGES; e++) barrier_init(&sh.arrived[e], blocks > 1 ? 1 : warps);
        barrier_init_done();
        for (int e = 0; blocks > 1 && e < EXCHANGES; e++) barrier_expect(&sh.arrived[e], 4 * sums);
    }
    __syncthreads();
    cluster_sync();

    if (warp == warps) { // the producer
        if (lane == 0) {
            Place place = {0, 1};
            for (int64_t row = first; row < a.rows; row += step) {
                const uint4 *x = (const uint4 *)((const T *)a.x + row * a.x_stride) + begin;
                const uint4 *dy = (const uint4 *)((const T *)a.dy + row * a.dy_stride) + begin;
#pragma unroll 1
                for (int t = 0; t < TILES; t++) {
                    const int at = t * tile_vectors;
                    const int there = max(0, min(tile_vectors, length - at));
                    uint4 *tile = (uint4 *)ring + (size_t)place.stage * 2 * tile_vectors;
                    // The first time round the parity is that of the phase before the first,
                    // which counts as over.
                    barrier_wait(&sh.empty[place.stage], place.parity);
                    barrier_expect(&sh.full[place.stage], 32 * there);
                    if (there) {
                        bulk_copy(tile, x + at, 16 * there, &sh.full[place.stage]);
                        bulk_copy(tile + tile_vectors, dy + at, 16 * there, &sh.full[place.stage]);
                    }
                    place.next(stages);
                }
            }
        }
        __syncwarp();
        let_next_start();
        cluster_sync();
        return;
    }

    float w[CHUNKS][V], dw[CHUNKS][V];
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * threads + (int)threadIdx.x;
#pragma unroll
        for (int j = 0; j < V; j++) w[k][j] = dw[k][j] = 0;
        if (i < length)
            load_weight<V>(w[k], a.weight, a.weight_dtype, (int64_t)(begin + i) * V,
                           (float)a.offset, 1.0f);
    }
    const float per_col = 1.0f / (float)a.cols;
    const float *const rstd_of = (const float *)a.rstd;

    Place ahead = {0, 0}, behind = {0, 0}; // tiles of pass 1 and of pass 2
    Place sent = {0, 0}, got = {0, 0};     // sums, likewise

    auto pass1 = [&](float rstd) {
        float dot = 0;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const uint4 *tile = (const uint4 *)ring + (size_t)ahead.stage * 2 * tile_vectors;
            barrier_wait(&sh.full[ahead.stage], ahead.parity);
#pragma unroll
            for (int k = 0; k < TILE; k++) {
                const int at = k * threads + (int)threadIdx.x;
                if (t * tile_vectors + at < length) {
                    float xv[V], dyv[V];
                    unpack<T>(xv, tile[at]), unpack<T>(dyv, tile[tile_vectors + at]);
#pragma unroll
                    for (int j = 0; j < V; j++)
                        dot = fmaf(dyv[j] * w[t * TILE + k][j], xv[j] * rstd, dot);
                }
            }
            ahead.next(stages);
        }
        dot = lane_sum<32>(dot);
        if (blocks > 1) {
            if (lane < blocks)
                send(&sh.sums[sent.stage][rank * warps + warp], dot, &sh.arrived[sent.stage],
                     (uint32_t)lane);
        } else if (lane == 0) {
            sh.sums[sent.stage][warp] = dot;
            barrier_arrive(&sh.arrived[sent.stage]);
        }
        sent.next(EXCHANGES);
    };

    auto pass2 = [&](float rstd, int64_t row) {
        barrier_wait(&sh.arrived[got.stage], got.parity);
        if (blocks > 1 && threadIdx.x == 0) barrier_expect(&sh.arrived[got.stage], 4 * sums);
        float mean = 0;
        for (int i = lane; i < (int)sums; i += 32) mean += sh.sums[got.stage][i];
        mean = lane_sum<32>(mean) * per_col;
        got.next(EXCHANGES);
        uint4 *const dx = (uint4 *)((T *)a.dx + row * a.dx_stride) + begin;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const uint4 *tile = (const uint4 *)ring + (size_t)behind.stage * 2 * tile_vectors;
#pragma unroll
            for (int k = 0; k < TILE; k++) {
                const int at = k * threads + (int)threadIdx.x;
                if (t * tile_vectors + at < length) {
                    float xv[V], dyv[V];
                    unpack<T>(xv, tile[at]), unpack<T>(dyv, tile[tile_vectors + at]);
#pragma unroll
                    for (int j = 0; j < V; j++) {
                        const float xhat = xv[j] * rstd;
                        xv[j] = rstd * fmaf(-xhat, mean, dyv[j] * w[t * TILE + k][j]); // dx
                        float &sum = dw[t * TILE + k][j];
                        sum = fmaf(dyv[j], a.round ? rounded<T>(xhat) : xhat, sum);
                    }
                    if (a.dx) __stcs(dx + t * tile_vectors + at, pack<T>(xv));
                }
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(&sh.empty[behind.stage]);
            behind.next(stages);
        }
    };

    // Step i: pass 1 of row i, pass 2 of row i - lookahead. rstd is read a step before pass 1.
    const int64_t rows = first < a.rows ? (a.rows - 1 - first) / step + 1 : 0;
    float rstd_behind = 0, rstd_ahead = rows ? rstd_of[first] : 0.0f;
#pragma unroll 1
    for (int64_t i = 0; i < rows + lookahead; i++) {
        const float rstd_next = i + 1 < rows ? rstd_of[first + (i + 1) * step] : 0.0f;
        if (i < rows) pass1(rstd_ahead);
        if (!lookahead) rstd_behind = rstd_ahead;
        if (i >= lookahead) pass2(rstd_behind, first + (i - lookahead) * step);
        rstd_behind = rstd_ahead, rstd_ahead = rstd_next;
    }

    if (a.partial) {
        float *const partial = (float *)a.partial + (int64_t)first * a.cols;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int i = k * threads + (int)threadIdx.x;
            if (i < length)
#pragma unroll
                for (int j = 0; j < V; j += 4)
                    *(float4 *)(partial + (int64_t)(begin + i) * V + j) =
                        make_float4(dw[k][j], dw[k][j + 1], dw[k][j + 2], dw[k][j + 3]);
        }
    }
    let_next_start();
    cluster_sync(); // no block ends while another may still send to it
#endif
}

template <class T, int CHUNKS, int TILE, int THREADS>
static cudaError_t launch_ring(const Backward &a, const BackwardPlan &p, cudaStream_t stream)
{
    const size_t tile = (size_t)p.threads * TILE * 2 * 16;
    return launch_with(backward_ring<T, CHUNKS, TILE, THREADS>,
                       dim3((unsigned)(p.partials * p.cluster)), dim3((unsigned)p.threads + 32),
                       RING_AT + tile * (size_t)p.stages, p.cluster, false, stream, a, p.stages,
                       p.lookahead);
}

template <class T>
static cudaError_t launch_of(const Backward &a, const BackwardPlan &p, cudaStream_t stream)
{
    if (p.threads > 512 || p.stages > MOST_STAGES) return cudaErrorInvalidConfiguration;
    if (p.chunks == 1) return launch_ring<T, 1, 1, 512>(a, p, stream);
    if (p.chunks == 2) return launch_ring<T, 2, 2, 512>(a, p, stream);
    if (p.chunks == 4) return launch_ring<T, 4, 2, 512>(a, p, stream);
    if constexpr (sizeof(T) == 4)
        if (p.chunks == 8) return launch_ring<T, 8, 2, 512>(a, p, stream);
    return cudaErrorInvalidConfiguration;
}

cudaError_t launch_backward_ring(const Backward &a, const BackwardPlan &p, gd_dtype dtype,
                                 cudaStream_t stream)
{
    if (dtype == GD_FLOAT32) return launch_of<float>(a, p, stream);
    if (dtype == GD_BFLOAT16) return launch_of<__nv_bfloat16>(a, p, stream);
    return launch_of<__half>(a, p, stream);
}

} // namespace gd_rms
