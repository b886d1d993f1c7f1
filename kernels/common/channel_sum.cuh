// channel_sum.cuh - K sums over each channel of x [B, C, S].
//
// A block's 256 threads are teams of `lanes` threads, one for each channel. The places of a channel
// are read by packs, a unit being the 4 packs of each lane that lie side by side in one example. The
// units are divided into pieces, a block for each; the pieces' sums [K, pieces, C] are added by
// gd_add_pieces, a warp for each channel. Pieces, units and teams depend only on the sizes and on V.
#ifndef GD_CHANNEL_SUM_CUH
#define GD_CHANNEL_SUM_CUH

#include "row_team.cuh"

enum { GD_CHANNEL_THREADS = 256, GD_CHANNEL_PACKS = 4 };

struct gd_channel_plan {
    int64_t B, C, S;
    int lanes;       // of a team: 1 to 32, or the whole block
    int64_t units;   // of an example
    int64_t pieces;  // of all units
    int64_t columns; // blocks side by side
};

static inline gd_channel_plan gd_plan_channels(int64_t B, int64_t C, int64_t S, int V)
{
    const int64_t packs = S / V, enough_blocks = 1024, most_pieces = 256;
    gd_channel_plan p = {B, C, S, 1, 0, 0, 0};
    while (p.lanes < 32 && p.lanes < packs) p.lanes *= 2;
    if (packs > 4 * 32) p.lanes = GD_CHANNEL_THREADS;
    p.units = gd_ceil_div(packs, (int64_t)p.lanes * GD_CHANNEL_PACKS);
    p.columns = gd_ceil_div(C, GD_CHANNEL_THREADS / p.lanes);
    p.pieces = p.columns ? gd_ceil_div(enough_blocks, p.columns) : 1;
    if (p.pieces > most_pieces) p.pieces = most_pieces;
    if (p.pieces > B * p.units) p.pieces = B * p.units;
    if (p.pieces < 1) p.pieces = 1;
    return p;
}

// value.add<V>(channel, i, sum) adds the terms of elements i ... i + V - 1 to sum[0 ... K - 1].
template <int K, int V, class C, class Value>
__global__ static void __launch_bounds__(GD_CHANNEL_THREADS)
    gd_sum_channels(C *partial, gd_channel_plan p, Value value)
{
    __shared__ C shared[32];
    const int lane = (int)threadIdx.x % p.lanes, team = (int)threadIdx.x / p.lanes;
    const int64_t channel = (int64_t)blockIdx.x * (GD_CHANNEL_THREADS / p.lanes) + team;
    const int64_t packs = p.S / V, all = p.B * p.units;
    const int64_t end = all * (blockIdx.y + 1) / p.pieces;
    C sum[K] = {};
    if (channel < p.C) {
#pragma unroll 2
        for (int64_t unit = all * blockIdx.y / p.pieces; unit < end; unit++) {
            const int64_t b = unit / p.units, first = (unit - b * p.units) * p.lanes;
            const int64_t row = (b * p.C + channel) * p.S;
#pragma unroll
            for (int k = 0; k < GD_CHANNEL_PACKS; k++) {
                const int64_t pack = first * GD_CHANNEL_PACKS + k * p.lanes + lane;
                if (pack < packs) value.template add<V>(channel, row + pack * V, sum);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        sum[k] = p.lanes > 32 ? gd_block_reduce(sum[k], shared, gd_plus())
                              : gd_lane_sum(sum[k], (unsigned)p.lanes);
        if (lane == 0 && channel < p.C)
            partial[(k * p.pieces + blockIdx.y) * p.C + channel] = sum[k];
    }
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
        sum[k] = gd_warp_reduce(own, gd_plus());
    }
}

// A warp for each channel: blocks of 256 threads, and for (channel of this warp).
static inline unsigned gd_channel_warps(int64_t C)
{
    return gd_blocks(C, GD_CHANNEL_THREADS / 32);
}
#define GD_EACH_CHANNEL(channel, C)                                                              \
    for (int64_t channel = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; channel < (C); \
         channel += (int64_t)gridDim.x * (GD_CHANNEL_THREADS / 32))

#endif
