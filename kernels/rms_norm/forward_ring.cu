// forward_ring.cu - y for rows that no block can hold (N from 32768 or so to 262144).
//
// The rows come through the ring of ring.cuh, each shared by a cluster. Pass 1 sums the squares of
// a row's tiles and sends the warps' sums round; pass 2 writes y from the same tiles and gives them
// back.
#include "rms_norm/forward.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/ring.cuh"

namespace gd_rms
{

// CHUNKS: vectors of a row that each thread has; TILE: of those, how many make a tile; LEAD: see
// ring.cuh. PLAIN: a call of the plain kind (plan.cuh). One block to a multiprocessor; unless told,
// the compiler makes room for two, with registers too few.
template <class T, int CHUNKS, int TILE, int LEAD, bool PLAIN>
__global__ void __launch_bounds__(FORWARD_RING_THREADS + 32, 1)
    forward_ring(const __grid_constant__ Forward a, int stages, int teams)
{
#if GD_HOPPER
    constexpr int V = vector_size<T>;
    constexpr int TILES = CHUNKS / TILE;
    extern __shared__ __align__(128) char shared[];
    Ring<1> ring(shared, stages, TILE, teams, (int)(a.cols / V));
    const int begin = ring.begin, length = ring.length;
    // Rows of the cluster's first team; the second's are one further.
    const int64_t first = blockIdx.x / ring.blocks * teams, step = gridDim.x / ring.blocks * teams;
    auto x = [&](int64_t row) {
        return (const uint4 *)((const T *)a.x + row * a.x_stride) + begin;
    };
    const bool producer = ring.warp == ring.warps;
    const int64_t soon = first + ring.team + ring.lane * step;
    let_next_start();
    if (producer && ring.lane < SOON && soon < a.rows && length > 0)
        bulk_prefetch(x(soon), 16 * length, a.keep);
    wait_for_previous();

    if (producer) {
        if (ring.lane == 0) {
            Place place = {0, 1};
            for (int64_t row = first; row < a.rows; row += step)
                ring.fetch(place, x(row + ring.team), nullptr, row + ring.team < a.rows, TILES,
                           a.keep);
        }
        __syncwarp();
        cluster_sync();
        return;
    }

    float factor[CHUNKS][V];
    const int most = ring.mine();
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int64_t col = (int64_t)(begin + c * ring.threads + (int)threadIdx.x) * V;
#pragma unroll
        for (int j = 0; j < V; j++) factor[c][j] = 0;
        if (c < most) load_factor<T, PLAIN>(factor[c], a, col);
    }

    // Chunks that are not mine are worked on like the others, and what comes of them is dropped.
    walk_rows(first, a.rows, step, [&](int64_t row_of_first, auto reads, auto writes) {
        const int64_t row = row_of_first + ring.team;
        // In the last step the team may have no row.
        const int mine = !decltype(reads)::value && row >= a.rows ? 0 : most;
        uint4 *const y = (uint4 *)((T *)a.y + row * a.y_stride) + begin + (int)threadIdx.x;
        float sum = 0, rstd = 0;
#pragma unroll
        for (int t = 0; t < TILES + LEAD; t++) {
            const bool read = decltype(reads)::value && t < TILES;
            const bool write = decltype(writes)::value && t >= LEAD;
            uint4 now[TILE], before[TILE];
#pragma unroll
            for (int k = 0; write && k < TILE; k++) before[k] = ring.load(ring.behind, 0, k);
            if (read) {
                barrier_wait(ring.full(ring.ahead), ring.ahead.parity);
#pragma unroll
                for (int k = 0; k < TILE; k++) now[k] = ring.load(ring.ahead, 0, k);
                ring.ahead.next(stages);
            }
#pragma unroll
            for (int k = 0; read && k < TILE; k++) {
                const float more = square_sum<T>(now[k], sum);
                if (t * TILE + k < mine) sum = more;
            }
            if (write && t == LEAD) {
                rstd = rstd_of(ring.total(), a);
                if (a.rstd && ring.member == 0 && threadIdx.x == 0 && row < a.rows)
                    ((float *)a.rstd)[row] = rstd;
            }
#pragma unroll
            for (int k = 0; write && k < TILE; k++) {
                const int c = (t - LEAD) * TILE + k, at = c * ring.threads;
                const int64_t col = (int64_t)(begin + at + (int)threadIdx.x) * V;
                if (!PLAIN && c >= mine) continue; // there may be no bias there
                const uint4 v = normalise<T, PLAIN, false>(a, before[k], rstd, factor[c], col);
                if (c < mine) y[at] = v;
            }
            if (write) ring.give_back();
        }
        if (decltype(reads)::value) ring.send_sum(sum);
    });
    cluster_sync(); // no block ends while another may still send to it
#endif
}

template <class T, int CHUNKS, int TILE, int LEAD>
static cudaError_t add_ring(const Forward &a, const ForwardPlan &p, Launches *to)
{
    // The ring must have a place for the tile that is waited for, beside all that are held.
    constexpr int TILES = CHUNKS / TILE;
    static_assert(LEAD < TILES);
    if (p.threads > FORWARD_RING_THREADS || p.stages <= TILES + LEAD || p.stages > MOST_STAGES)
        return cudaErrorInvalidConfiguration;
    const int64_t wanted = ceil_div(a.rows, p.teams);
    const int64_t clusters = wanted < p.clusters ? wanted : p.clusters;
    const size_t tile = (size_t)p.threads * TILE * 16;
    auto kernel = forward_ring<T, CHUNKS, TILE, LEAD, false>;
    if (is_plain(a, dtype_of<T>)) kernel = forward_ring<T, CHUNKS, TILE, LEAD, true>;
    return add_launch(kernel, dim3((unsigned)(clusters * p.cluster)),
                      dim3((unsigned)p.threads + 32), RING_AT + tile * (size_t)p.stages, p.cluster,
                      true, to, a, p.stages, p.teams);
}

template <class T>
static cudaError_t add_of(const Forward &a, const ForwardPlan &p, Launches *to)
{
    auto is = [&](int chunks, int tile, int lead) {
        return p.chunks == chunks && p.tile_chunks == tile && p.lead == lead;
    };
    if constexpr (sizeof(T) == 4) {
        if (is(5, 1, 1)) return add_ring<T, 5, 1, 1>(a, p, to);
        if (is(8, 1, 1)) return add_ring<T, 8, 1, 1>(a, p, to);
        if (is(8, 1, 3)) return add_ring<T, 8, 1, 3>(a, p, to);
        if (is(8, 2, 0)) return add_ring<T, 8, 2, 0>(a, p, to);
    } else {
        if (is(4, 1, 0)) return add_ring<T, 4, 1, 0>(a, p, to);
        if (is(4, 1, 2)) return add_ring<T, 4, 1, 2>(a, p, to);
        if (is(5, 1, 2)) return add_ring<T, 5, 1, 2>(a, p, to);
    }
    return cudaErrorInvalidConfiguration;
}

cudaError_t add_forward_ring(const Forward &a, const ForwardPlan &p, gd_dtype dtype, Launches *to)
{
    if (dtype == GD_FLOAT32) return add_of<float>(a, p, to);
    if (dtype == GD_BFLOAT16) return add_of<__nv_bfloat16>(a, p, to);
    return add_of<__half>(a, p, to);
}

} // namespace gd_rms
