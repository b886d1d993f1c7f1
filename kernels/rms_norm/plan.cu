// plan.cu - which kernel for which size, and its shape.
//
// The numbers were found by measuring on one GPU (CUDA.md has the figures) but depend on the sizes
// and the dtype alone: a GPU with fewer multiprocessors runs the same blocks in more than one wave
// and gets the same bits.
#include "rms_norm/plan.cuh"

#include "rms_norm/ring.cuh"

namespace gd_rms
{

static int round_up(int64_t n, int multiple)
{
    return (int)(ceil_div(n, multiple) * multiple);
}

// A ring (ring.cuh): clusters of so many blocks, in so many teams that share a row each, of which
// each thread has `chunks`.
struct RingRow {
    int64_t vectors; // of a row, at most
    int cluster, teams, chunks, tile_chunks, lead;
    int flight;   // KB of a block that are on their way
    int clusters; // as many as one H200 runs at a time; each team makes a partial row of dw
};
static const RingRow forward_rings_of_4_bytes[] = {
    {9728, 8, 2, 5, 1, 1, 48, 15},  {12288, 8, 2, 8, 1, 1, 48, 15}, {16384, 8, 2, 8, 1, 3, 40, 15},
    {19456, 8, 1, 5, 1, 1, 48, 15}, {24576, 8, 1, 8, 1, 1, 48, 15}, {32768, 8, 1, 8, 1, 3, 40, 15},
    {65536, 16, 1, 8, 2, 0, 64, 7},
};
static const RingRow forward_rings_of_2_bytes[] = {
    {8192, 8, 2, 4, 1, 2, 48, 15},  {10240, 8, 2, 5, 1, 2, 48, 15}, {12288, 8, 1, 4, 1, 2, 54, 15},
    {16384, 8, 1, 4, 1, 2, 48, 15}, {20480, 8, 1, 5, 1, 2, 48, 15}, {32768, 16, 1, 4, 1, 0, 64, 7},
};
static const RingRow backward_rings_of_4_bytes[] = {
    {1152, 2, 2, 3, 1, 1, 48, 66},  {2048, 2, 1, 2, 1, 1, 48, 66},  {2880, 2, 1, 3, 1, 1, 48, 66},
    {5760, 8, 2, 3, 1, 0, 66, 15},  {9216, 8, 1, 3, 1, 0, 66, 15},  {16384, 8, 1, 4, 1, 0, 64, 15},
    {32768, 16, 1, 4, 1, 0, 80, 7}, {65536, 16, 1, 9, 1, 0, 75, 7},
};
static const RingRow backward_rings_of_2_bytes[] = {
    {1152, 2, 2, 3, 1, 0, 66, 66},  {2048, 2, 1, 2, 1, 0, 64, 66},  {2880, 4, 2, 3, 1, 0, 66, 30},
    {4096, 8, 2, 2, 1, 0, 80, 15},  {5760, 8, 2, 3, 1, 0, 66, 15},  {8192, 8, 1, 2, 1, 0, 80, 15},
    {11520, 8, 1, 3, 1, 0, 66, 15}, {16384, 8, 1, 5, 1, 0, 65, 15}, {23040, 16, 1, 3, 1, 0, 80, 7},
    {32768, 16, 1, 5, 1, 0, 78, 7},
};

// The first entry of a table that a row of so many vectors fits in, or NULL.
template <class Row, int COUNT>
static const Row *find_row(const Row (&table)[COUNT], int64_t vectors)
{
    for (const Row &row : table)
        if (vectors <= row.vectors) return &row;
    return nullptr;
}

// What the ring holds, and what is on its way. Shorter rows have smaller tiles, and more of them.
static int ring_stages(const RingRow &row, int threads, int inputs)
{
    const int tile = threads * row.tile_chunks * inputs * 16;
    const int wanted =
        row.chunks / row.tile_chunks + row.lead + (int)ceil_div(row.flight * 1024, tile);
    const int room = (max_shared - RING_AT) / tile;
    const int most = room < MOST_STAGES ? room : MOST_STAGES;
    return wanted < most ? wanted : most;
}

// What a forward and a backward take from the table alike.
template <class Plan>
static void take_ring(Plan *p, const RingRow &row, int64_t vectors, int inputs)
{
    p->kernel = RING;
    p->cluster = row.cluster, p->teams = row.teams, p->chunks = row.chunks;
    p->tile_chunks = row.tile_chunks, p->lead = row.lead;
    p->threads = round_up(ceil_div(ceil_div(vectors, row.cluster / row.teams), row.chunks), 32);
    p->stages = ring_stages(row, p->threads, inputs);
}

// Rows that lanes of a warp share.
static ForwardPlan plan_forward_rows(int64_t vectors, bool wide)
{
    ForwardPlan p = {};
    p.kernel = ROWS;
    // 16-bit rows pay more for lanes that have nothing to do.
    const bool eight = !wide && vectors > 16 && vectors <= 24;
    const bool sixteen = vectors <= 32 || (!wide && vectors <= 48);
    p.lanes = eight ? 8 : sixteen ? 16 : 32;
    p.chunks = (int)ceil_div(vectors, p.lanes);
    p.rows = p.chunks == 1 || (p.chunks == 2 && wide) ? 2 : 1;
    return p;
}

// Rows that a block holds: how many vectors each thread has, and how many blocks a multiprocessor
// shall hold.
struct WideRow {
    int64_t vectors; // of a row, at most
    int chunks, blocks;
};
static const WideRow wide_rows[] = {
    {1024, 2, 4}, {1536, 3, 2}, {1792, 4, 2}, {2048, 3, 2},
    {2560, 4, 2}, {4096, 6, 2}, {4608, 8, 2},
};
static const WideRow longer_rows_of_4_bytes[] = {{8192, 8, 1}};
static const WideRow longer_rows_of_2_bytes[] = {{5120, 8, 2}, {6144, 6, 1}};

static const WideRow *find_wide(int64_t vectors, bool wide)
{
    const WideRow *const row = find_row(wide_rows, vectors);
    if (row) return row;
    return wide ? find_row(longer_rows_of_4_bytes, vectors)
                : find_row(longer_rows_of_2_bytes, vectors);
}

static ForwardPlan plan_forward_wide(int64_t rows, int64_t vectors, const WideRow &row)
{
    ForwardPlan p = {};
    p.kernel = WIDE;
    p.chunks = row.chunks, p.blocks = row.blocks;
    if (rows <= 512 && vectors <= 1024) {
        p.early = true;
        p.chunks = vectors <= 512 ? 1 : 2;
        p.blocks = rows <= 132 ? 2 : 4;
    }
    p.threads = round_up(ceil_div(vectors, p.chunks), 32);
    return p;
}

ForwardPlan plan_forward(int64_t rows, int64_t cols, gd_dtype dtype)
{
    const int64_t size = (int64_t)gd_dtype_size(dtype), vectors = cols * size / 16;
    const bool wide = size == 4;
    if (vectors <= 128 || (vectors <= 192 && rows > 512)) return plan_forward_rows(vectors, wide);
    const WideRow *const block = find_wide(vectors, wide);
    if (block) return plan_forward_wide(rows, vectors, *block);
    ForwardPlan p = {};
    const RingRow *const ring = wide ? find_row(forward_rings_of_4_bytes, vectors)
                                     : find_row(forward_rings_of_2_bytes, vectors);
    if (!ring) return p; // too long: FALLBACK
    take_ring(&p, *ring, vectors, 1);
    p.clusters = ring->clusters;
    return p;
}

// The partial rows of the fallback: enough blocks to fill a GPU, no more partial rows than an
// eighth of the rows, since a block takes eight at a time.
int64_t fallback_partials(int64_t rows, int64_t cols)
{
    const int64_t wanted = ceil_div(1024, ceil_div(cols, 32)), most = ceil_div(rows, 8);
    return wanted < most ? wanted : most;
}

// Crews: so many threads share a row, so many make up a block; partials: blocks at most. Those are
// one or two for each multiprocessor of an H200, 132 or 264, or a few less where that was measured
// to be faster. The rings of a multiprocessor hold 50 to 115 KB.
struct CrewRow {
    int64_t vectors; // of a row, at most
    int lanes, threads, stage_rows, stages, partials;
    bool guard; // backward_rows.cu
};
static const CrewRow crews_of_4_bytes[] = {
    {16, 8, 192, 8, 2, 264, false},    {32, 16, 256, 2, 2, 264, true},
    {64, 32, 256, 1, 2, 256, true},    {128, 64, 384, 1, 3, 132, false},
    {160, 96, 480, 1, 3, 132, true},   {192, 128, 384, 2, 2, 132, true},
    {256, 128, 384, 1, 3, 132, false}, {320, 160, 480, 1, 2, 132, true},
    {384, 192, 384, 1, 3, 132, false}, {512, 256, 512, 1, 2, 132, true},
    {640, 320, 320, 1, 3, 132, false}, {768, 384, 384, 1, 3, 132, false},
    {896, 512, 512, 1, 4, 132, false}, {1024, 512, 512, 1, 2, 132, false},
};
static const CrewRow crews_of_2_bytes[] = {
    {8, 8, 192, 8, 2, 264, false},      {16, 8, 256, 4, 3, 264, true},
    {32, 16, 256, 2, 2, 256, true},     {64, 32, 256, 1, 2, 264, true},
    {96, 64, 384, 2, 2, 132, false},    {128, 64, 384, 1, 3, 132, false},
    {160, 96, 480, 1, 3, 132, false},   {192, 96, 480, 1, 2, 132, true},
    {256, 128, 384, 1, 3, 132, false},  {320, 160, 480, 1, 3, 132, true},
    {384, 192, 384, 1, 3, 132, false},  {448, 224, 448, 1, 2, 132, false},
    {512, 256, 512, 1, 2, 132, true},   {640, 320, 320, 1, 3, 132, false},
    {768, 384, 384, 1, 3, 132, false},  {896, 448, 448, 1, 4, 132, false},
    {1024, 512, 512, 1, 2, 132, false},
};

static BackwardPlan plan_crews(const CrewRow &row, int64_t rows)
{
    BackwardPlan p = {};
    p.kernel = ROWS;
    p.lanes = row.lanes, p.threads = row.threads, p.guard = row.guard;
    p.stage_rows = row.stage_rows, p.stages = row.stages;
    const int64_t stages = ceil_div(rows, p.stage_rows);
    p.partials = stages < row.partials ? stages : row.partials;
    p.cluster = 1;
    return p;
}

static BackwardPlan plan_ring(const RingRow &row, int64_t rows, int64_t vectors)
{
    BackwardPlan p = {};
    take_ring(&p, row, vectors, 2);
    const int64_t teams = (int64_t)row.clusters * row.teams;
    p.partials = teams < rows ? teams : rows;
    return p;
}

BackwardPlan plan_backward(int64_t rows, int64_t cols, gd_dtype dtype)
{
    const bool wide = gd_dtype_size(dtype) == 4;
    const int64_t row_bytes = cols * (int64_t)gd_dtype_size(dtype), vectors = row_bytes / 16;
    if (dtype != GD_FLOAT64 && row_bytes % 16 == 0 && cols > 0 && rows > 0 && rows <= MOST_ROWS) {
        const CrewRow *const crews =
            wide ? find_row(crews_of_4_bytes, vectors) : find_row(crews_of_2_bytes, vectors);
        if (crews) return plan_crews(*crews, rows);
        const RingRow *const ring = wide ? find_row(backward_rings_of_4_bytes, vectors)
                                         : find_row(backward_rings_of_2_bytes, vectors);
        if (ring) return plan_ring(*ring, rows, vectors);
    }
    BackwardPlan p = {};
    p.partials = fallback_partials(rows, cols);
    return p;
}

BackwardPlan plan_backward_small(int64_t rows, int64_t cols, gd_dtype dtype)
{
    const int64_t row_bytes = cols * (int64_t)gd_dtype_size(dtype), vectors = row_bytes / 16;
    BackwardPlan p = {};
    if (dtype == GD_FLOAT64 || row_bytes % 16 || vectors < 1 || vectors > 1024 || rows < 1 ||
        rows > 512)
        return p;
    p.kernel = SMALL;
    p.chunks = vectors <= 512 ? 1 : 2;
    p.threads = round_up(ceil_div(vectors, p.chunks), 32);
    if (p.threads < 256) p.threads = 256; // for the columns' sake
    p.columns = vectors <= 128 && rows > 256 ? 2 : vectors <= 512 && rows > 64 ? 4 : 8;
    p.cluster = 1;
    return p;
}

} // namespace gd_rms
