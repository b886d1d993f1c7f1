// plan.cu - which kernel for which size, and its shape. The rules come from measurements on one
// H200 (CUDA.md has the figures).
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

constexpr int FORWARD_PACKS = 8192; // of a row that a block of 1024 threads holds

// Four packs a thread keep enough bytes on their way; with a residual two, since each brings another.
// More only where a row asks for it.
ForwardPlan plan_forward(const Sizes &s, bool adds)
{
    ForwardPlan p = {0, 1, 0, 128};
    if (s.packs <= 24 && !adds) {
        p.threads_per_row = lanes_for(ceil_div(s.packs, 3));
        p.chunks = s.packs <= 2 * p.threads_per_row ? 2 : 3, p.rows = 2;
        return p;
    }
    if (s.packs <= (adds ? 96 : 192)) {
        p.threads_per_row = lanes_for(ceil_div(s.packs, adds ? 3 : 6));
        const int chunks = (int)ceil_div(s.packs, p.threads_per_row);
        p.chunks = adds ? most(chunks, 2) : chunks <= 4 ? 4 : 6;
        return p;
    }
    const bool few = s.rows <= 512 && s.packs <= 1024; // nothing else hides a wait
    p.chunks = few ? (s.packs <= 512 ? 1 : 2) : adds ? 2 : 4;
    if (!few && s.packs > 512 * p.chunks) p.chunks = s.packs <= 2048 ? 4 : s.packs <= 4096 ? 6 : 8;
    p.threads = p.threads_per_row = round_up(ceil_div(s.packs, p.chunks), 32);
    return p;
}

// Threads for as many teams as fit in 384, measured to be best, or for the widest rows in 512.
// Two stages of a team, and as many bytes on their way as 16-bit and float32 rows want.
BlockPlan plan_block(const Sizes &s)
{
    BlockPlan p = {};
    const bool warp = s.packs <= 64;
    p.threads_per_row = warp ? lanes_for(ceil_div(s.packs, 2)) : round_up(ceil_div(s.packs, 2), 32);
    const int size = warp ? 32 : p.threads_per_row;
    const int teams = (size <= 192 ? 384 : BLOCK_THREADS) / size;
    p.threads = teams * size;
    const int groups = 32 / least(p.threads_per_row, 32);
    const int slice = s.heads > 1 ? least(s.heads, groups) : 1;
    p.stage_tokens = s.heads > 1 ? 1 : groups;
    const int64_t stage = p.stage_tokens * slice * s.packs * s.pack_bytes * teams;
    const int64_t wanted = (s.pack_elements == 8 ? 72 : 48) * 1024;
    p.stages = least(most((wanted + stage / 2) / stage, 2), 6);
    const int64_t slices = s.heads > 1 ? ceil_div(s.heads, groups) : 1;
    p.partials = least(ceil_div(s.rows / s.heads, p.stage_tokens), most(MULTIPROCESSORS / slices, 1));
    return p;
}

// The smallest cluster whose threads hold a row in few packs each; and so many bytes on their way
// as were measured to be best.
ClusterPlan plan_cluster(const Sizes &s, bool backward)
{
    ClusterPlan p = {};
    if (backward) {
        p.cluster = s.packs <= 2880 ? 2 : s.packs <= 5760 ? 4 : s.packs <= 19200 ? 8 : 16;
        const int64_t share = ceil_div(s.packs, p.cluster);
        p.chunks = share <= 1440 ? 3 : share <= 2400 ? 5 : 9;
    } else {
        p.cluster = s.packs <= 16640 ? 8 : 16;
        p.chunks = ceil_div(s.packs, p.cluster) <= 2080 ? 5 : 8;
    }
    p.threads = round_up(ceil_div(ceil_div(s.packs, p.cluster), p.chunks), 32);
    const int stage = p.threads * s.pack_bytes, flight = (backward ? 88 : 64) * 1024;
    const int wanted = p.chunks + 1 + (int)ceil_div(flight, stage);
    p.stages = least(least(wanted, (MAX_SHARED - RING_AT) / stage), MOST_STAGES);
    // As many clusters as an H200 runs at a time.
    const int at_once[] = {66, 30, 15, 7};
    p.clusters = least(s.rows, at_once[__builtin_ctz((unsigned)p.cluster) - 1]);
    return p;
}

Kernel plan_kernel(const Sizes &s, bool backward)
{
    if (s.packs == 0 || s.rows == 0 || s.rows > MOST_ROWS) return PLAIN;
    if (!backward) {
        if (s.packs <= FORWARD_PACKS) return BLOCK;
        return s.heads == 1 && s.packs <= 65536 ? CLUSTER : PLAIN;
    }
    if (s.heads > 1) return s.packs <= 64 ? BLOCK : PLAIN;
    if (s.rows <= 512 && s.packs <= 1024) return FEW;
    if (s.packs <= BLOCK_PACKS) return BLOCK;
    return s.packs <= (s.pack_elements == 4 ? 69120 : 38400) ? CLUSTER : PLAIN;
}

int64_t plan_plain_partials(int64_t tokens, int64_t width)
{
    const int64_t wanted = width ? ceil_div(1024, ceil_div(width, 32)) : 0, eighth = ceil_div(tokens, 8);
    return wanted < eighth ? wanted : eighth;
}

} // namespace gd_rms
