// forward_cluster.cu - the forward for rows too wide for a block.
//
// The rows come through the ring of ring.cuh, each shared by a cluster. Pass 1 sums the squares of
// a row's stages and sends each warp's sum to all blocks; pass 2 writes y (and x + residual) from
// the same stages and gives them back.
#include "rms_norm/ring.cuh"

namespace gd_rms
{

// CHUNKS: packs of a row per thread. One block per multiprocessor; without this launch bound the
// compiler leaves room for two, which have too few registers.
constexpr int LEAD = 1; // of the stages (ring.cuh)

template <class S, class B, bool ADD, int CHUNKS>
__global__ void __launch_bounds__(512 + 32, 1)
    forward_cluster_kernel(const __grid_constant__ Forward a, int stages)
{
#if GD_HOPPER
    constexpr int V = pack_size<S, B>;
    extern __shared__ __align__(128) char shared[];
    using Inputs = std::conditional_t<ADD, Ring<V, S, B>, Ring<V, S>>;
    Inputs ring(shared, stages, (int)(a.cols / V));
    const int begin = ring.begin, length = ring.length;
    const int64_t first = blockIdx.x / ring.blocks, step = gridDim.x / ring.blocks;
    auto inputs = [&](int64_t row, auto use) {
        const Row at(row);
        if constexpr (ADD)
            use({(const char *)(at.of<S>(a.at.residual, a.at.residual_stride) + begin * V),
                 (const char *)(at.of<B>(a.at.x, a.at.x_stride) + begin * V)});
        else
            use({(const char *)(at.of<S>(a.at.x, a.at.x_stride) + begin * V)});
    };
    using From = const char *const(&)[Inputs::INPUTS];
    const bool producer = ring.warp == ring.warps;
    const int64_t soon = first + ring.lane * step;
    let_next_start();
    if (producer && ring.lane < SOON && soon < a.rows && length > 0)
        inputs(soon, [&](From from) {
            bulk_prefetch(from[0], length * V * (int)sizeof(S));
            if (ADD) bulk_prefetch(from[Inputs::INPUTS - 1], length * V * (int)sizeof(B));
        });
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

    const int mine = ring.mine();
    float factor[CHUNKS][V];
    load_factors<B>(factor, a, a.at.weight, begin + (int)threadIdx.x, ring.threads, mine);
    // The input of a stage: x, or the sum. Beyond the row's end it is whatever the stage held
    // before.
    auto load = [&](const Place &place) {
        gd_raw_pack<S, V> x = ring.template load<S>(place, 0);
        if constexpr (ADD)
            x = add_pack<S, B, V>(x, ring.template load<B>(place, V * (int)sizeof(S)));
        return x;
    };
    walk_rows(first, a.rows, step, [&](int64_t row, auto reads, auto writes) {
        const Row at(row);
        float sum = 0, rstd = 0;
#pragma unroll
        for (int t = 0; t < CHUNKS + LEAD; t++) {
            const bool read = decltype(reads)::value && t < CHUNKS;
            const bool write = decltype(writes)::value && t >= LEAD;
            gd_raw_pack<S, V> now, before;
            if (write) before = load(ring.behind);
            if (read) {
                barrier_wait(ring.full(ring.ahead), ring.ahead.parity);
                now = load(ring.ahead);
                ring.ahead.next(stages);
                const float more = add_squares<S, V>(sum, now);
                if (t < mine) sum = more;
            }
            if (write && t == LEAD) {
                rstd = rstd_of(ring.total(), a);
                if (a.at.rstd && ring.rank == 0 && threadIdx.x == 0)
                    ((float *)a.at.rstd)[row] = rstd;
            }
            if (write && t - LEAD < mine) {
                const int c = t - LEAD, i = begin + c * ring.threads + (int)threadIdx.x;
                if (ADD)
                    *(gd_raw_pack<S, V> *)(at.of<S>(a.at.sum, a.at.sum_stride) + (int64_t)i * V) =
                        before;
                float y[V];
                norm_pack<S, B>(y, before, rstd, a.round, factor[c]);
                if (a.at.bias)
                    by_weight<B>(a.weight_dtype, [&](auto zero) {
                        add_bias(y, (const decltype(zero) *)a.at.bias, i);
                    });
                store_pack(at.of<B>(a.at.y, a.at.y_stride), i, y);
            }
            if (write) ring.give_back();
        }
        if (decltype(reads)::value) ring.send_sum(sum);
    });
    cluster_sync(); // no block exits while another may still send to it
#endif
}

template <class S, class B, bool ADD>
static cudaError_t by_chunks(const Forward &a, const ClusterPlan &p, cudaStream_t stream)
{
    constexpr int V = pack_size<S, B>;
    const Shape shape = ring_shape(p, ADD ? stage_bytes<V, S, B> : stage_bytes<V, S>);
    if (p.chunks == 5)
        return launch<forward_cluster_kernel<S, B, ADD, 5>>(shape, stream, a, p.stages);
    if (p.chunks == 8)
        return launch<forward_cluster_kernel<S, B, ADD, 8>>(shape, stream, a, p.stages);
    return cudaErrorInvalidConfiguration;
}

cudaError_t forward_cluster(const Forward &a, const ClusterPlan &plan, cudaStream_t stream)
{
    return by_types(a, [&](auto s, auto b) {
        using S = decltype(s);
        using B = decltype(b);
        return a.at.residual ? by_chunks<S, B, true>(a, plan, stream)
                             : by_chunks<S, B, false>(a, plan, stream);
    });
}

} // namespace gd_rms
