// cuda_plan.cu - what plan.cu plans for the RMSNorm kernels, at every N that they take: whether a
// row finds room, and the ring, and registers, and whether cuda_rms_norm tests that plan. It needs
// no GPU.
#include <stdio.h>

#include <algorithm>
#include <vector>

#include "cuda_widths.h"
#include "rms_norm/plan.cuh"
#include "rms_norm/ring.cuh"

using namespace gd_rms;

static int failures, rings, wides, crews;

static void expect(bool ok, const char *what, const char *way, gd_dtype dtype, int64_t cols)
{
    if (ok) return;
    failures++;
    if (failures <= 20)
        printf("%s, %s, N = %lld: %s\n", way, gd_dtype_name(dtype), (long long)cols, what);
}

// A plan of either kind for rows that come through a ring, of so many inputs.
template <class Plan>
static void check_ring(const Plan &p, const char *way, gd_dtype dtype, int64_t cols, int inputs)
{
    const int64_t vectors = cols * (int64_t)gd_dtype_size(dtype) / 16;
    const int tiles = p.chunks / p.tile_chunks, tile = p.threads * p.tile_chunks * inputs * 16;
    rings++;
    const int most = inputs == 1 ? FORWARD_RING_THREADS : backward_ring_threads(p.chunks);
    expect(p.threads % 32 == 0 && p.threads >= 32 && p.threads <= most, "threads", way, dtype,
           cols);
    expect(tiles * p.tile_chunks == p.chunks, "a tile is not whole", way, dtype, cols);
    expect(p.teams == 1 || p.teams == 2, "teams", way, dtype, cols);
    const int members = p.cluster / p.teams;
    const int64_t slice = ceil_div(vectors, members);
    expect((int64_t)p.threads * p.chunks >= slice, "a row finds no room", way, dtype, cols);
    expect(slice * (members - 1) < vectors, "a block has nothing", way, dtype, cols);
    expect(members * p.threads / 32 <= MOST_SUMS / p.teams, "too many sums", way, dtype, cols);
    // Else the producer waits for tiles that nobody can give back yet.
    expect(p.lead < tiles && p.stages > tiles + p.lead, "the ring holds too little", way, dtype,
           cols);
    expect(p.stages <= MOST_STAGES, "too many stages", way, dtype, cols);
    expect(RING_AT + tile * p.stages <= max_shared, "too much shared memory", way, dtype, cols);
}

// The forward of rows that a block holds.
static void check_wide(const ForwardPlan &p, gd_dtype dtype, int64_t cols)
{
    const int64_t vectors = cols * (int64_t)gd_dtype_size(dtype) / 16;
    const int most = p.early ? 512 : wide_threads(p.chunks, p.blocks);
    wides++;
    expect(p.threads % 32 == 0 && p.threads <= most, "threads", "wide", dtype, cols);
    expect((int64_t)p.threads * p.chunks >= vectors, "a row finds no room", "wide", dtype, cols);
}

static void check_crews(const BackwardPlan &p, gd_dtype dtype, int64_t cols)
{
    const char *const way = "crews";
    const int64_t row_bytes = cols * (int64_t)gd_dtype_size(dtype);
    const int crew = p.lanes < 32 ? 32 : p.lanes, count = p.threads / crew;
    const int blocks = p.partials > 132 ? 2 : 1; // to a multiprocessor
    crews++;
    expect(2 * p.lanes * 16 >= row_bytes, "a row finds no room", way, dtype, cols);
    expect(p.threads % crew == 0 && p.lanes % 8 == 0 && (p.lanes < 32 || p.lanes % 32 == 0),
           "threads", way, dtype, cols);
    expect(blocks * p.threads * crew_registers(gd_dtype_size(dtype)) <= 65536, "registers", way,
           dtype, cols);
    expect(count <= MOST_CREWS && count * p.stages <= MOST_CREW_STAGES, "crews", way, dtype, cols);
    const int64_t ring = (int64_t)count * p.stages * p.stage_rows * 2 * row_bytes;
    const int64_t sums = count > 1 ? count * cols * 4 : 0;
    expect(ROWS_RING_AT + (ring > sums ? ring : sums) <= max_shared / blocks - 1024,
           "too much shared memory", way, dtype, cols);
}

