// plan.cu - which kernel runs which size, with which launch parameters. The rules come from
// measurements on one H200 (CUDA.md has the figures).
#include "rms_norm/plan.cuh"

#include "rms_norm/ring.cuh"

namespace gd_rms
{

static int round_up(int64_t n, int multiple)
{
    return (int)(ceil_div(n, multiple) * multiple);
}

static int least(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

static int most(int64_t a, int64_t b)
{
    return (int)(a > b ? a : b);
}

// The smallest power of two, 4 to 32, that is at least n.
static int lanes_for(int64_t n)
{
    int lanes = 4;
    while (lanes < n && lanes < 32) lanes *= 2;
    return lanes;
}

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
    const int64_t narrow = adds || s.rows <= 1024 ? 64 : wide || s.rows < 16384 ? 128 : 192;
    if (s.packs <= narrow) {
        const bool two = s.packs <= 32 || adds || wide || (small && s.packs > 48);
        const int each = s.packs > 128 ? 6 : s.packs <= 64 && two ? 2 : 4;
        p.threads = 128, p.threads_per_row = lanes_for(ceil_div(s.packs, each));
        p.chunks = each == 4 && s.packs <= 3 * p.threads_per_row ? 3 : each;
        // Three packs a thread where that leaves fewer lanes idle: of rows of 9 to 12 packs and 17
        // to 24.
        const int thirds = lanes_for(ceil_div(s.packs, 3));
        if (!adds && s.packs <= 32 && 3 * thirds < 2 * p.threads_per_row)
            p.threads_per_row = thirds, p.chunks = 3;
        p.blocks = ceil_div(s.rows, p.threads / p.threads_per_row);
        return p;
    }
    // A residual, or float32 x where y has 16 bits: each pack takes two loads.
    if (adds || (s.pack_bytes > 16 && s.packs <= 2048))
        p.chunks = s.packs <= 640 || (s.rows <= 256 && s.packs <= 1024) ? 2
                   : s.packs <= 2048                                    ? 4
                                                                        : 8;
    else if (small && s.packs <= 2048)
        p.chunks = s.packs <= 512 || s.rows <= MULTIPROCESSORS ? 2 : 3;
    else if (wide)
        p.chunks = s.packs <= 256 ? 2 : s.packs <= 512 ? 4 : s.packs <= 3584 ? 6 : 8;
    else
        p.chunks = s.packs <= 192 ? 3 : s.packs <= 1280 ? 4 : s.packs <= 2304 ? 6 : 8;
    p.threads = p.threads_per_row = round_up(ceil_div(s.packs, p.chunks), 32);
    p.blocks = s.rows;
    return p;
}

// As many teams as make 384 threads, which measured best, or 512 if a team has more than 192; and
// as many stages as hold the bytes in flight that measured best.
BlockPlan plan_block(const Sizes &s)
{
    BlockPlan p = {};
    const bool warp = s.packs <= 64, shortest = s.packs <= 8;
    p.threads_per_row = warp ? lanes_for(ceil_div(s.packs, 2)) : round_up(ceil_div(s.packs, 2), 32);
    p.groups = warp ? 32 / p.threads_per_row : 1;
    const int size = warp ? 32 : p.threads_per_row;
    p.teams = (shortest ? 256 : size <= 192 ? 384 : BLOCK_THREADS) / size;
    p.threads = p.teams * size;
    p.slice = least(s.heads, p.groups), p.slices = (int)ceil_div(s.heads, p.groups);
    p.stage_tokens = s.heads > 1 ? 1 : p.groups;
    const int64_t token = p.slice * s.packs * s.pack_bytes;
    if (s.packs <= 16 && p.stage_tokens * token < 2048) p.stage_tokens *= 2;
    const int64_t stage = p.stage_tokens * token * p.teams;
    const int64_t wanted = (shortest               ? 32
                            : s.packs <= 16        ? 48
                            : s.pack_elements == 8 ? 72
                                                   : 56) *
                           1024;
    p.stages = most((wanted + stage / 2) / stage, 2);
    // Of several teams three stages are slower than two if they take 72 KB or more.
    const bool small = s.rows * s.packs * s.pack_bytes <= 32 << 20;
    if (p.teams > 1 && p.stages == 3 && stage >= 24 * 1024 && !small) p.stages = 2;
    // Two rows per stage rather than many stages; of the shortest rows all in one stage.
    if (p.stages >= (shortest && !small ? 2 : 4) && 2 * p.stage_tokens * p.slice <= 32)
        p.stage_tokens *= 2, p.stages /= 2;
    p.stages = least(p.stages, MOST_TEAM_STAGES / p.teams);
    const int blocks = (shortest ? 2 : 1) * MULTIPROCESSORS;
    p.partials = least(ceil_div(s.rows / s.heads, p.stage_tokens), most(blocks / p.slices, 1));
    p.blocks = p.partials * p.slices;
    // The teams' sums of dw take the place of the stages.
    const int64_t sums = p.teams * p.slice * s.packs * s.pack_elements * (int64_t)sizeof(float);
    p.shared =
        STAGES_AT + most(p.teams * p.stages * p.stage_tokens * token, p.teams > 1 ? sums : 0);
    return p;
}

// The smallest cluster whose threads hold a row in few packs each; and enough stages for a row and
// `flight` bytes more. Where its blocks have few threads, two fit on a multiprocessor: one of 192
// threads has 0.60 of the speed at 8448 columns of 16 bits.
ClusterPlan plan_cluster(const Sizes &s, bool backward)
{
    ClusterPlan p = {};
    int flight;
    const bool two = backward && s.packs <= (s.pack_elements == 8 ? 1152 : 768);
    if (backward) {
        p.cluster = s.packs <= 2880 ? 2 : s.packs <= 5760 ? 4 : s.packs <= 19200 ? 8 : 16;
        const int64_t share = ceil_div(s.packs, p.cluster);
        p.chunks = share <= 1440 ? 3 : share <= 2400 ? 5 : 9;
        flight = (!two ? 88 : s.pack_elements == 8 ? 24 : 60) * 1024;
    } else {
        p.cluster = s.packs <= 4800 ? 2 : s.packs <= 8320 ? 4 : s.packs <= 16640 ? 8 : 16;
        p.chunks = ceil_div(s.packs, p.cluster) <= 2400 ? 5 : 8;
        flight = (p.cluster == 16 ? 64 : 52) * 1024;
    }
    p.consumers = round_up(ceil_div(ceil_div(s.packs, p.cluster), p.chunks), 32);
    const int stage = p.consumers * s.pack_bytes;
    const int wanted = p.chunks + (backward ? 0 : 1) + (int)ceil_div(flight, stage);
    p.stages = least(least(wanted, (MAX_SHARED - RING_AT) / stage), MOST_STAGES);
    // As many clusters as an H200 runs at the same time.
    const int at_once[] = {66, 30, 15, 7};
    p.clusters = least(s.rows, (two ? 2 : 1) * at_once[__builtin_ctz((unsigned)p.cluster) - 1]);
    p.blocks = p.clusters * p.cluster, p.threads = p.consumers + 32;
    p.shared = RING_AT + stage * p.stages;
    return p;
}

// Whether a row fits in the largest cluster, with one stage more than are held.
static bool cluster_fits(const Sizes &s, bool backward)
{
    const ClusterPlan p = plan_cluster(s, backward);
    const int most_chunks = !backward ? 8 : s.pack_elements == 4 ? 9 : 5;
    return p.chunks <= most_chunks && p.consumers <= most_consumers(p.chunks) &&
           p.stages > p.chunks + (backward ? 0 : 1);
}

Kernel plan_kernel(const Sizes &s, bool backward)
{
    if (s.packs == 0 || s.rows == 0 || s.rows > MOST_ROWS) return PLAIN;
    // A block holds a row; where too few such blocks would fit on a multiprocessor, a cluster does.
    const int narrow = s.pack_elements == 8 && s.heads == 1 ? 2304 : 4096;
    if (!backward && s.packs <= narrow) return BLOCK;
    if (backward && s.heads > 1) return s.packs <= 64 ? BLOCK : PLAIN;
    if (backward && s.rows <= 512 && s.packs <= BLOCK_PACKS) return FEW;
    // 2561 to 3072 columns of float32 leave room for one team of threads, which is too few.
    const bool lonely =
        s.pack_elements == 4 && s.pack_bytes == 32 && s.packs > 640 && s.packs <= 768;
    if (backward && s.packs <= BLOCK_PACKS && !lonely) return BLOCK;
    return s.heads == 1 && cluster_fits(s, backward) ? CLUSTER : PLAIN;
}

} // namespace gd_rms
