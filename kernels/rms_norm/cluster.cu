// cluster.cu - forward and backward of wide rows, each shared by a cluster of blocks, or
// of one alone.
//
// The rows come through the ring of row_ring.cuh, whose stages have all inputs side by side.
// Pass 1 of the forward sums the squares; pass 2 writes y (and x + residual). Pass 1 of the
// backward sums h x; pass 2 writes dx and adds to dw, whose sums stay in registers from the
// first row to the last.
#include "rms_norm/kernels.cuh"
#include "row_ring.cuh"

namespace gd_rms
{

template <class S, class B, bool ADD, int CHUNKS_>
struct ForwardWork {
    using Call = Forward;
    static constexpr int CHUNKS = CHUNKS_, LEAD = 1, V = pack_size<S, B>, MOST_THREADS = 512;
    static constexpr bool EARLY = true;
    using Packs = gd_raw<S, V>; // x, or the sum
    using Inputs = std::conditional_t<ADD, Ring<V, S, B>, Ring<V, S>>;
    const Forward &a;
    const Inputs &ring;
    float w[CHUNKS][V], rstd;

    __device__ static void inputs(Input *to, const Forward &a)
    {
        to[ADD] = {a.x, a.x_stride};
        if (ADD) to[0] = {a.residual, a.residual_stride};
    }
    __device__ void start()
    {
        load_w<B>(w, a, a.weight, 0, ring.begin + (int)threadIdx.x, ring.threads, ring.mine());
    }
    __device__ Packs load(const RingPlace &place) const
    {
        Packs x = ring.template load<S>(place, 0);
        if constexpr (ADD)
            x = sum_pack<S, B, V>(x, ring.template load<B>(place, V * (int)sizeof(S)));
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
    __device__ void write(int64_t row, int i, const Packs &x, int k) const
    {
        const Row at(row);
        if (ADD) x.store(at.of<S>(a.sum, a.sum_stride), i);
        float y[V];
        norm_pack<S, B>(y, x, rstd, a.round_before_weight, w[k]);
        if (a.bias)
            by_weight<B>(a.weight_dtype, [&](auto zero) {
                using W = decltype(zero);
                add_pack(y, load_weight<W, V>((const W *)a.bias, i));
            });
        gd_raw<B, V>::narrow(y).store(at.of<B>(a.y, a.y_stride), i);
    }
    __device__ void end() const {}
};

template <class S, class B, bool ADD, int CHUNKS_>
struct BackwardWork {
    using Call = Backward;
    static constexpr int CHUNKS = CHUNKS_, LEAD = 0, V = pack_size<S, B>;
    static constexpr int MOST_THREADS = most_consumers(CHUNKS);
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
    float w[CHUNKS][V], rstd, c;
    float dw[CHUNKS][V] = {}, next_rstd = 0; // that of the next row, loaded ahead

    __device__ static void inputs(Input *to, const Backward &a)
    {
        to[0] = {a.x, a.x_stride}, to[1] = {a.dy, a.dy_stride};
        if (ADD) to[2] = {a.dsum, a.dsum_stride};
    }
    __device__ Packs load(const RingPlace &place) const
    {
        return {ring.template load<S>(place, 0), ring.template load<B>(place, DY_AT)};
    }
    __device__ float add(float sum, const Packs &p, int k) const
    {
        return add_products<S, B, V>(sum, p.x, p.dy, w[k]);
    }
    __device__ void start()
    {
        load_w<B>(w, a, a.weight, 0, ring.begin + (int)threadIdx.x, ring.threads, ring.mine());
        if (ring.first < ring.rows) next_rstd = ((const float *)a.rstd)[ring.first];
    }
    __device__ void begin(int64_t row, float sum)
    {
        rstd = next_rstd;
        if (row + ring.step < ring.rows) next_rstd = ((const float *)a.rstd)[row + ring.step];
        c = rstd * rstd * (sum * rstd * a.per_col);
    }
    __device__ void write(int64_t row, int i, const Packs &p, int k)
    {
        const Row at(row);
        float dx[V];
        gradient_pack<S, B>(dx, dw[k], p.x, p.dy, w[k], rstd, c, a.round_before_weight);
        gd_raw<S, V> dsum = {};
        if (ADD) dsum = ring.template load<S>(ring.behind, DSUM_AT);
        store_gradient<S, B, ADD>(a, at.of<S>(a.dx, a.dx_stride),
                                  at.of<B>(a.dbranch, a.dbranch_stride), i, dx, dsum);
    }
    __device__ void end() const
    {
        if (!a.dweight || ring.first >= ring.rows) return;
        float *const partial = (float *)a.workspace + ring.first * a.cols;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++)
            if (k < ring.mine())
                store_sums(partial, ring.begin + (int)threadIdx.x + k * ring.threads, dw[k]);
    }
};

// One block per multiprocessor; without this launch bound the compiler leaves room for two, which
// have too few registers.
template <class Work>
__global__ void GD_LAUNCH_BOUNDS(Work::MOST_THREADS + 32, 1)
    cluster_kernel(const __grid_constant__ typename Work::Call a, int stages)
{
#if GD_HOPPER
    extern __shared__ __align__(128) char shared[];
    typename Work::Inputs ring(shared, stages, a.rows, a.cols);
    Input inputs[3] = {};
    Work::inputs(inputs, a);
    ring.start(inputs);
    if (ring.is_producer()) return ring.produce(inputs, Work::CHUNKS, a.keep);

    Work work = {a, ring};
    work.start();
    process_rows(work, ring);
    work.end();
    cluster_sync(); // no block exits while another may still send to it
#endif
}

cudaError_t forward_cluster(const Forward &a, const ClusterPlan &p, cudaStream_t stream)
{
    return by_inputs(a, a.residual, [&](auto s, auto b, auto add) {
        return by_number<5, 8>(p.chunks, [&](auto chunks) {
            using Work = ForwardWork<decltype(s), decltype(b), add.value, chunks.value>;
            return launch<cluster_kernel<Work>>(p, stream, a, p.stages);
        });
    });
}

cudaError_t backward_cluster(const Backward &a, const ClusterPlan &p, cudaStream_t stream)
{
    return by_inputs(a, a.dsum, [&](auto s, auto b, auto add) {
        const auto run = [&](auto chunks) {
            using Work = BackwardWork<decltype(s), decltype(b), add.value, chunks.value>;
            return launch<cluster_kernel<Work>>(p, stream, a, p.stages);
        };
        if constexpr (pack_size<decltype(s), decltype(b)> == 4)
            return by_number<2, 3, 5, 9>(p.chunks, run);
        else
            return by_number<2, 3, 5>(p.chunks, run);
    });
}

} // namespace gd_rms
