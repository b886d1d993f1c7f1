// backward_ring.cu - dx and the partial sums of dw for rows of more than 16 KB (up to N = 262144).
//
// The rows come through the ring of ring.cuh. The consumers hold factor and the sums of dw of their
// columns in registers from first row to last. A row takes two passes over its tiles, both from
// shared memory; DRAM is read once:
//   1. each warp sums h * xhat over its columns and sends the sum to every block of the cluster
//      (st.async: the value, and its 4 bytes counted on a barrier there);
//   2. when all warps' sums have come, each warp adds them, in the same order everywhere, and
//      writes dx, adds to dw, and gives the tiles back.
// With lookahead, pass 1 of row i + 1 comes before pass 2 of row i, so that the sums travel while
// there is something to do. No barrier over the whole block is in the loop.
#include "rms_norm/plan.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/ring.cuh"

namespace gd_rms
{

// CHUNKS: vectors of a row that each thread holds; TILE: of those, how many make a tile. ROUND:
// xhat is rounded to T before it goes into dw; who does not want it does not pay for it (up to 8%).
template <class T, int CHUNKS, int TILE, int THREADS, bool ROUND>
__global__ void __launch_bounds__(THREADS + 32)
    backward_ring(const __grid_constant__ Backward a, int stages, int lookahead)
{
#if GD_HOPPER
    constexpr int V = vector_size<T>;
    constexpr int TILES = CHUNKS / TILE;
    extern __shared__ __align__(128) char shared[];
    Ring<2> ring(shared, stages, TILE, (int)(a.cols / V));
    const int threads = ring.threads, begin = ring.begin, length = ring.length;
    const int tile_vectors = ring.tile_vectors;
    const int64_t first = blockIdx.x / ring.blocks, step = gridDim.x / ring.blocks;
    auto x = [&](int64_t row) {
        return (const uint4 *)((const T *)a.x + row * a.x_stride) + begin;
    };
    auto dy = [&](int64_t row) {
        return (const uint4 *)((const T *)a.dy + row * a.dy_stride) + begin;
    };
    const bool producer = ring.warp == ring.warps;
    let_next_start();
    const int64_t soon = first + ring.lane * step;
    if (producer && ring.lane < SOON && soon < a.rows && length > 0) {
        bulk_prefetch(x(soon), 16 * length, a.keep);
        bulk_prefetch(dy(soon), 16 * length, a.keep);
        line_prefetch((const float *)a.rstd + soon);
    }
    wait_for_previous();

    if (producer) {
        if (ring.lane == 0) {
            Place place = {0, 1};
            for (int64_t row = first; row < a.rows; row += step)
                ring.fetch(place, x(row), dy(row), TILES, a.keep);
        }
        __syncwarp();
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

    auto pass1 = [&](float rstd) {
        float dot = 0;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const uint4 *tile = ring.tile(ring.ahead);
            barrier_wait(&ring.sh.full[ring.ahead.stage], ring.ahead.parity);
#pragma unroll
            for (int k = 0; k < TILE; k++) {
                const int at = k * threads + (int)threadIdx.x;
                if (t * tile_vectors + at < length) {
                    float xv[V], dyv[V];
                    unpack<T>(xv, tile[at]), unpack<T>(dyv, tile[tile_vectors + at]);
#pragma unroll
                    for (int j = 0; j < V; j++) dot = fmaf(dyv[j] * w[t * TILE + k][j], xv[j], dot);
                }
            }
            ring.ahead.next(stages);
        }
        ring.send_sum(dot * rstd);
    };

    auto pass2 = [&](float rstd, int64_t row) {
        const float mean = ring.total() * per_col;
        uint4 *const dx = (uint4 *)((T *)a.dx + row * a.dx_stride) + begin;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const uint4 *tile = ring.tile(ring.behind);
#pragma unroll
            for (int k = 0; k < TILE; k++) {
                const int at = k * threads + (int)threadIdx.x;
                if (t * tile_vectors + at < length) {
                    float xv[V], dyv[V];
                    unpack<T>(xv, tile[at]), unpack<T>(dyv, tile[tile_vectors + at]);
#pragma unroll
                    for (int j = 0; j < V; j++) {
                        float &sum = dw[t * TILE + k][j];
                        const float xhat = xv[j] * rstd;
                        xv[j] = rstd * fmaf(-xhat, mean, dyv[j] * w[t * TILE + k][j]); // dx
                        sum = fmaf(dyv[j], ROUND ? rounded<T>(xhat) : xhat, sum);
                    }
                    if (a.dx) dx[t * tile_vectors + at] = pack<T>(xv);
                }
            }
            ring.give_back();
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
    cluster_sync(); // no block ends while another may still send to it
#endif
}

template <class T, int CHUNKS, int TILE, int THREADS>
static cudaError_t launch_ring(const Backward &a, const BackwardPlan &p, cudaStream_t stream)
{
    // The ring must hold all rows that are under way at once, or producer and consumers wait for
    // each other.
    if (p.threads > THREADS || p.stages < (1 + p.lookahead) * (CHUNKS / TILE))
        return cudaErrorInvalidConfiguration;
    const size_t tile = (size_t)p.threads * TILE * 2 * 16;
    auto kernel = backward_ring<T, CHUNKS, TILE, THREADS, false>;
    if constexpr (sizeof(T) == 2) // in float32 there is nothing to round
        if (a.round) kernel = backward_ring<T, CHUNKS, TILE, THREADS, true>;
    return launch_with(kernel, dim3((unsigned)(p.partials * p.cluster)),
                       dim3((unsigned)p.threads + 32), RING_AT + tile * (size_t)p.stages, p.cluster,
                       true, stream, a, p.stages, p.lookahead);
}

template <class T>
static cudaError_t launch_of(const Backward &a, const BackwardPlan &p, cudaStream_t stream)
{
    if (p.stages > MOST_STAGES) return cudaErrorInvalidConfiguration;
    if (p.chunks == 2 && p.tile_chunks == 1) return launch_ring<T, 2, 1, 512>(a, p, stream);
    if constexpr (sizeof(T) == 4) {
        if (p.chunks == 3) return launch_ring<T, 3, 1, 480>(a, p, stream);
        if (p.chunks == 4) return launch_ring<T, 4, 2, 512>(a, p, stream);
        if (p.chunks == 9) return launch_ring<T, 9, 1, 480>(a, p, stream);
    } else {
        if (p.chunks == 2) return launch_ring<T, 2, 2, 512>(a, p, stream);
        if (p.tile_chunks == 1) return launch_ring<T, 5, 1, 480>(a, p, stream);
        if (p.chunks == 5) return launch_ring<T, 5, 5, 480>(a, p, stream);
    }
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
