// backward_ring.cu - dx and the partial sums of dw for rows of more than 16 KB (up to N = 262144).
//
// The rows come through the ring of ring.cuh, x and dy side by side. The consumers hold factor and
// the sums of dw of their columns in registers from first row to last. DRAM is read once:
//   pass 1: each warp sums h * xhat over its columns and sends the sum to every block of the
//           cluster (st.async: the value, and its 4 bytes counted on a barrier there);
//   pass 2: when all warps' sums have come, each warp adds them, in the same order everywhere, and
//           writes dx, adds to dw, and gives the tiles back.
// No barrier over the whole block is in the loop.
#include "rms_norm/plan.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/ring.cuh"

namespace gd_rms
{

// CHUNKS: vectors of a row that each thread holds; TILE: of those, how many make a tile; LEAD: see
// ring.cuh. ROUND: xhat is rounded to T before it goes into dw; who does not want it does not pay
// for it (up to 8%). One block to a multiprocessor, as in forward_ring.cu.
template <class T, int CHUNKS, int TILE, int LEAD, bool ROUND>
__global__ void __launch_bounds__(backward_ring_threads(CHUNKS) + 32, 1)
    backward_ring(const __grid_constant__ Backward a, int stages, int teams)
{
#if GD_HOPPER
    constexpr int V = vector_size<T>;
    constexpr int TILES = CHUNKS / TILE;
    extern __shared__ __align__(128) char shared[];
    Ring<2> ring(shared, stages, TILE, teams, (int)(a.cols / V));
    const int begin = ring.begin, length = ring.length;
    // Rows of the cluster's first team; the second's are one further.
    const int64_t first = blockIdx.x / ring.blocks * teams, step = gridDim.x / ring.blocks * teams;
    auto x = [&](int64_t row) {
        return (const uint4 *)((const T *)a.x + row * a.x_stride) + begin;
    };
    auto dy = [&](int64_t row) {
        return (const uint4 *)((const T *)a.dy + row * a.dy_stride) + begin;
    };
    const bool producer = ring.warp == ring.warps;
    let_next_start();
    const int64_t soon = first + ring.team + ring.lane * step;
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
                ring.fetch(place, x(row + ring.team), dy(row + ring.team), row + ring.team < a.rows,
                           TILES, a.keep);
        }
        __syncwarp();
        cluster_sync();
        return;
    }

    float w[CHUNKS][V], dw[CHUNKS][V];
    const int most = ring.mine();
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int64_t col = (int64_t)(begin + c * ring.threads + (int)threadIdx.x) * V;
#pragma unroll
        for (int j = 0; j < V; j++) w[c][j] = dw[c][j] = 0;
        if (c < most) load_weight<V>(w[c], a.weight, a.weight_dtype, col, (float)a.offset, 1.0f);
    }
    const float per_col = 1.0f / (float)a.cols;
    const float *const rstd_of = (const float *)a.rstd;

    // rstd of pass 2, of pass 1, and of pass 1 of the next step: it is read a step ahead.
    float rstd = 0, rstd_ahead = 0, rstd_next = 0;
    if (first + ring.team < a.rows) rstd_next = rstd_of[first + ring.team];
    walk_rows(first, a.rows, step, [&](int64_t row_of_first, auto reads, auto writes) {
        constexpr bool READS = decltype(reads)::value, WRITES = decltype(writes)::value;
        const int64_t row = row_of_first + ring.team;
        // In the last step the team may have no row.
        const int mine = !READS && row >= a.rows ? 0 : most;
        // Pass 2 asks for its numbers before pass 1 waits, where there are registers to keep them.
        constexpr bool EARLY = CHUNKS * V <= 16;
        uint4 *const dx = (uint4 *)((T *)a.dx + row * a.dx_stride) + begin + (int)threadIdx.x;
        rstd = rstd_ahead, rstd_ahead = rstd_next;
        if (READS && row + 2 * step < a.rows) rstd_next = rstd_of[row + 2 * step];
        float dot = 0, mean = 0;
#pragma unroll
        for (int t = 0; t < TILES + LEAD; t++) {
            const bool read = READS && t < TILES, write = WRITES && t >= LEAD;
            uint4 x_now[TILE], dy_now[TILE], x_before[TILE], dy_before[TILE];
            auto load_before = [&] {
#pragma unroll
                for (int k = 0; k < TILE; k++) {
                    x_before[k] = ring.load(ring.behind, 0, k);
                    dy_before[k] = ring.load(ring.behind, 1, k);
                }
            };
            if (write && EARLY) load_before();
            if (read) {
                barrier_wait(ring.full(ring.ahead), ring.ahead.parity);
#pragma unroll
                for (int k = 0; k < TILE; k++) {
                    x_now[k] = ring.load(ring.ahead, 0, k);
                    dy_now[k] = ring.load(ring.ahead, 1, k);
                }
                ring.ahead.next(stages);
            }
#pragma unroll
            for (int k = 0; read && k < TILE; k++) {
                const int c = t * TILE + k;
                float xv[V], dyv[V], more = dot;
                unpack<T>(xv, x_now[k]), unpack<T>(dyv, dy_now[k]);
#pragma unroll
                for (int j = 0; j < V; j++) more = fmaf(dyv[j] * w[c][j], xv[j], more);
                if (c < mine) dot = more;
            }
            if (write && t == LEAD) mean = ring.total() * per_col;
            if (write && !EARLY) load_before();
#pragma unroll
            for (int k = 0; write && k < TILE; k++) {
                const int c = (t - LEAD) * TILE + k;
                if (c >= mine) continue;
                float xv[V], dyv[V];
                unpack<T>(xv, x_before[k]), unpack<T>(dyv, dy_before[k]);
#pragma unroll
                for (int j = 0; j < V; j++) {
                    const float xhat = xv[j] * rstd;
                    xv[j] = rstd * fmaf(-xhat, mean, dyv[j] * w[c][j]); // dx
                    dw[c][j] = fmaf(dyv[j], ROUND ? rounded<T>(xhat) : xhat, dw[c][j]);
                }
                if (a.dx) dx[c * ring.threads] = pack<T>(xv);
            }
            if (write) ring.give_back();
        }
        if (READS) ring.send_sum(dot * rstd_ahead);
    });

    if (a.partial && first + ring.team < a.rows) {
        float *const partial = (float *)a.partial + (first + ring.team) * a.cols;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int64_t col = (int64_t)(begin + c * ring.threads + (int)threadIdx.x) * V;
            if (c < most)
#pragma unroll
                for (int j = 0; j < V; j += 4)
                    *(float4 *)(partial + col + j) =
                        make_float4(dw[c][j], dw[c][j + 1], dw[c][j + 2], dw[c][j + 3]);
        }
    }
    cluster_sync(); // no block ends while another may still send to it
