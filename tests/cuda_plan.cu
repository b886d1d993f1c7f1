// cuda_plan.cu - the plans of plan.cu for the RMSNorm kernels, at every supported N: that a row,
// its stages and its registers fit, and that cuda_rms_norm tests that kind of plan. It needs no
// GPU.
#include <stdio.h>

#include <set>
#include <vector>

#include "cuda_widths.h"
#include "rms_norm/ring.cuh"

using namespace gd_rms;

static int failures, forwards, blocks, clusters;

static void expect(bool ok, const char *what, const Sizes &s)
{
    if (ok) return;
    failures++;
    if (failures <= 20)
        printf("%s: rows %lld, heads %lld, %lld packs of %d elements and %d bytes\n", what,
               (long long)s.rows, (long long)s.heads, (long long)s.packs, s.pack_elements,
               s.pack_bytes);
}

static void check_forward(const Sizes &s, bool adds)
{
    const ForwardPlan p = plan_forward(s, adds);
    const bool warp = p.threads_per_row <= 32;
    forwards++;
    expect((int64_t)p.threads_per_row * p.chunks >= s.packs, "forward: a row finds no room", s);
    expect(p.threads % 32 == 0 && p.threads <= 1024, "forward: threads", s);
    expect(p.blocks * (p.threads / p.threads_per_row) >= s.rows, "forward: blocks", s);
    expect(warp ? (p.threads_per_row & (p.threads_per_row - 1)) == 0
                : p.threads == p.threads_per_row,
           "forward: threads to a row", s);
    // The variants compiled in forward.cu, and never more than 128 registers a thread for c = 8.
    const std::set<int> chunks = adds ? std::set<int>{2, 4, 8} : std::set<int>{2, 3, 4, 6, 8};
    expect(chunks.count(p.chunks), "forward: no kernel", s);
    expect(p.chunks < 8 || p.threads <= 512, "forward: registers", s);
}

static void check_block(const Sizes &s)
{
    const BlockPlan p = plan_block(s);
    const bool warp = p.threads_per_row <= 32;
    const int size = warp ? 32 : p.threads_per_row, teams = p.threads / size;
    const int groups = warp ? 32 / p.threads_per_row : 1;
    const int64_t slice = s.heads > 1 ? (s.heads < groups ? s.heads : groups) : 1;
    const int64_t token = slice * s.packs * s.pack_bytes, width = slice * s.packs * s.pack_elements;
    blocks++;
    expect(2 * p.threads_per_row >= s.packs, "block: a row finds no room", s);
    expect(p.threads == teams * size && p.threads <= BLOCK_THREADS, "block: threads", s);
    expect(warp || teams <= MOST_TEAMS, "block: teams", s);
    // One stage only of the shortest rows, and with the tokens of two.
    const int64_t at_once = s.heads > 1 ? 1 : groups;
    expect(p.stages >= 2 || (s.packs <= 8 && p.stage_tokens >= 2 * at_once), "block: one stage", s);
    expect(p.stages >= 1 && teams * p.stages <= MOST_TEAM_STAGES, "block: stages", s);
    expect(p.stage_tokens * slice <= 32, "block: rstd of a stage", s);
    const int64_t ring = teams * p.stages * p.stage_tokens * token;
    const int64_t sums = teams > 1 ? teams * width * 4 : 0;
    // Two blocks per multiprocessor if there are that many.
    const int64_t slices = s.heads > 1 ? ceil_div(s.heads, groups) : 1;
    const int64_t room = p.partials * slices > 132 + slices ? MAX_SHARED / 2 - 1024 : MAX_SHARED;
    expect(p.shared <= room && p.shared == STAGES_AT + (ring > sums ? ring : sums),
           "block: shared memory", s);
    expect(p.slices == slices && p.blocks == p.partials * slices, "block: slices of heads", s);
    expect(p.partials >= 1 && p.partials <= s.rows / s.heads, "block: partial rows", s);
}

