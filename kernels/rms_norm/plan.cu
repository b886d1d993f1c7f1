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

ForwardPlan plan_forward(const Sizes &s)
{
    ForwardPlan p = {};
    const int two = s.pack_bytes > 16;
    if (s.packs <= 128) {
        p.threads_per_row = lanes_for(ceil_div(s.packs, two ? 2 : 3));
        p.threads = 256;
        p.chunks = (int)ceil_div(s.packs, p.threads_per_row);
        return p;
    }
    const int chunks[] = {1, 2, 3, 4, 6, 8}, threads[] = {0, 512, 704, 704, 704, 1024};
    int i = s.rows <= 512 && s.packs <= 512 ? 0 : 1;
    while (i && i < 5 && s.packs > chunks[i] * threads[i]) i++;
    p.chunks = chunks[i];
    p.threads = p.threads_per_row = round_up(ceil_div(s.packs, p.chunks), 32);
    return p;
}



BlockPlan plan_block(const Sizes &s)
{
    BlockPlan p = {};
    int teams;
    if (s.packs <= 96) {
        p.threads_per_row = lanes_for(ceil_div(s.packs, 3));
        p.chunks = s.packs <= 2 * p.threads_per_row ? 2 : 3;
        teams = BLOCK_THREADS / 32;
        p.threads = BLOCK_THREADS;
    } else {
        p.chunks = 2;
        p.threads_per_row = round_up(ceil_div(s.packs, p.chunks), 32);
        teams = BLOCK_THREADS / p.threads_per_row;
        p.threads = teams * p.threads_per_row;
    }
    const int groups = p.threads_per_row < 32 ? 32 / p.threads_per_row : 1;
    const int slice = s.heads > 1 ? least(s.heads, groups) : 1;
    const int64_t token_bytes = slice * s.packs * s.pack_bytes, wanted = 72 * 1024 / teams;
    const int at_once = s.heads > 1 ? 1 : groups;
    p.stage_tokens = least(most(wanted / (2 * token_bytes) / at_once, 1) * at_once, 32 / slice);
    p.stages = least(most((wanted + token_bytes * p.stage_tokens / 2) / (token_bytes * p.stage_tokens), 2), 6);
    const int64_t slices = s.heads > 1 ? ceil_div(s.heads, groups) : 1;
    const int64_t units = ceil_div(s.rows / s.heads, p.stage_tokens);
    p.partials = least(units, most(MULTIPROCESSORS / slices, 1));
    return p;
}

// What a row is to a cluster, and how many kilobytes a block should have on their way.
struct ClusterRow {
    int64_t packs; // of a row, at most
    int cluster, chunks, flight, clusters;
};
static const ClusterRow forward_rows[] = {
    {16384, 8, 4, 48, 15}, {32768, 8, 8, 40, 15}, {65536, 16, 8, 40, 7}};
static const ClusterRow backward_rows[] = {{2048, 2, 2, 64, 66},  {2880, 2, 3, 66, 66},
                                           {5760, 4, 3, 66, 30},  {8192, 8, 2, 80, 15},
                                           {11520, 8, 3, 66, 15}, {19200, 8, 5, 65, 15},
                                           {38400, 16, 5, 80, 7}, {69120, 16, 9, 75, 7}};

ClusterPlan plan_cluster(const Sizes &s, bool backward)
{
    const ClusterRow *row = backward ? backward_rows : forward_rows;
    while (s.packs > row->packs) row++;
    ClusterPlan p = {};
    p.cluster = row->cluster, p.chunks = row->chunks;
    p.threads = round_up(ceil_div(ceil_div(s.packs, p.cluster), p.chunks), 32);
    const int stage = p.threads * s.pack_bytes, lead = backward ? 0 : 2;
    const int wanted = p.chunks + lead + (int)ceil_div(row->flight * 1024, stage);
    p.stages = least(least(wanted, (MAX_SHARED - RING_AT) / stage), MOST_STAGES);
    p.clusters = s.rows < row->clusters ? s.rows : row->clusters;
    return p;
}

Kernel plan_kernel(const Sizes &s, bool backward)
{
    if (s.packs == 0 || s.rows == 0 || s.rows > MOST_ROWS) return PLAIN;
    if (!backward) {
        if (s.packs <= FORWARD_PACKS) return BLOCK;
        return s.heads == 1 && s.packs <= 65536 ? CLUSTER : PLAIN;
    }
    if (s.heads > 1) return s.packs <= 96 ? BLOCK : PLAIN;
    if (s.rows <= 512 && s.packs <= 1024) return FEW;
    if (s.packs <= BLOCK_PACKS) return BLOCK;
    return s.packs <= (s.pack_elements == 4 ? 69120 : 38400) ? CLUSTER : PLAIN;
}

int64_t plan_plain_partials(int64_t tokens, int64_t width)
{
    const int64_t wanted = ceil_div(1024, ceil_div(width, 32)), eighth = ceil_div(tokens, 8);
    return wanted < eighth ? wanted : eighth;
}

} // namespace gd_rms
