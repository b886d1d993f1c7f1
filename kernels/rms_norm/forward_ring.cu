// forward_ring.cu - y for rows that no block can hold (N from 32768 or so to 262144).
//
// The rows come through the ring of ring.cuh, each shared by a cluster. Pass 1 sums the squares of a
// row's tiles and sends the warps' sums round; pass 2 writes y from the same tiles, which are still
// in shared memory, and gives them back. With lookahead, pass 1 of the next row comes first.
#include "rms_norm/plan.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/ring.cuh"

namespace gd_rms
{

// CHUNKS: vectors of a row that each thread has; TILE: of those, how many make a tile. PACKED: the
// weight stays in registers as it is in memory, for 16 bits half as many; for plain calls (plan.cuh).
template <class T, int CHUNKS, int TILE, int THREADS, bool PACKED>
__global__ void __launch_bounds__(THREADS + 32)
    forward_ring(const __grid_constant__ Forward a, int stages, int lookahead)
{
#if GD_HOPPER
    constexpr int V = vector_size<T>;
    constexpr int TILES = CHUNKS / TILE;
    constexpr bool MATRIX = PACKED && sizeof(T) == 2; // sums squares on tensor cores
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

    uint4 weight[PACKED ? CHUNKS : 1];
    float factor[PACKED ? 1 : CHUNKS][V];
    const float offset = (float)a.offset;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * ring.threads + (int)threadIdx.x;
        if (PACKED) {
            weight[k] = make_uint4(0, 0, 0, 0);
            if (i < length) weight[k] = __ldg((const uint4 *)a.weight + begin + i);
        } else {
#pragma unroll
            for (int j = 0; j < V; j++) factor[k][j] = 0;
            if (i < length)
                load_weight<V>(factor[k], a.weight, a.weight_dtype, (int64_t)(begin + i) * V,
                               offset, 1.0f);
        }
    }

    auto pass1 = [&]() {
        float sum = 0, squares[4] = {0, 0, 0, 0};
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const uint4 *tile = ring.tile(ring.ahead);
            barrier_wait(&ring.sh.full[ring.ahead.stage], ring.ahead.parity);
#pragma unroll
            for (int k = 0; k < TILE; k++) {
                const int at = k * ring.threads + (int)threadIdx.x;
                if constexpr (MATRIX) { // for which all lanes of a warp must be there
                    uint4 bits = make_uint4(0, 0, 0, 0);
                    if (t * tile_vectors + at < length) bits = tile[at];
                    add_squares<T>(squares, bits.x, bits.y);
                    add_squares<T>(squares, bits.z, bits.w);
                } else if (t * tile_vectors + at < length) {
                    float v[V];
                    unpack<T>(v, tile[at]);
#pragma unroll
                    for (int j = 0; j < V; j++) sum = fmaf(v[j], v[j], sum);
                }
            }
            ring.ahead.next(stages);
        }
        ring.send_sum(MATRIX ? sum_of_squares(squares) : sum);
    };

    auto pass2 = [&](int64_t row) {
        const float rstd = reciprocal_root(fmaf(ring.total(), a.per_col, (float)a.eps));
        if (a.rstd && ring.rank == 0 && threadIdx.x == 0) ((float *)a.rstd)[row] = rstd;
        uint4 *const y = (uint4 *)((T *)a.y + row * a.y_stride) + begin;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const uint4 *tile = ring.tile(ring.behind);
#pragma unroll
            for (int k = 0; k < TILE; k++) {
                const int at = k * ring.threads + (int)threadIdx.x;
                if (t * tile_vectors + at < length) {
                    const int i = t * tile_vectors + at;
                    float v[V], *const f = factor[PACKED ? 0 : t * TILE + k];
                    unpack<T>(v, tile[at]);
                    if (PACKED) {
                        if (sizeof(T) == 2) forget(weight[t * TILE + k]);
                        unpack<T>(f, weight[t * TILE + k]);
#pragma unroll
                        for (int j = 0; j < V; j++) f[j] += offset;
                    }
#pragma unroll
                    for (int j = 0; j < V; j++) {
                        v[j] *= rstd;
                        v[j] = (!PACKED && a.round ? rounded<T>(v[j]) : v[j]) * f[j];
                    }
                    if (!PACKED && a.bias) {
                        float b[V];
                        load_weight<V>(b, a.bias, a.weight_dtype, (int64_t)(begin + i) * V, 0.0f,
                                       0.0f);
#pragma unroll
                        for (int j = 0; j < V; j++) v[j] += b[j];
                    }
                    y[i] = pack<T>(v);
                }
            }
            ring.give_back();
        }
    };

    const int64_t rows = first < a.rows ? (a.rows - 1 - first) / step + 1 : 0;
#pragma unroll 1
    for (int64_t i = 0; i < rows + lookahead; i++) {
        if (i < rows) pass1();
        if (i >= lookahead) pass2(first + (i - lookahead) * step);
    }
    cluster_sync(); // no block ends while another may still send to it
#endif
}

template <class T, int CHUNKS, int TILE>
static cudaError_t launch_ring(const Forward &a, const ForwardPlan &p, cudaStream_t stream)
{
    // As in backward_ring.cu: all rows that are under way at once.
    if (p.stages < (1 + p.lookahead) * (CHUNKS / TILE)) return cudaErrorInvalidConfiguration;
    const int64_t clusters = a.rows < p.clusters ? a.rows : p.clusters;
    const size_t tile = (size_t)p.threads * TILE * 16;
    auto kernel = forward_ring<T, CHUNKS, TILE, 512, false>;
    if (p.packed && is_plain(a, dtype_of<T>)) kernel = forward_ring<T, CHUNKS, TILE, 512, true>;
    return launch_with(kernel, dim3((unsigned)(clusters * p.cluster)),
                       dim3((unsigned)p.threads + 32), RING_AT + tile * (size_t)p.stages, p.cluster,
                       true, stream, a, p.stages, p.lookahead);
}

template <class T>
static cudaError_t launch_of(const Forward &a, const ForwardPlan &p, cudaStream_t stream)
{
    if (p.chunks == 4 && p.tile_chunks == 2) return launch_ring<T, 4, 2>(a, p, stream);
    if constexpr (sizeof(T) == 4) {
        if (p.chunks == 8 && p.tile_chunks == 4) return launch_ring<T, 8, 4>(a, p, stream);
    } else {
        if (p.chunks == 4 && p.tile_chunks == 1) return launch_ring<T, 4, 1>(a, p, stream);
        if (p.chunks == 4 && p.tile_chunks == 4) return launch_ring<T, 4, 4>(a, p, stream);
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
