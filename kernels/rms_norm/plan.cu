// plan.cu - which kernel runs which size, with which launch parameters. The rules come from
// measurements on an H100 and an H200 (CUDA.md has the figures).
#include "rms_norm/plan.cuh"

#include <algorithm>

#include "row_ring.cuh"

namespace gd_rms
{

static int round_up(int64_t n, int multiple)
{
    return (int)(gd_ceil_div(n, multiple) * multiple);
}

// The smallest power of two, 4 to 32, that is at least n.
static int lanes_for(int64_t n)
{
    int lanes = 4;
    while (lanes < n && lanes < 32) lanes *= 2;
    return lanes;
}

// A row of a table: a value for sizes up to `size`.
struct UpTo {
    int64_t size;
    int value;
};
constexpr int64_t ANY = INT64_MAX;

template <int N>
static int look_up(const UpTo (&table)[N], int64_t size)
{
    int i = 0;
    while (size > table[i].size) i++;
    return table[i].value;
}

// Packs of a thread by those of a row, in forwards with a row to a block.
static const UpTo forward_two_loads[] = {{640, 2}, {2048, 4}, {ANY, 8}};      // for each pack
static const UpTo forward_two_loads_few[] = {{1024, 2}, {2048, 4}, {ANY, 8}}; // latency counts more
static const UpTo forward_float32[] = {{256, 2}, {512, 4}, {3584, 6}, {ANY, 8}};
static const UpTo forward_16_bits[] = {{192, 3}, {1280, 4}, {2304, 6}, {ANY, 8}};

// About 64 bytes of a row per thread (float32: up to 96): enough in flight to keep DRAM busy, in
// blocks small enough that a multiprocessor holds several, some reading while others write. A
// residual counts as well. Rows too wide for that take more per thread.
ForwardPlan plan_forward(const Sizes &s, bool adds)
{
    ForwardPlan p = {};
    const bool wide = s.pack_elements == 4; // float32 takes half the instructions for 16 bytes
    // Where x has at most 16 MB, a row's latency counts more than the bytes in flight.
    const bool small = s.rows * s.packs <= 1 << 20;
    // A warp has a row, or several rows, if a block for each would be too little work.
    int64_t narrow = 192;
    if (wide || s.rows < 16384) narrow = 128;
    if (adds || s.rows <= 1024) narrow = 64;
    if (s.packs <= narrow) {
        const bool two = s.packs <= 32 || adds || wide || (small && s.packs > 48);
        int each = s.packs <= 64 && two ? 2 : 4;
        if (s.packs > 128) each = 6;
        p.threads = 128, p.threads_per_row = lanes_for(gd_ceil_div(s.packs, each));
        p.chunks = each == 4 && s.packs <= 3 * p.threads_per_row ? 3 : each;
        // Three packs a thread where that leaves fewer lanes idle: of rows of 9 to 12 packs and 17
        // to 24.
        const int thirds = lanes_for(gd_ceil_div(s.packs, 3));
        if (!adds && s.packs <= 32 && 3 * thirds < 2 * p.threads_per_row)
            p.threads_per_row = thirds, p.chunks = 3;
        p.blocks = gd_ceil_div(s.rows, p.threads / p.threads_per_row);
        return p;
    }
    // A residual, or float32 x where y has 16 bits: each pack takes two loads.
    if (adds || (s.pack_bytes > 16 && s.packs <= 2048))
        p.chunks = s.rows <= 256 ? look_up(forward_two_loads_few, s.packs)
                                 : look_up(forward_two_loads, s.packs);
    else if (small && s.packs <= 2048)
        p.chunks = s.packs <= 512 || s.rows <= MULTIPROCESSORS ? 2 : 3;
    else
        p.chunks = look_up(wide ? forward_float32 : forward_16_bits, s.packs);
    p.threads = p.threads_per_row = round_up(gd_ceil_div(s.packs, p.chunks), 32);
    p.blocks = s.rows;
    return p;
}

// Whether so many blocks fit on a multiprocessor.
static bool fits(const BlockPlan &p, int blocks, const gd_cuda_limits &l)
{
    const int all = p.shared + 2 * BLOCK_SUMS * (int)sizeof(float), reserved = 1024;
    return all <= l.block_shared && blocks * (all + reserved) <= l.multiprocessor_shared &&
           blocks * p.threads <= l.multiprocessor_threads;
}

// Teams of so many threads, in a block of at most `threads`: of all heads for one or more tokens, or
// of a slice of the heads.
static void set_teams(BlockPlan *p, const Sizes &s, int team, int threads)
{
    const int heads = p->parts > 1 ? p->parts : (int)s.heads, most_teams = threads / team;
    p->team = team;
    p->slices = (int)gd_ceil_div(heads, most_teams), p->slice = (int)gd_ceil_div(heads, p->slices);
    p->tokens = most_teams / p->slice;
    p->threads = round_up(p->slice * p->tokens * team, 32);
    p->team_sums = round_up(team / 32, 4);
}

// Sets the number of stages of the pipeline (0: plain loads). At the end their shared memory holds the teams'
// sums of dw.
static void set_stages(BlockPlan *p, const Sizes &s, int stages)
{
    const int stage = p->chunks * s.pack_bytes * p->threads, teams = p->slice * p->tokens;
    p->async = stages > 0, p->stages = p->async ? stages : 1;
    p->shared = teams > 1 ? teams * p->part_packs * s.pack_elements * (int)sizeof(float) : 0;
    if (stages * stage > p->shared) p->shared = stages * stage;
}

// As many blocks as run at a time, and no more than the steps give work to equally.
static void set_blocks(BlockPlan *p, const Sizes &s, int64_t at_once)
{
    const int64_t steps = gd_ceil_div(s.rows / s.heads, p->tokens);
    const int64_t wanted = std::max<int64_t>(at_once / p->slices, 1);
    p->partials = gd_ceil_div(steps, gd_ceil_div(steps, wanted));
    p->blocks = p->partials * p->slices;
}

// Rows of up to 128 packs: one for a thread, which takes few registers, so that 768 threads fit on a
// multiprocessor. Wider rows: 384 threads with two packs, in one block, or up to 512 with two
// (float32: four). Two stages; but one for teams of more than 384 threads, whose registers hold much
// of a second: with more bytes in flight DRAM is slower (bfloat16 16384 x 8192: 0.89 of the ceiling,
// not 0.94), unless there are few in all (2048 x 8192: 0.88, not 0.84). By plain loads only registers
// hold bytes in flight, and so there are 512 threads in any case.
BlockPlan plan_block(const Sizes &s, const gd_cuda_limits &l)
{
    BlockPlan p = {};
    const int most_packs = BLOCK_ELEMENTS / s.pack_elements * BLOCK_THREADS;
    const bool whole = s.packs <= most_packs;
    if (!whole && s.heads > 1) return p;
    p.parts = whole ? 1 : (int)gd_ceil_div(s.packs, PART_PACKS);
    p.part_packs = (int)gd_ceil_div(s.packs, p.parts);
    static const UpTo chunks[] = {{128, 1}, {2 * BLOCK_THREADS, 2}, {ANY, 4}};
    p.chunks = look_up(chunks, p.part_packs);
    const int64_t share = gd_ceil_div(p.part_packs, p.chunks);
    const int team = share <= 32 ? lanes_for(share) : round_up(share, 32);
    // Of 384 threads a team of 193 to 256 would leave a third idle.
    const bool large = team > 384 || (whole && team > 192 && team <= 256) || !l.async_copies;
    int at_once = large || !whole ? BLOCK_THREADS : 384; // on a multiprocessor
    if (p.chunks == 1) at_once = 768;
    set_teams(&p, s, team, p.chunks == 1 || !whole ? at_once / 2 : at_once);
    const int blocks = at_once / p.threads;
    const bool few = s.rows * s.packs * s.pack_bytes <= 128 << 20;
    int stages = large && !few ? 1 : 2;
    if (!l.async_copies) stages = 0;
    for (set_stages(&p, s, stages); stages > 0 && !fits(p, blocks, l);) set_stages(&p, s, --stages);
    if (!fits(p, 1, l)) return {};
    set_blocks(&p, s, (int64_t)blocks * gd_cuda_plan_multiprocessors(&l));
    return p;
}

// The smallest cluster whose threads hold a row in few packs each; and enough stages for a row and
// `flight` bytes more. Where its blocks have few threads, two fit on a multiprocessor: one of 192
// threads has 0.60 of the speed at 8448 columns of 16 bits.
ClusterPlan plan_cluster(const Sizes &s, bool backward, const gd_cuda_limits &l)
{
    // Blocks by packs of a row, packs of a thread by packs of a block.
    static const UpTo backward_blocks[] = {{2880, 2}, {5760, 4}, {19200, 8}, {ANY, 16}};
    static const UpTo forward_blocks[] = {{4800, 2}, {8320, 4}, {16640, 8}, {ANY, 16}};
    static const UpTo backward_chunks[] = {{1440, 3}, {2400, 5}, {ANY, 9}};
    static const UpTo forward_chunks[] = {{2400, 5}, {ANY, 8}};
    ClusterPlan p = {};
    p.cluster = look_up(backward ? backward_blocks : forward_blocks, s.packs);
    const int64_t share = gd_ceil_div(s.packs, p.cluster);
    p.chunks = backward ? look_up(backward_chunks, share) : look_up(forward_chunks, share);
    int flight = p.cluster == 16 ? 64 : 52; // KB
    const bool two = backward && s.packs <= (s.pack_elements == 8 ? 1152 : 768);
    if (backward) flight = 88;
    if (two) flight = s.pack_elements == 8 ? 24 : 60;
    p.consumers = round_up(gd_ceil_div(share, p.chunks), 32);
    const int stage = p.consumers * s.pack_bytes;
    const int wanted = p.chunks + (backward ? 0 : 1) + (int)gd_ceil_div(flight * 1024, stage);
    p.stages = std::min({wanted, (l.block_shared - RING_AT) / stage, MOST_STAGES});
    // As many clusters as an H200 runs at the same time.
    const int at_once[] = {66, 30, 15, 7};
    p.clusters =
        std::min<int64_t>(s.rows, (two ? 2 : 1) * at_once[__builtin_ctz((unsigned)p.cluster) - 1]);
    p.blocks = p.clusters * p.cluster, p.threads = p.consumers + 32;
    p.shared = RING_AT + stage * p.stages;
    return p;
}

// Whether a row fits in the largest cluster, with one stage more than are held.
static bool cluster_fits(const Sizes &s, bool backward, const gd_cuda_limits &l)
{
    if (!l.bulk_copies || s.heads > 1) return false;
    const ClusterPlan p = plan_cluster(s, backward, l);
    int most_chunks = 8;
    if (backward) most_chunks = s.pack_elements == 4 ? 9 : 5;
    return p.cluster <= l.cluster && p.chunks <= most_chunks &&
           p.consumers <= most_consumers(p.chunks) && p.stages > p.chunks + (backward ? 0 : 1);
}

Kernel plan_kernel(const Sizes &s, bool backward, const gd_cuda_limits &l)
{
    if (s.packs == 0 || s.rows == 0 || s.rows > MOST_ROWS) return PLAIN;
    // A block holds a row; where too few such blocks would fit on a multiprocessor, a cluster does.
    const int narrow = s.pack_elements == 8 && s.heads == 1 ? 2304 : 4096;
    if (!backward && s.packs <= narrow) return BLOCK;
    if (backward && s.heads == 1 && s.rows <= FEW_ROWS && s.packs <= FEW_PACKS) return FEW;
    const bool clusters = cluster_fits(s, backward, l);
    if (backward && (s.packs <= 1024 || !clusters) && plan_block(s, l).blocks) return BLOCK;
    return clusters ? CLUSTER : PLAIN;
}

} // namespace gd_rms