static void check_cluster(const Sizes &s, bool backward)
{
    const ClusterPlan p = plan_cluster(s, backward);
    const int64_t share = ceil_div(s.packs, p.cluster);
    const std::set<int> chunks = !backward              ? std::set<int>{5, 8}
                                 : s.pack_elements == 4 ? std::set<int>{3, 5, 9}
                                                        : std::set<int>{3, 5};
    clusters++;
    expect((int64_t)p.consumers * p.chunks >= share, "cluster: a row finds no room", s);
    expect(share * (p.cluster - 1) < s.packs, "cluster: a block has nothing", s);
    expect(p.consumers % 32 == 0 && p.consumers <= most_consumers(p.chunks), "cluster: threads", s);
    expect(chunks.count(p.chunks), "cluster: no kernel", s);
    expect(p.cluster * p.consumers / 32 <= MOST_SUMS, "cluster: too many sums", s);
    // Otherwise the producer waits for stages that no consumer can release yet.
    expect(p.stages > p.chunks + (backward ? 0 : 1), "cluster: too few stages", s);
    expect(p.stages <= MOST_STAGES && p.shared <= MAX_SHARED &&
               p.shared == RING_AT + p.consumers * s.pack_bytes * p.stages,
           "cluster: shared memory", s);
    expect(p.threads == p.consumers + 32 && p.blocks == p.clusters * p.cluster, "cluster: blocks",
           s);
    expect(p.clusters >= 1 && p.clusters <= s.rows, "cluster: partial rows", s);
}

// The kernel of a problem, and how its threads share a row: threads, stages and partial rows follow
// from the sizes.
static std::vector<int> way_of(const Sizes &s, bool backward, bool more)
{
    const Kernel kernel = plan_kernel(s, backward);
    if (kernel == BLOCK && !backward) {
        const ForwardPlan p = plan_forward(s, more);
        return {kernel, p.chunks, p.threads_per_row <= 32 ? p.threads_per_row : 64};
    }
    if (kernel == BLOCK) {
        const BlockPlan p = plan_block(s);
        return {kernel, p.threads_per_row <= 32 ? p.threads_per_row : 64};
    }
    if (kernel == CLUSTER) {
        const ClusterPlan p = plan_cluster(s, backward);
        return {kernel, p.cluster, p.chunks};
    }
    return {kernel};
}

// The bytes of a pack of all inputs, without and with a residual or dsum.
struct Types {
    int elements, forward[2], backward[2];
};
static const Types types[] = {{4, {16, 32}, {32, 48}},  // float32
                              {8, {16, 32}, {32, 48}},  // 16 bits
                              {8, {32, 48}, {48, 80}}}; // float32 and 16 bits

int main()
{
    for (const Types &t : types)
        for (int more = 0; more < 2; more++) {
            std::set<std::vector<int>> tested[2];
            for (int64_t cols : cuda_widths) {
                if (cols % t.elements) continue;
                const int64_t rows = cuda_rows(cols, false), packs = cols / t.elements;
                for (int back = 0; back < 2; back++)
                    tested[back].insert(way_of(
                        {rows, 1, packs, t.elements, back ? t.backward[more] : t.forward[more]},
                        back, more));
            }
            for (int64_t packs = 1; packs <= 75000; packs++)
                for (int64_t rows : {1, 6, 100, 1000, 1000000})
                    for (int back = 0; back < 2; back++) {
                        const Sizes s = {rows, 1, packs, t.elements,
                                         back ? t.backward[more] : t.forward[more]};
                        const Kernel kernel = plan_kernel(s, back);
                        if (kernel == BLOCK && !back) check_forward(s, more);
                        if (kernel == BLOCK && back) check_block(s);
                        if (kernel == CLUSTER) check_cluster(s, back);
                        if (rows >= 1000 && packs * t.elements <= 262144)
                            expect(tested[back].count(way_of(s, back, more)),
                                   back ? "backward: not tested on a GPU"
                                        : "forward: not tested on a GPU",
                                   s);
                    }
            for (int64_t heads : {2, 3, 8, 12, 32, 40, 100})
                for (int64_t packs = 1; packs <= 100; packs++)
                    for (int back = 0; back < 2; back++) {
                        const Sizes s = {heads * 1000, heads, packs, t.elements,
                                         back ? t.backward[more] : t.forward[more]};
                        if (plan_kernel(s, back) != BLOCK) continue;
                        if (back)
                            check_block(s);
                        else
                            check_forward(s, more);
                    }
            const Sizes many = {MOST_ROWS + 1, 1, 16, t.elements, t.backward[more]};
            expect(plan_kernel(many, true) == PLAIN, "too many rows", many);
        }
    printf("%d forwards, %d blocks, %d clusters, %d failures\n", forwards, blocks, clusters,
           failures);
    return failures || !forwards || !blocks || !clusters;
}