// What chooses a kernel, and how its blocks share the work. Threads, stages and partial rows follow
// from the size.
static std::vector<int> way_of(const ForwardPlan &p)
{
    return {p.kernel, p.lanes,  p.rows,  p.chunks,      p.cluster,
            p.early,  p.blocks, p.teams, p.tile_chunks, p.lead};
}
static std::vector<int> way_of(const BackwardPlan &p)
{
    return {p.kernel, p.lanes,       p.chunks,     p.cluster, p.teams,
            p.lead,   p.tile_chunks, p.stage_rows, p.guard};
}

// Whether the widths of cuda_rms_norm meet every plan for many rows. float16 has bfloat16's.
static void check_widths(gd_dtype dtype)
{
    const int64_t size = (int64_t)gd_dtype_size(dtype);
    std::vector<std::vector<int>> forward, backward;
    for (int64_t cols : cuda_widths) {
        if (cols * size % 16) continue;
        const int64_t rows = cuda_rows(cols, false);
        forward.push_back(way_of(plan_forward(rows, cols, dtype)));
        backward.push_back(way_of(plan_backward(rows, cols, dtype)));
    }
    auto in = [](const std::vector<std::vector<int>> &ways, const std::vector<int> &way) {
        return std::find(ways.begin(), ways.end(), way) != ways.end();
    };
    for (int64_t cols = 16 / size; cols <= 262144; cols += 16 / size) {
        expect(in(forward, way_of(plan_forward(1000, cols, dtype))), "not tested on a GPU",
               "forward", dtype, cols);
        expect(in(backward, way_of(plan_backward(1000, cols, dtype))), "not tested on a GPU",
               "backward", dtype, cols);
    }
}

int main()
{
    const gd_dtype dtypes[] = {GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    for (gd_dtype dtype : dtypes)
        for (int64_t cols = 8; cols <= 300000; cols += 8) {
            const int64_t row_bytes = cols * (int64_t)gd_dtype_size(dtype);
            const ForwardPlan few = plan_forward(100, cols, dtype);
            if (few.kernel == WIDE) check_wide(few, dtype, cols);
            const ForwardPlan f = plan_forward(1000, cols, dtype);
            if (f.kernel == RING) check_ring(f, "forward", dtype, cols, 1);
            if (f.kernel == WIDE) check_wide(f, dtype, cols);
            expect((f.kernel == FALLBACK) == (cols > 262144), "the fallback", "forward", dtype,
                   cols);
            for (int64_t rows : {1, 6, 1000}) {
                const BackwardPlan b = plan_backward(rows, cols, dtype);
                if (b.kernel == RING) check_ring(b, "backward", dtype, cols, 2);
                if (b.kernel == ROWS) check_crews(b, dtype, cols);
                expect((b.kernel == FALLBACK) == (cols > 262144), "the fallback", "backward", dtype,
                       cols);
                expect(b.kernel == FALLBACK || (b.kernel == RING) == (row_bytes > 16384),
                       "crews or ring", "backward", dtype, cols);
                expect(b.partials >= 1 && b.partials <= rows, "partial rows", "backward", dtype,
                       cols);
            }
            expect(plan_backward(MOST_ROWS + 1, cols, dtype).kernel == FALLBACK, "too many rows",
                   "backward", dtype, cols);
        }
    check_widths(GD_FLOAT32), check_widths(GD_BFLOAT16);
    printf("%d rings, %d wide, %d crews, %d failures\n", rings, wides, crews, failures);
    return failures || !rings || !wides || !crews;
}
