// forward_ring.cu - y for rows that no block can hold (N from 32768 or so to 262144).
//
// The rows come through the ring of ring.cuh, each shared by a cluster. Pass 1 sums the squares of
// a row's tiles and sends the warps' sums round; pass 2 writes y from the same tiles, which are
// still in shared memory, and gives them back. Where pass 2 of a row stands to pass 1 of the next:
//   float32   behind all of it
//   16 bits   LEAD tiles behind it, tile by tile: there writes come between reads, at the pace of
//             the tiles that arrive, and not a row at once, which DRAM likes better
#include "rms_norm/forward.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/ring.cuh"

namespace gd_rms
{

constexpr int MOST_THREADS = 512; // of the consumers

// CHUNKS: vectors of a row that each thread has; TILE: of those, how many make a tile. LEAD: as
// above, or -1 for pass 2 behind all of pass 1. PLAIN: a call of the plain kind (plan.cuh).
template <class T, int CHUNKS, int TILE, int LEAD, bool PLAIN>
__global__ void __launch_bounds__(MOST_THREADS + 32)
    forward_ring(const __grid_constant__ Forward a, int stages, int lookahead)
{
#if GD_HOPPER
    constexpr int V = vector_size<T>;
    constexpr int TILES = CHUNKS / TILE;
    extern __shared__ __align__(128) char shared[];
    Ring<1> ring(shared, stages, TILE, (int)(a.cols / V));
    const int begin = ring.begin, length = ring.length, tile_vectors = ring.tile_vectors;
    const int64_t first = blockIdx.x / ring.blocks, step = gridDim.x / ring.blocks;
    auto x = [&](int64_t row) {
        return (const uint4 *)((const T *)a.x + row * a.x_stride) + begin;
    };
    const bool producer = ring.warp == ring.warps;
    const int64_t soon = first + ring.lane * step;
    let_next_start();
    if (producer && ring.lane < SOON && soon < a.rows && length > 0)
        bulk_prefetch(x(soon), 16 * length, a.keep);
    wait_for_previous();

    if (producer) {
        if (ring.lane == 0) {
            Place place = {0, 1};
            for (int64_t row = first; row < a.rows; row += step)
                ring.fetch(place, x(row), nullptr, TILES, a.keep);
        }
        __syncwarp();
        cluster_sync();
        return;
    }

    // What load_factor does; through it the compiler made other code of all that follows, which has
    // not been timed.
    float factor[CHUNKS][V];
    const float offset = (float)a.offset;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * ring.threads + (int)threadIdx.x;
#pragma unroll
        for (int j = 0; j < V; j++) factor[k][j] = 0;
        if (i >= length) continue;
        if constexpr (PLAIN) {
            unpack<T>(factor[k], __ldg((const uint4 *)a.weight + begin + i));
#pragma unroll
            for (int j = 0; j < V; j++) factor[k][j] += offset;
        } else {
            load_weight<V>(factor[k], a.weight, a.weight_dtype, (int64_t)(begin + i) * V, offset,
                           1.0f);
        }
    }

    // Pass 1 of tile t: adds this thread's squares to the sum.
    auto read_tile = [&](int t, float &sum) {
        const uint4 *tile = ring.tile(ring.ahead);
        barrier_wait(&ring.sh.full[ring.ahead.stage], ring.ahead.parity);
#pragma unroll
        for (int k = 0; k < TILE; k++) {
            const int at = k * ring.threads + (int)threadIdx.x;
            if (t * tile_vectors + at < length) sum = square_sum<T>(tile[at], sum);
        }
        ring.ahead.next(stages);
    };

    auto finish_rstd = [&](int64_t row) {
        const float rstd = rstd_of(ring.total(), a);
        if (a.rstd && ring.rank == 0 && threadIdx.x == 0) ((float *)a.rstd)[row] = rstd;
        return rstd;
    };

    // Pass 2 of tile t.
    auto write_tile = [&](int t, uint4 *y, float rstd) {
        const uint4 *tile = ring.tile(ring.behind);
#pragma unroll
        for (int k = 0; k < TILE; k++) {
            const int at = k * ring.threads + (int)threadIdx.x;
            if (t * tile_vectors + at < length) {
                const int i = t * tile_vectors + at;
                y[i] = normalise<T, PLAIN, false>(a, tile[at], rstd, factor[t * TILE + k],
                                                  (int64_t)(begin + i) * V);
            }
        }
        ring.give_back();
    };

