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
    adds |= s.spread; // for fewer variants: in as many blocks N = 1001 is as fast
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

// Memory that delivers 30 KB in a us to each multiprocessor, as an H200's does (36) and an H100's
// does not (25). Rules for it were measured on both; on an H100 they lose up to 0.06.
static bool fast_memory(const gd_cuda_limits &l)
{
    return l.multiprocessor_bytes >= 30 * 1024;
}

// So much shared memory for a block that no more than `blocks` fit on a multiprocessor: persistent
// blocks, which start while others end, would otherwise be two on one and none on another (float32
// 2560: 0.78 of the ceiling, not 0.93; on an H100 0.93, not 0.98).
static int spread(int shared, int blocks, const gd_cuda_limits &l)
{
    const int most = l.block_shared - 1024; // some is static
    return std::max(shared, std::min(l.multiprocessor_shared / (blocks + 1) + 1, most));
}

// Whether so many blocks fit on a multiprocessor.
static bool fits(const BlockPlan &p, int blocks, const gd_cuda_limits &l)
{
    const int all = p.shared + 2 * BLOCK_SUMS * (int)sizeof(float), reserved = 1024;
    return all <= l.block_shared && blocks * (all + reserved) <= l.multiprocessor_shared &&
           blocks * p.threads <= l.multiprocessor_threads;
}

// Teams of so many threads, in a block of at most `threads`: of all heads for one or more tokens,
// or of a slice of the heads.
static void set_teams(BlockPlan *p, const Sizes &s, int team, int threads)
{
    const int heads = (int)s.heads, most_teams = threads / team;
    p->team = team;
    p->slices = (int)gd_ceil_div(heads, most_teams), p->slice = (int)gd_ceil_div(heads, p->slices);
    p->tokens = most_teams / p->slice;
    p->threads = round_up(p->slice * p->tokens * team, 32);
    p->team_sums = round_up(team / 32, 4);
}

