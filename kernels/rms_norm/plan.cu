// plan.cu - which kernel for which size, and its shape.
//
// The numbers were found by measuring on one GPU (CUDA.md has the figures) but depend on the sizes
// and the dtype alone: a GPU with fewer multiprocessors runs the same blocks in more than one wave
// and gets the same bits.
#include "rms_norm/cuda.cuh"

namespace gd_rms
{

// The lanes that share a row of so many vectors, and the vectors each of them holds.
static void plan_lanes(int64_t vectors, int *lanes, int *chunks)
{
    *lanes = vectors <= 32 ? 8 : vectors <= 64 ? 16 : 32;
    *chunks = vectors <= 16    ? 2
              : vectors <= 64  ? 4
              : vectors <= 96  ? 3
              : vectors <= 128 ? 4
              : vectors <= 192 ? 6
                               : 8;
}

static int round_up(int64_t n, int multiple)
{
    return (int)(ceil_div(n, multiple) * multiple);
}

struct ForwardRing {
    int64_t vectors; // of a row, at most
    int cluster, chunks, stages, lookahead, clusters;
};
static const ForwardRing forward_ring_of_4_bytes[3] = {
    {16384, 8, 4, 6, 1, 15}, {32768, 16, 8, 16, 0, 7}, {65536, 16, 8, 12, 1, 7}};
static const ForwardRing forward_ring_of_2_bytes[3] = {
    {8192, 4, 4, 8, 1, 30}, {16384, 8, 4, 8, 1, 15}, {32768, 16, 4, 8, 1, 7}};

ForwardPlan plan_forward(int64_t rows, int64_t cols, gd_dtype dtype)
{
    (void)rows;
    ForwardPlan p = {};
    const int64_t size = (int64_t)gd_dtype_size(dtype), vectors = cols * size / 16;
    p.cluster = 1;
    if (vectors < 256) {
        p.kernel = ROWS;
        plan_lanes(vectors, &p.lanes, &p.chunks);
        return p;
    }
    if (vectors <= 4096 || (size == 4 && vectors <= 8192)) { // a block holds it
        p.kernel = WIDE;
        p.chunks = vectors > 2048 || (size == 2 && vectors > 512) ? 8 : 4;
        p.threads = round_up(ceil_div(vectors, p.chunks), 32);
        return p;
    }
    for (const ForwardRing &row : size == 4 ? forward_ring_of_4_bytes : forward_ring_of_2_bytes)
        if (vectors <= row.vectors) {
            p.kernel = RING;
            p.cluster = row.cluster, p.chunks = row.chunks;
            p.threads = round_up(ceil_div(ceil_div(vectors, p.cluster), p.chunks), 32);
            p.stages = row.stages, p.lookahead = row.lookahead, p.clusters = row.clusters;
            return p;
        }
    return p; // too long: FALLBACK
}

// The partial rows of the fallback: enough blocks to fill a GPU, no more partial rows than an
// eighth of the rows, since a block takes eight at a time.
int64_t fallback_partials(int64_t rows, int64_t cols)
{
    const int64_t wanted = ceil_div(1024, ceil_div(cols, 32)), most = ceil_div(rows, 8);
    return wanted < most ? wanted : most;
}

static BackwardPlan plan_rows(int64_t rows, int64_t row_bytes, gd_dtype dtype)
{
    BackwardPlan p = {};
    const int64_t vectors = row_bytes / 16;
    p.kernel = ROWS;
    plan_lanes(vectors, &p.lanes, &p.chunks);
    // More warps where a lane's numbers leave the registers for it.
    p.threads = p.chunks == 3 || (p.chunks == 6 && dtype == GD_FLOAT32) ? 384 : 256;
    // A stage is some kilobytes, of whole groups of rows.
    const int at_once = 32 / p.lanes;
    p.stage_rows = round_up(ceil_div(row_bytes <= 256 ? 1024 : 2048, row_bytes), at_once);
    if (p.stage_rows > 32) p.stage_rows = 32;
    p.stages = p.chunks == 6 ? 3 : 2;
    const int64_t stages = ceil_div(rows, p.stage_rows), most = row_bytes <= 256 ? 264 : 132;
    p.partials = stages < most ? stages : most;
    p.cluster = 1;
    return p;
}

struct RingRow {
    int64_t vectors; // of a row, at most
    int cluster, chunks, stages, lookahead;
    int partials; // as many clusters as one H200 runs at a time
};

// Deeper rings than these were slower: more bytes on their way than it takes to hide the latency
// only spread the reads over more of DRAM.
static const RingRow ring_of_4_bytes[] = {
    {256, 1, 2, 3, 0, 396},  {512, 1, 2, 3, 1, 264},  {1024, 1, 2, 3, 1, 132},
    {2048, 2, 4, 5, 0, 66},  {4096, 4, 2, 3, 0, 30},  {8192, 8, 4, 8, 0, 15},
    {16384, 16, 4, 8, 1, 7}, {32768, 16, 4, 6, 1, 7}, {65536, 16, 8, 4, 0, 7},
};
static const RingRow ring_of_2_bytes[] = {
    {256, 1, 2, 3, 0, 528},  {512, 1, 2, 3, 1, 264},  {1024, 1, 2, 3, 0, 132},
    {2048, 2, 2, 3, 0, 66},  {4096, 4, 2, 4, 1, 30},  {8192, 8, 2, 4, 1, 15},
    {16384, 8, 4, 4, 0, 15}, {32768, 16, 4, 4, 0, 7},
};

static BackwardPlan plan_ring(int64_t rows, int64_t vectors, gd_dtype dtype)
{
    const bool wide = gd_dtype_size(dtype) == 4;
    const RingRow *row = wide ? ring_of_4_bytes : ring_of_2_bytes;
    const RingRow *const end = row + (wide ? 9 : 8);
    while (row < end && row->vectors < vectors) row++;
    BackwardPlan p = {};
    if (row == end) return p; // too long: FALLBACK
    p.kernel = RING;
    p.cluster = row->cluster, p.chunks = row->chunks;
    p.tile_chunks = p.chunks < 2 ? p.chunks : 2;
    p.threads = round_up(ceil_div(ceil_div(vectors, p.cluster), p.chunks), 32);
    p.stages = row->stages, p.lookahead = row->lookahead;
    p.partials = row->partials < rows ? row->partials : rows;
    return p;
}

BackwardPlan plan_backward(int64_t rows, int64_t cols, gd_dtype dtype)
{
    const int64_t row_bytes = cols * (int64_t)gd_dtype_size(dtype), vectors = row_bytes / 16;
    BackwardPlan p = {};
    if (dtype != GD_FLOAT64 && row_bytes % 16 == 0 && cols > 0 && rows > 0)
        p = vectors <= 192 ? plan_rows(rows, row_bytes, dtype) : plan_ring(rows, vectors, dtype);
    if (p.kernel == FALLBACK) p.partials = fallback_partials(rows, cols);
    return p;
}

} // namespace gd_rms