    const int64_t rows = first < a.rows ? (a.rows - 1 - first) / step + 1 : 0;
    if constexpr (LEAD < 0) {
        // lookahead is 1. It is a parameter because the compiler makes slower code if it knows.
#pragma unroll 1
        for (int64_t i = 0; i < rows + lookahead; i++) {
            if (i < rows) {
                float sum = 0;
#pragma unroll
                for (int t = 0; t < TILES; t++) read_tile(t, sum);
                ring.send_sum(sum);
            }
            if (i >= lookahead) {
                const int64_t row = first + (i - lookahead) * step;
                const float rstd = finish_rstd(row);
                uint4 *const y = (uint4 *)((T *)a.y + row * a.y_stride) + begin;
#pragma unroll
                for (int t = 0; t < TILES; t++) write_tile(t, y, rstd);
            }
        }
    } else {
#pragma unroll 1
        for (int64_t i = 0; i <= rows; i++) {
            float sum = 0, rstd = 0;
            const int64_t row = first + (i - 1) * step; // of pass 2
            uint4 *const y = (uint4 *)((T *)a.y + row * a.y_stride) + begin;
#pragma unroll
            for (int t = 0; t < TILES + LEAD; t++) {
                if (t < TILES && i < rows) read_tile(t, sum);
                if (t >= LEAD && i > 0) {
                    if (t == LEAD) rstd = finish_rstd(row);
                    write_tile(t - LEAD, y, rstd);
                }
            }
            // As soon as it was known, it was 4% slower.
            if (i < rows) ring.send_sum(sum);
        }
    }
    cluster_sync(); // no block ends while another may still send to it
#endif
}

template <class T, int CHUNKS, int TILE, int LEAD>
static cudaError_t launch_ring(const Forward &a, const ForwardPlan &p, cudaStream_t stream)
{
    // As in backward_ring.cu: all tiles that are held at once, while the next is waited for.
    constexpr int TILES = CHUNKS / TILE;
    static_assert(LEAD < TILES);
    if (p.threads > MOST_THREADS || p.stages < TILES + (LEAD < 0 ? TILES : LEAD + 1))
        return cudaErrorInvalidConfiguration;
    const int64_t clusters = a.rows < p.clusters ? a.rows : p.clusters;
    const size_t tile = (size_t)p.threads * TILE * 16;
    auto kernel = forward_ring<T, CHUNKS, TILE, LEAD, false>;
    if (is_plain(a, dtype_of<T>)) kernel = forward_ring<T, CHUNKS, TILE, LEAD, true>;
    return launch_with(kernel, dim3((unsigned)(clusters * p.cluster)),
                       dim3((unsigned)p.threads + 32), RING_AT + tile * (size_t)p.stages, p.cluster,
                       true, stream, a, p.stages, 1);
}

template <class T>
static cudaError_t launch_of(const Forward &a, const ForwardPlan &p, cudaStream_t stream)
{
    auto is = [&](int chunks, int tile, int lead) {
        return p.chunks == chunks && p.tile_chunks == tile && p.lead == lead;
    };
    if constexpr (sizeof(T) == 4) {
        if (is(4, 2, -1)) return launch_ring<T, 4, 2, -1>(a, p, stream);
        if (is(8, 4, -1)) return launch_ring<T, 8, 4, -1>(a, p, stream);
    } else {
        if (is(4, 1, 0)) return launch_ring<T, 4, 1, 0>(a, p, stream);
        if (is(4, 1, 3)) return launch_ring<T, 4, 1, 3>(a, p, stream);
        if (is(4, 2, 0)) return launch_ring<T, 4, 2, 0>(a, p, stream);
    }
    return cudaErrorInvalidConfiguration;
}

cudaError_t launch_forward_ring(const Forward &a, const ForwardPlan &p, gd_dtype dtype,
                                cudaStream_t stream)
{
    if (dtype == GD_FLOAT32) return launch_of<float>(a, p, stream);
    if (dtype == GD_BFLOAT16) return launch_of<__nv_bfloat16>(a, p, stream);
    return launch_of<__half>(a, p, stream);
}

} // namespace gd_rms