// Sets the number of stages of the pipeline (0: plain loads). At the end their shared memory holds
// the teams' sums of dw.
static void set_stages(BlockPlan *p, const Sizes &s, int stages)
{
    const int stage = p->chunks * s.pack_bytes * p->threads, teams = p->slice * p->tokens;
    p->async = stages > 0, p->stages = p->async ? stages : 1;
    p->shared = teams > 1 ? teams * (int)s.packs * s.pack_elements * (int)sizeof(float) : 0;
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

// Rows of up to twice as many packs as backward_kernel takes, in 512 threads: three or four packs
// for each (float32: six or eight). Three chunks of the next row are on their way, where there is
// room, while a row is summed (bfloat16 12288 by code for 8.0 on an H200: 0.90 of the ceiling; two
// 0.82); of float32, whose rows have twice as many chunks, two (12288: 0.92, not 0.87).
static BlockPlan plan_held(const Sizes &s, const gd_cuda_limits &l)
{
    BlockPlan p = {};
    const int least = BLOCK_ELEMENTS / s.pack_elements * 3 / 2, most = 4 * least / 3;
    if (!l.async_copies || s.heads > 1 || s.packs > most * BLOCK_THREADS) return p;
    p.async = p.held = true;
    p.chunks = s.packs <= least * BLOCK_THREADS ? least : most;
    set_teams(&p, s, round_up(gd_ceil_div(s.packs, p.chunks), 32), BLOCK_THREADS);
    for (int ahead = s.pack_elements == 8 ? 3 : 2; ahead >= 2; ahead--) {
        p.stages = p.chunks + ahead;
        p.shared = p.stages * s.pack_bytes * p.threads;
        if (!fits(p, 1, l)) continue;
        p.shared = spread(p.shared, 1, l);
        set_blocks(&p, s, gd_cuda_plan_multiprocessors(&l));
        return p;
    }
    return {};
}

// Rows of up to 128 packs: one for a thread, which takes few registers, so that 768 threads fit on
// a multiprocessor. Wider rows: 384 threads with two packs, in one block, or up to 512 with two
// (float32: four). Two stages; but one for teams of more than 384 threads, whose registers hold
// much of a second: with more bytes in flight DRAM is slower (bfloat16 16384 x 8192: 0.89 of the
// ceiling, not 0.94), unless there are few in all (2048 x 8192: 0.88, not 0.84). By plain loads
// only registers hold bytes in flight, and so there are 512 threads in any case.
//
// Fast memory wants more in flight: two stages while x and dy have at most 76 KB in them, 2.1 us of
// what it delivers (bfloat16 3584: 0.96, not 0.83; with 82 to 98 KB 0.86). Without dsum, 16-bit
// rows have 512 threads where 384 with two packs would be a tenth idle (1152: 0.91, not 0.83), and
// rows of 33 to 96 packs, and shorter ones that leave fewer lanes idle so, have three packs in the
// threads of a warp (80 columns of 16 bits: 0.86, not 0.71; 640: 0.92, not 0.79).
BlockPlan plan_block(const Sizes &s, const gd_cuda_limits &l)
{
    BlockPlan p = {};
    const int most_packs = BLOCK_ELEMENTS / s.pack_elements * BLOCK_THREADS;
    if (s.packs > most_packs) return plan_held(s, l);
    static const UpTo chunks[] = {{128, 1}, {2 * BLOCK_THREADS, 2}, {ANY, 4}};
    static const UpTo fast_chunks[] = {{192, 3}, {480, 2}, {720, 3}, {ANY, 2}};
    p.chunks = s.spread && s.packs <= 384 ? 1 : look_up(chunks, s.packs);
    const bool fast = fast_memory(l) && l.async_copies, pairs = s.pack_bytes == 32;
    const int thirds = lanes_for(gd_ceil_div(s.packs, 3)), team_of_two = round_up(s.packs, 64) / 2;
    const bool idle = s.packs > 128 && 384 / team_of_two * s.packs < 691;
    const bool more = fast && pairs && s.pack_elements == 8 && idle;
    if (fast && pairs && s.packs <= 96 && (s.packs > 32 || 3 * thirds < lanes_for(s.packs)))
        p.chunks = 3;
    else if (more)
        p.chunks = look_up(fast_chunks, s.packs);
    const int64_t share = gd_ceil_div(s.packs, p.chunks);
    const int team = share <= 32 ? lanes_for(share) : round_up(share, 32);
    // Of 384 threads a team of 193 to 256 would leave a third idle.
    const bool large = team > 384 || (team > 192 && team <= 256) || !l.async_copies;
    int at_once = 384; // on a multiprocessor
    if (large || p.chunks == 3 || more) at_once = BLOCK_THREADS;
    if (p.chunks == 1) at_once = 768;
    set_teams(&p, s, team, p.chunks == 1 ? at_once / 2 : at_once);
    const int blocks = at_once / p.threads;
    const bool few = s.rows * s.packs * s.pack_bytes <= 128 << 20;
    int stages = large && !few ? 1 : 2;
    if (fast) stages = blocks * p.slice * p.tokens * s.packs * 64 <= 76 * 1024 ? 2 : 1;
    if (!l.async_copies) stages = 0;
    for (set_stages(&p, s, stages); stages > 0 && !fits(p, blocks, l);) set_stages(&p, s, --stages);
    if (!fits(p, 1, l)) return {};
    if (p.async && blocks == 1) p.shared = spread(p.shared, 1, l);
    set_blocks(&p, s, (int64_t)blocks * gd_cuda_plan_multiprocessors(&l));
    return p;
}

// The smallest cluster whose threads hold a row in few packs each; and enough stages for a row and
// `flight` bytes more. Where its blocks have few threads, two fit on a multiprocessor: one of 192
// threads has 0.60 of the speed at 8448 columns of 16 bits.
//
// For fast memory a block alone takes backwards of up to 1440 packs (float32 1024), in two packs a
// thread while 480 threads hold them; two blocks fit on a multiprocessor while 224 threads do. What
// memory delivers in 2 us is in flight: with two thirds as much bfloat16 8192 has 0.95 of the
// ceiling, not 0.99, and 4096 0.90, not 0.96; a third more is no faster. Rows of 577 to 640 packs
// take more packs a thread (5120: 0.95, not 0.90; float32 2560: 0.97, not 0.94).
ClusterPlan plan_cluster(const Sizes &s, bool backward, const gd_cuda_limits &l)
{
    // Blocks by packs of a row, packs of a thread by packs of a block.
    static const UpTo backward_blocks[] = {{2880, 2}, {5760, 4}, {19200, 8}, {ANY, 16}};
    static const UpTo forward_blocks[] = {{4800, 2}, {8320, 4}, {16640, 8}, {ANY, 16}};
    static const UpTo backward_chunks[] = {{1440, 3}, {2400, 5}, {ANY, 9}};
    static const UpTo forward_chunks[] = {{2400, 5}, {ANY, 8}};
    ClusterPlan p = {};
    p.cluster = look_up(backward ? backward_blocks : forward_blocks, s.packs);
    const bool halves = s.pack_elements == 8, fast = backward && fast_memory(l);
    if (fast && s.packs <= (halves ? 1440 : 1024)) p.cluster = 1;
    const int64_t share = gd_ceil_div(s.packs, p.cluster);
    p.chunks = backward ? look_up(backward_chunks, share) : look_up(forward_chunks, share);
    int flight = p.cluster == 16 ? 64 : 52; // KB
    bool two = backward && halves && s.packs <= 1152;
    if (backward) flight = two ? 24 : 88;
    if (fast) {
        two = p.cluster == 1 && share <= 3 * 224;
        if (p.cluster <= 2 || p.cluster == 16)
            flight = (two ? 1 : 2) * l.multiprocessor_bytes / 1024;
        const bool few = p.cluster == 1 || (p.cluster == 2 && halves);
        if (few && share <= 2 * (two ? 224 : 480)) p.chunks = 2;
        if (two && share > 576 && share <= 640) p.chunks = halves ? 5 : 9;
    }
    p.consumers = round_up(gd_ceil_div(share, p.chunks), 32);
    const int stage = p.consumers * s.pack_bytes;
    const int wanted = p.chunks + (backward ? 0 : 1) + (int)gd_ceil_div(flight * 1024, stage);
    const int half = l.multiprocessor_shared / 2 - 1024;
    const int most = two ? std::min(half, l.block_shared) : l.block_shared;
    p.stages = std::min({wanted, (most - RING_AT) / stage, MOST_STAGES});
    // As many clusters as an H200 runs at the same time.
    const int at_once[] = {132, 66, 30, 15, 7};
    p.clusters =
        std::min<int64_t>(s.rows, (two ? 2 : 1) * at_once[__builtin_ctz((unsigned)p.cluster)]);
    p.blocks = p.clusters * p.cluster, p.threads = p.consumers + 32;
    p.shared = RING_AT + stage * p.stages;
    if (backward) p.shared = spread(p.shared, two ? 2 : 1, l);
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
    int narrow = s.pack_elements == 8 && s.heads == 1 && l.bulk_copies ? 2304 : 4096;
    if (!l.bulk_copies && s.pack_bytes == 16)
        narrow = 8192; // in 1024 threads (32768: 0.98, not 0.48)
    if (!backward && s.packs <= narrow) return BLOCK;
    const bool clusters = cluster_fits(s, backward, l), ring = clusters && fast_memory(l);
    // From 16 MB of inputs on a ring is faster on fast memory (float32 512 x 4096: 0.81, not 0.71).
    const bool small = !ring || s.rows * s.packs * s.pack_bytes < 16 << 20;
    const bool few = s.rows <= FEW_ROWS && s.packs <= FEW_PACKS && small;
    if (backward && s.heads == 1 && few && !s.spread) return FEW;
    // In float32 rows of 673 to 768 packs fill the threads of a block (3072: 0.98; by a ring 0.97).
    int block = ring ? 384 : 1024;
    if (ring && s.pack_elements == 4 && s.packs > 672) block = 768;
    if (backward && (s.packs <= block || !clusters) && plan_block(s, l).blocks) return BLOCK;
    return clusters ? CLUSTER : PLAIN;
}

} // namespace gd_rms
