// forward_cluster.cu - the forward for rows too wide for a block.
//
// The rows come through the ring of row_ring.cuh. Pass 1 sums the squares; pass 2 writes y (and x +
// residual).
#include "rms_norm/kernels.cuh"
#include "row_ring.cuh"

namespace gd_rms
{

#if GD_HOPPER

template <class S, class B, bool ADD, int CHUNKS_>
struct ForwardWork {
    static constexpr int CHUNKS = CHUNKS_, LEAD = 1, V = pack_size<S, B>;
    static constexpr bool EARLY = true;
    using Packs = gd_raw<S, V>; // x, or the sum
    using Inputs = std::conditional_t<ADD, Ring<V, S, B>, Ring<V, S>>;
    const Forward &a;
    const Inputs &ring;
    float factor[CHUNKS][V], rstd;

    __device__ Packs load(const RingPlace &place) const
    {
        Packs x = ring.template load<S>(place, 0);
        if constexpr (ADD)
            x = add_pack<S, B, V>(x, ring.template load<B>(place, V * (int)sizeof(S)));
        return x;
    }
    __device__ float add(float sum, const Packs &x, int) const
    {
        return add_squares<S, V>(sum, x);
    }
    __device__ void begin(int64_t row, float sum)
    {
        rstd = rstd_of(sum, a);
        if (a.rstd && ring.rank == 0 && threadIdx.x == 0) ((float *)a.rstd)[row] = rstd;
    }
    __device__ void write(int64_t row, int i, const Packs &x, int c) const
    {
        const Row at(row);
        if (ADD) x.store(at.of<S>(a.sum, a.sum_stride), i);
        float y[V];
        norm_pack<S, B>(y, x, rstd, a.round_before_weight, factor[c]);
        if (a.bias)
            by_weight<B>(a.weight_dtype,
                         [&](auto zero) { add_bias(y, (const decltype(zero) *)a.bias, i); });
        gd_raw<B, V>::narrow(y).store(at.of<B>(a.y, a.y_stride), i);
    }
};

#endif

// CHUNKS: packs of a row per thread. One block per multiprocessor; without this launch bound the
// compiler leaves room for two, which have too few registers.
template <class S, class B, bool ADD, int CHUNKS>
__global__ void GD_LAUNCH_BOUNDS(512 + 32, 1)
    forward_cluster_kernel(const __grid_constant__ Forward a, int stages)
{
#if GD_HOPPER
    using Work = ForwardWork<S, B, ADD, CHUNKS>;
    extern __shared__ __align__(128) char shared[];
    typename Work::Inputs ring(shared, stages, a.rows, a.cols);
    const Input x = {a.x, a.x_stride}, residual = {a.residual, a.residual_stride};
    const Input inputs[] = {ADD ? residual : x, x};
    ring.start(inputs);
    if (ring.is_producer()) return ring.produce(inputs, CHUNKS, a.keep);

    Work work = {a, ring, {}, 0};
    load_factors<B>(work.factor, a, a.weight, ring.begin + (int)threadIdx.x, ring.threads,
                    ring.mine());
    process_rows(work, ring);
    cluster_sync(); // no block exits while another may still send to it
#endif
}

cudaError_t forward_cluster(const Forward &a, const ClusterPlan &p, cudaStream_t stream)
{
    return by_inputs(a, a.residual, [&](auto s, auto b, auto add) {
        using S = decltype(s);
        using B = decltype(b);
        constexpr bool ADD = decltype(add)::value;
        return by_number<5, 8>(p.chunks, [&](auto chunks) {
            constexpr int CHUNKS = decltype(chunks)::value;
            return launch<forward_cluster_kernel<S, B, ADD, CHUNKS>>(p, stream, a, p.stages);
        });
    });
}

} // namespace gd_rms
