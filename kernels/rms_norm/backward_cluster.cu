// backward_cluster.cu - dx and the partial sums of dw for rows too wide for a block.
//
// The rows come through the ring of ring.cuh, with x, dy and dsum side by side in a stage. The
// consumers keep factor and the sums of dw for their columns in registers from the first row to the
// last. DRAM is read once:
//   pass 1: each warp sums h * xhat over its columns and sends the sum to every block of the
//           cluster (st.async: the value, and its 4 bytes counted on a barrier there);
//   pass 2: when all warps' sums have arrived, each warp adds them, in the same order everywhere,
//           writes dx, adds to dw, and releases the stages.
// The loop has no barrier over the whole block.
#include "rms_norm/ring.cuh"

namespace gd_rms
{

// CHUNKS: packs of a row per thread. One block per multiprocessor, as in forward_cluster.cu.
constexpr int LEAD = 0; // of the stages (ring.cuh)

template <class S, class B, bool ADD, int CHUNKS>
__global__ void __launch_bounds__(cluster_threads(CHUNKS) + 32, 1)
    backward_cluster_kernel(const __grid_constant__ Backward a, int stages)
{
#if GD_HOPPER
    constexpr int V = pack_size<S, B>, DY_AT = V * (int)sizeof(S),
                  DSUM_AT = DY_AT + V * (int)sizeof(B);
    extern __shared__ __align__(128) char shared[];
    using Inputs = std::conditional_t<ADD, Ring<V, S, B, S>, Ring<V, S, B>>;
    Inputs ring(shared, stages, (int)(a.cols / V));
    const int begin = ring.begin, length = ring.length;
    const int64_t first = blockIdx.x / ring.blocks, step = gridDim.x / ring.blocks;
    using From = const char *const(&)[Inputs::INPUTS];
    auto inputs = [&](int64_t row, auto use) {
        const Row at(row);
        const char *x = (const char *)(at.of<S>(a.at.x, a.at.x_stride) + begin * V);
        const char *dy = (const char *)(at.of<B>(a.at.dy, a.at.dy_stride) + begin * V);
        if constexpr (ADD)
            use({x, dy, (const char *)(at.of<S>(a.at.dsum, a.at.dsum_stride) + begin * V)});
        else
            use({x, dy});
    };
    const bool producer = ring.warp == ring.warps;
    let_next_start();
    const int64_t soon = first + ring.lane * step;
    if (producer && ring.lane < SOON && soon < a.rows && length > 0) {
        inputs(soon, [&](From from) {
            bulk_prefetch(from[0], length * V * (int)sizeof(S));
            bulk_prefetch(from[1], length * V * (int)sizeof(B));
            if (ADD) bulk_prefetch(from[Inputs::INPUTS - 1], length * V * (int)sizeof(S));
        });
        line_prefetch((const float *)a.at.rstd + soon);
    }
    wait_for_previous();

    if (producer) {
        if (ring.lane == 0) {
            Place place = {0, 1};
            const uint64_t policy = load_policy(a.keep);
            for (int64_t row = first; row < a.rows; row += step)
                inputs(row, [&](From from) { ring.fetch(place, from, CHUNKS, policy); });
        }
        __syncwarp();
        cluster_sync();
        return;
    }

    float factor[CHUNKS][V], dw[CHUNKS][V];
    const int mine = ring.mine();
    load_factors<B>(factor, a, a.at.weight, begin + (int)threadIdx.x, ring.threads, mine);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int j = 0; j < V; j++) dw[c][j] = 0;
    const float *const rstds = (const float *)a.at.rstd;

    // rstd of pass 2, of pass 1, and of pass 1 in the next step: it is loaded a step ahead.
    float rstd = 0, rstd_ahead = 0, rstd_next = first < a.rows ? rstds[first] : 0.0f;
    walk_rows(first, a.rows, step, [&](int64_t row, auto reads, auto writes) {
        constexpr bool READS = decltype(reads)::value, WRITES = decltype(writes)::value;
        // Pass 2 loads its numbers before pass 1 waits, if there are registers to hold them.
        constexpr bool EARLY = CHUNKS * V <= 16;
        const Row at(row);
        rstd = rstd_ahead, rstd_ahead = rstd_next;
        if (READS && row + 2 * step < a.rows) rstd_next = rstds[row + 2 * step];
        float dot = 0, fold = 0;
#pragma unroll
        for (int t = 0; t < CHUNKS + LEAD; t++) {
            const bool read = READS && t < CHUNKS, write = WRITES && t >= LEAD;
            gd_raw_pack<S, V> x_before;
            gd_raw_pack<B, V> dy_before;
            auto load_before = [&] {
                x_before = ring.template load<S>(ring.behind, 0);
                dy_before = ring.template load<B>(ring.behind, DY_AT);
            };
            if (write && EARLY) load_before();
            if (read) {
                barrier_wait(ring.full(ring.ahead), ring.ahead.parity);
                const gd_raw_pack<S, V> x = ring.template load<S>(ring.ahead, 0);
                const gd_raw_pack<B, V> dy = ring.template load<B>(ring.ahead, DY_AT);
                ring.ahead.next(stages);
                const float more = add_products<S, B, V>(dot, x, dy, factor[t]);
                if (t < mine) dot = more;
            }
            if (write && t == LEAD) fold = rstd * rstd * (ring.total() * a.per_col);
            if (write && !EARLY) load_before();
            if (write && t - LEAD < mine) {
                const int c = t - LEAD, i = begin + c * ring.threads + (int)threadIdx.x;
                float dx[V];
                gradient_pack<S, B>(dx, dw[c], x_before, dy_before, factor[c], rstd, fold, a.round);
                gd_raw_pack<S, V> dsum = {};
                if (ADD) dsum = ring.template load<S>(ring.behind, DSUM_AT);
                store_gradient<S, B, ADD>(a, at.of<S>(a.at.dx, a.at.dx_stride),
                                          at.of<B>(a.at.dbranch, a.at.dbranch_stride), i, dx, dsum);
            }
            if (write) ring.give_back();
        }
        if (READS) ring.send_sum(dot * rstd_ahead);
    });

    if (a.partial && first < a.rows) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (c < mine)
                store_sums((float *)a.partial + first * a.cols,
                           begin + c * ring.threads + (int)threadIdx.x, dw[c]);
    }
    cluster_sync(); // no block exits while another may still send to it
#endif
}

template <class S, class B, bool ADD>
static cudaError_t by_chunks(const Backward &a, const ClusterPlan &p, cudaStream_t stream)
{
    constexpr int V = pack_size<S, B>;
    const Shape shape = ring_shape(p, ADD ? stage_bytes<V, S, B, S> : stage_bytes<V, S, B>);
    if (p.chunks == 3)
        return launch<backward_cluster_kernel<S, B, ADD, 3>>(shape, stream, a, p.stages);
    if (p.chunks == 5)
        return launch<backward_cluster_kernel<S, B, ADD, 5>>(shape, stream, a, p.stages);
    if constexpr (V == 4)
        if (p.chunks == 9)
            return launch<backward_cluster_kernel<S, B, ADD, 9>>(shape, stream, a, p.stages);
    return cudaErrorInvalidConfiguration;
}

cudaError_t backward_cluster(const Backward &a, const ClusterPlan &plan, cudaStream_t stream)
{
    return by_types(a, [&](auto s, auto b) {
        using S = decltype(s);
        using B = decltype(b);
        return a.at.dsum ? by_chunks<S, B, true>(a, plan, stream)
                         : by_chunks<S, B, false>(a, plan, stream);
    });
}

} // namespace gd_rms