#endif
}

template <class T, int CHUNKS, int TILE, int LEAD>
static cudaError_t add_ring(const Backward &a, const BackwardPlan &p, Launches *to)
{
    constexpr int TILES = CHUNKS / TILE; // as in forward_ring.cu
    static_assert(LEAD < TILES);
    if (p.threads > backward_ring_threads(CHUNKS) || p.stages <= TILES + LEAD ||
        p.stages > MOST_STAGES)
        return cudaErrorInvalidConfiguration;
    const size_t tile = (size_t)p.threads * TILE * 2 * 16;
    auto kernel = backward_ring<T, CHUNKS, TILE, LEAD, false>;
    if constexpr (sizeof(T) == 2) // in float32 there is nothing to round
        if (a.round) kernel = backward_ring<T, CHUNKS, TILE, LEAD, true>;
    return add_launch(kernel, dim3((unsigned)(ceil_div(p.partials, p.teams) * p.cluster)),
                      dim3((unsigned)p.threads + 32), RING_AT + tile * (size_t)p.stages, p.cluster,
                      true, to, a, p.stages, p.teams);
}

template <class T>
static cudaError_t add_of(const Backward &a, const BackwardPlan &p, Launches *to)
{
    auto is = [&](int chunks, int tile, int lead) {
        return p.chunks == chunks && p.tile_chunks == tile && p.lead == lead;
    };
    if constexpr (sizeof(T) == 4) {
        if (is(2, 1, 1)) return add_ring<T, 2, 1, 1>(a, p, to);
        if (is(3, 1, 0)) return add_ring<T, 3, 1, 0>(a, p, to);
        if (is(3, 1, 1)) return add_ring<T, 3, 1, 1>(a, p, to);
        if (is(4, 1, 0)) return add_ring<T, 4, 1, 0>(a, p, to);
        if (is(9, 1, 0)) return add_ring<T, 9, 1, 0>(a, p, to);
    } else {
        if (is(2, 1, 0)) return add_ring<T, 2, 1, 0>(a, p, to);
        if (is(3, 1, 0)) return add_ring<T, 3, 1, 0>(a, p, to);
        if (is(5, 1, 0)) return add_ring<T, 5, 1, 0>(a, p, to);
    }
    return cudaErrorInvalidConfiguration;
}

cudaError_t add_backward_ring(const Backward &a, const BackwardPlan &p, gd_dtype dtype,
                              Launches *to)
{
    if (dtype == GD_FLOAT32) return add_of<float>(a, p, to);
    if (dtype == GD_BFLOAT16) return add_of<__nv_bfloat16>(a, p, to);
    return add_of<__half>(a, p, to);
}

} // namespace gd_rms
