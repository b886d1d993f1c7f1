// backward_cluster.cu - dx and the partial sums of dw for rows too wide for a block.
//
// The rows come through the ring of row_ring.cuh, with x, dy and dsum side by side in a stage. Pass 1
// sums h x; pass 2 writes dx and adds to dw. The consumers keep factor and the sums of dw for their
// columns in registers from the first row to the last.
#include "rms_norm/kernels.cuh"
#include "row_ring.cuh"

namespace gd_rms
{

#if GD_HOPPER

template <class S, class B, bool ADD, int CHUNKS_>
struct BackwardWork {
    static constexpr int CHUNKS = CHUNKS_, LEAD = 0, V = pack_size<S, B>;
    static constexpr int DY_AT = V * (int)sizeof(S), DSUM_AT = DY_AT + V * (int)sizeof(B);
    // Pass 2 loads its numbers before pass 1 waits, if there are registers to hold them.
    static constexpr bool EARLY = CHUNKS * V <= 16;
    struct Packs {
        gd_raw<S, V> x;
        gd_raw<B, V> dy;
    };
    using Inputs = std::conditional_t<ADD, Ring<V, S, B, S>, Ring<V, S, B>>;
    const Backward &a;
    const Inputs &ring;
    float factor[CHUNKS][V], dw[CHUNKS][V];
    float next_rstd, rstd, rstd2_m; // next_rstd is loaded a row ahead

    __device__ Packs load(const RingPlace &place) const
    {
        return {ring.template load<S>(place, 0), ring.template load<B>(place, DY_AT)};
    }
    __device__ float add(float sum, const Packs &p, int c) const
    {
        return add_products<S, B, V>(sum, p.x, p.dy, factor[c]);
    }
    __device__ void begin(int64_t row, float sum)
    {
        rstd = next_rstd;
        if (row + ring.step < ring.rows) next_rstd = ((const float *)a.rstd)[row + ring.step];
        rstd2_m = rstd * rstd * (sum * rstd * a.per_col);
    }
    __device__ void write(int64_t row, int i, const Packs &p, int c)
    {
        const Row at(row);
        float dx[V];
        gradient_pack<S, B>(dx, dw[c], p.x, p.dy, factor[c], rstd, rstd2_m, a.round_before_weight);
        gd_raw<S, V> dsum = {};
        if (ADD) dsum = ring.template load<S>(ring.behind, DSUM_AT);
        store_gradient<S, B, ADD>(a, at.of<S>(a.dx, a.dx_stride),
                                  at.of<B>(a.dbranch, a.dbranch_stride), i, dx, dsum);
    }
};

#endif

// CHUNKS: packs of a row per thread. One block per multiprocessor, as in forward_cluster.cu.
template <class S, class B, bool ADD, int CHUNKS>
__global__ void GD_LAUNCH_BOUNDS(most_consumers(CHUNKS) + 32, 1)
    backward_cluster_kernel(const __grid_constant__ Backward a, int stages)
{
#if GD_HOPPER
    using Work = BackwardWork<S, B, ADD, CHUNKS>;
    extern __shared__ __align__(128) char shared[];
    typename Work::Inputs ring(shared, stages, a.rows, a.cols);
    const Input inputs[] = {{a.x, a.x_stride}, {a.dy, a.dy_stride}, {a.dsum, a.dsum_stride}};
    ring.start(inputs);
    if (ring.is_producer()) return ring.produce(inputs, CHUNKS, a.keep);

    Work work = {a, ring, {}, {}, 0, 0, 0};
    const int mine = ring.mine(), begin = ring.begin + (int)threadIdx.x;
    load_factors<B>(work.factor, a, a.weight, begin, ring.threads, mine);
    if (ring.first < ring.rows) work.next_rstd = ((const float *)a.rstd)[ring.first];
    process_rows(work, ring);
    if (a.dweight && ring.first < ring.rows) {
        float *const partial = (float *)a.workspace + ring.first * a.cols;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (c < mine) store_sums(partial, begin + c * ring.threads, work.dw[c]);
    }
    cluster_sync(); // no block exits while another may still send to it
#endif
}

cudaError_t backward_cluster(const Backward &a, const ClusterPlan &p, cudaStream_t stream)
{
    return by_inputs(a, a.dsum, [&](auto s, auto b, auto add) {
        using S = decltype(s);
        using B = decltype(b);
        constexpr bool ADD = decltype(add)::value;
        const auto run = [&](auto chunks) {
            constexpr int CHUNKS = decltype(chunks)::value;
            return launch<backward_cluster_kernel<S, B, ADD, CHUNKS>>(p, stream, a, p.stages);
        };
        if constexpr (pack_size<S, B> == 4)
            return by_number<3, 5, 9>(p.chunks, run);
        else
            return by_number<3, 5>(p.chunks, run);
    });
}

} // namespace gd_rms
