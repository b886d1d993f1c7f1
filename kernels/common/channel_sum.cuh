// channel_sum.cuh - K sums over each channel of x [B, C, S].
//
// A block's 256 threads are teams of `lanes` threads, one for each channel. The places of a channel
// are read by packs, a unit being the 4 packs of each lane that lie side by side in one
// example. The units are divided into pieces, a block for each; the pieces' sums [K, pieces, C]
// are added by gd_add_pieces, a warp for each channel. Pieces, units and teams depend only on
// the sizes and on V.
#ifndef GD_CHANNEL_SUM_CUH
#define GD_CHANNEL_SUM_CUH

#include "team.cuh"

enum { GD_CHANNEL_PACKS = 4 };

struct gd_channel_plan {
    int64_t B, C, S;
    int lanes;       // of a team: a power of 2, up to the whole block
    int64_t units;   // of an example
    int64_t pieces;  // of all units
    int64_t columns; // blocks side by side
};

static inline gd_channel_plan gd_plan_channels(int64_t B, int64_t C, int64_t S, int V)
{
    // Several waves of blocks: the last one may have few.
    const int64_t packs = S / V, enough_blocks = 4096, most_pieces = 256;
    gd_channel_plan p = {B, C, S, 1, 0, 0, 0};
    while (p.lanes < gd_threads && p.lanes * GD_CHANNEL_PACKS < packs) p.lanes *= 2;
    p.units = gd_ceil_div(packs, (int64_t)p.lanes * GD_CHANNEL_PACKS);
    p.columns = gd_ceil_div(C, gd_threads / p.lanes);
    p.pieces = p.columns ? gd_ceil_div(enough_blocks, p.columns) : 1;
    if (p.pieces > most_pieces) p.pieces = most_pieces;
    if (p.pieces > B * p.units) p.pieces = B * p.units;
    if (p.pieces < 1) p.pieces = 1;
    return p;
}

static inline gd_grid gd_channel_blocks(const gd_channel_plan &p)
{
    return {{(unsigned)p.columns, (unsigned)p.pieces}, gd_threads};
}

// This thread's part of the plan: its channel, and the units of its block's piece.
struct gd_channel_work {
    int lane;
    int64_t channel, begin, end;

    __device__ gd_channel_work(const gd_channel_plan &p, int64_t piece)
    {
        const int teams = gd_threads / p.lanes;
        const int64_t all = p.B * p.units;
        lane = (int)threadIdx.x % p.lanes;
        channel = (int64_t)blockIdx.x * teams + threadIdx.x / p.lanes;
        begin = all * piece / p.pieces, end = all * (piece + 1) / p.pieces;
    }
};

// Unit `unit` of a channel: its thread's first element, and how many packs the row has from there
// on. The next pack is p.lanes further.
template <int V>
struct gd_channel_unit {
    int64_t first;
    int packs;

    __device__ gd_channel_unit(const gd_channel_plan &p, const gd_channel_work &work, int64_t unit)
    {
        const int64_t b = p.units == 1 ? unit : unit / p.units; // a division takes long
        const int64_t pack = (unit - b * p.units) * p.lanes * GD_CHANNEL_PACKS + work.lane;
        first = (b * p.C + work.channel) * p.S + pack * V;
        packs = (int)min(p.S / V - pack, (int64_t)p.lanes * GD_CHANNEL_PACKS);
    }
};

// value.load<V>(i) is what is read of elements i ... i + V - 1, and value.add<V>(channel, that,
// sum) adds their terms to sum[0 ... K - 1].
template <int K, int V, class C, class Value>
__global__ static void __launch_bounds__(gd_threads)
    gd_sum_channels(C *partial, gd_channel_plan p, Value value)
{
    gd_in_turn();
    __shared__ C shared[K][gd_threads / 32];
    const gd_channel_work work(p, blockIdx.y);
    C sum[K] = {};
    if (work.channel < p.C) {
        for (int64_t unit = work.begin; unit < work.end; unit++) {
            const gd_channel_unit<V> at(p, work, unit);
            typename Value::template packs<V> own[GD_CHANNEL_PACKS];
#pragma unroll
            for (int k = 0; k < GD_CHANNEL_PACKS; k++)
                if (k * p.lanes < at.packs)
                    own[k] = value.template load<V>(at.first + k * p.lanes * V);
#pragma unroll
            for (int k = 0; k < GD_CHANNEL_PACKS; k++)
                if (k * p.lanes < at.packs) value.template add<V>(work.channel, own[k], sum);
        }
    }
    const int warp = (int)threadIdx.x / 32, warps = p.lanes / 32;
#pragma unroll
    for (int k = 0; k < K; k++) {
        sum[k] = gd_sum(sum[k], (unsigned)min(p.lanes, 32));
        if (threadIdx.x % 32 == 0) shared[k][warp] = sum[k];
    }
    if (warps > 1) __syncthreads();
    if (work.lane > 0 || work.channel >= p.C) return;
#pragma unroll
    for (int k = 0; k < K; k++) {
        for (int w = warp + 1; w < warp + warps; w++) sum[k] += shared[k][w];
        partial[(k * p.pieces + blockIdx.y) * p.C + work.channel] = sum[k];
    }
}

// The sums of all pieces, [K, pieces, C], of `value` on x [B, C, S], by packs if that is `packed`.
// NULL: no memory, or no launch.
template <int K, class T, class Value>
static gd_compute<T> *gd_channel_sums(const gd_call *call, int64_t B, int64_t C, int64_t S,
                                      bool packed, const Value &value, int64_t *pieces)
{
    constexpr int V = 16 / sizeof(T);
    const gd_channel_plan p = gd_plan_channels(B, C, S, packed ? V : 1);
    auto *partial =
        (gd_compute<T> *)gd_call_scratch(call, K * (size_t)(p.pieces * C) * sizeof(gd_compute<T>));
    *pieces = p.pieces;
    if (!partial) return nullptr;
    const auto kernel = packed ? gd_sum_channels<K, V, gd_compute<T>, Value>
                               : gd_sum_channels<K, 1, gd_compute<T>, Value>;
    return gd_launch(call, gd_channel_blocks(p), kernel, partial, p, value) ? nullptr : partial;
}

// sum[k] = that of all pieces; for a warp of each channel, all of whose lanes get it.
template <int K, class C>
__device__ inline void gd_add_pieces(C (&sum)[K], const C *partial, int64_t pieces,
                                     int64_t channels, int64_t channel)
{
    for (int k = 0; k < K; k++) {
        C own = 0;
        for (int64_t piece = threadIdx.x % 32; piece < pieces; piece += 32)
            own += partial[(k * pieces + piece) * channels + channel];
        sum[k] = gd_sum(own);
    }
}

#endif
