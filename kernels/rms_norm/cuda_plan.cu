// cuda_plan.cu - the plans of plan.cu for the RMSNorm kernels, at every supported N: that a row,
// its stages and its registers fit. It needs no GPU.
//   cuda_plan FILE      also compares the list of all ways to divide a problem, each of which
//                       cuda_rms_norm --plans runs, with FILE
//   cuda_plan --list    prints the list
#include <stdio.h>
#include <string.h>

#include <fstream>

#include <set>
#include <vector>

#include "cuda_plans.cuh"
#include "row_ring.cuh"

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
    const bool even = adds || s.spread;
    const std::set<int> chunks = even ? std::set<int>{2, 4, 8} : std::set<int>{2, 3, 4, 6, 8};
    expect(chunks.count(p.chunks), "forward: no kernel", s);
    expect(p.chunks < 8 || p.threads <= (s.pack_bytes > 16 ? 512 : 1024), "forward: registers", s);
}

static bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

static void check_block(const Sizes &s, const gd_cuda_limits &l)
{
    const BlockPlan p = plan_block(s, l);
    const int teams = p.threads / p.team, warps = p.team / 32;
    const int64_t heads = s.heads, tokens = s.rows / s.heads;
    blocks++;
    expect(s.packs <= p.team * p.chunks, "block: a row finds no room", s);
    expect(!p.held || (heads == 1 && teams == 1), "block: several rows held", s);
    expect(p.threads == teams * p.team && p.threads % 32 == 0 && p.threads <= BLOCK_THREADS,
           "block: threads", s);
    expect(p.team >= 32 ? p.team % 32 == 0 : p.team >= 4 && is_power_of_two(p.team),
           "block: threads of a row", s);
    expect(warps < 2 || (teams <= 15 && teams * p.team_sums <= BLOCK_SUMS && p.team_sums >= warps &&
                         p.team_sums % 4 == 0),
           "block: teams", s);
    // The variants compiled in backward.cu.
    const int chunks = p.chunks, held = p.held ? s.pack_elements * chunks : 0;
    expect(p.held ? held == 24 || held == 32
                  : chunks == 1 || chunks == 2 || (chunks == 3 && p.async && s.pack_bytes == 32) ||
                        (chunks == 4 && s.pack_elements == 4),
           "block: no kernel", s);
    const int stage = (p.held ? 1 : chunks) * s.pack_bytes * p.threads;
    const int all = stage + 2 * BLOCK_SUMS * (int)sizeof(float), ahead = p.stages - chunks;
    expect(p.async == (l.async_copies && all <= l.block_shared) &&
               (p.held ? ahead == 2 || ahead == 3 : p.stages == 1 || p.stages == 2),
           "block: stages", s);
    const int64_t width = (int64_t)p.slice * s.packs * s.pack_elements;
    const int64_t ring = p.async ? (int64_t)p.stages * stage : 0;
    const int64_t sums = teams > 1 ? p.tokens * width * 4 : 0, own = 2 * BLOCK_SUMS * 4;
    expect(p.shared >= ring && p.shared >= sums && p.shared + own <= l.block_shared,
           "block: shared memory", s);
    expect(p.threads <= l.multiprocessor_threads, "block: threads of a multiprocessor", s);
    expect(p.slice * p.tokens <= teams && (int64_t)p.slice * p.slices >= heads &&
               (int64_t)p.slice * (p.slices - 1) < heads && p.tokens >= 1,
           "block: slices of heads", s);
    expect(p.blocks == p.partials * p.slices && p.partials >= 1 && p.partials <= tokens,
           "block: partial rows", s);
}

static void check_cluster(const Sizes &s, bool backward, const gd_cuda_limits &l)
{
    const ClusterPlan p = plan_cluster(s, backward, l);
    const int64_t share = gd_ceil_div(s.packs, p.cluster);
    const std::set<int> chunks = !backward              ? std::set<int>{5, 8}
                                 : s.pack_elements == 4 ? std::set<int>{2, 3, 5, 9}
                                                        : std::set<int>{2, 3, 5};
    clusters++;
    expect((int64_t)p.consumers * p.chunks >= share, "cluster: a row finds no room", s);
    expect(share * (p.cluster - 1) < s.packs, "cluster: a block has nothing", s);
    expect(p.consumers % 32 == 0 && p.consumers <= most_consumers(p.chunks), "cluster: threads", s);
    expect(chunks.count(p.chunks), "cluster: no kernel", s);
    expect(p.cluster * p.consumers / 32 <= MOST_SUMS, "cluster: too many sums", s);
    // Otherwise the producer waits for stages that no consumer can release yet.
    expect(p.stages > p.chunks + (backward ? 0 : 1), "cluster: too few stages", s);
    expect(p.stages <= MOST_STAGES && p.shared <= l.block_shared &&
               p.shared >= RING_AT + p.consumers * s.pack_bytes * p.stages,
           "cluster: shared memory", s);
    expect(l.bulk_copies && p.cluster <= l.cluster, "cluster: not on this GPU", s);
    expect(p.threads == p.consumers + 32 && p.blocks == p.clusters * p.cluster, "cluster: blocks",
           s);
    expect(p.clusters >= 1 && p.clusters <= s.rows, "cluster: partial rows", s);
    expect(!backward || 3 * (p.shared + 1024) > l.multiprocessor_shared ||
               p.shared + 1024 >= l.block_shared,
           "cluster: room for more blocks", s);
}

static void check(const Sizes &s, bool backward, bool more, const gd_cuda_limits &l)
{
    const Kernel kernel = plan_kernel(s, backward, l);
    if (kernel == BLOCK && !backward) check_forward(s, more);
    if (kernel == BLOCK && backward) check_block(s, l);
    if (kernel == CLUSTER) check_cluster(s, backward, l);
}

static void check_all(int type, int more, const gd_cuda_limits &l)
{
    const auto sizes = [&](int64_t rows, int64_t heads, int64_t packs, int back) {
        return plan_sizes(type, more, back, rows, heads, packs);
    };
    for (int64_t packs = 1; packs <= 75000; packs += packs < 3000 ? 1 : 11)
        for (int64_t rows : {1, 6, 100, 1000, 1000000})
            for (int back = 0; back < 2; back++) check(sizes(rows, 1, packs, back), back, more, l);
    for (int64_t heads : {2, 3, 8, 12, 32, 40, 100})
        for (int64_t packs = 1; packs <= 1100; packs += packs < 100 ? 1 : 50)
            for (int back = 0; back < 2; back++)
                check(sizes(heads * 1000, heads, packs, back), back, more, l);
    for (int64_t heads : {1, 8, 40})
        for (int64_t packs = 32; packs <= 9000; packs += 32)
            for (int back = 0; back < 2; back++) {
                Sizes s = sizes(heads * 1000, heads, packs, back);
                s.spread = true;
                check(s, back, more, limits_for(s, l));
            }
    const Sizes many = sizes(MOST_ROWS + 1, 1, 16, true);
    expect(plan_kernel(many, true, l) == PLAIN, "too many rows", many);
}

// ---- The list of all ways -----------------------------------------------------------------------

// On an H200, of code for 9.0; of code for 8.0; the same under the limits of an 8.9.
static std::vector<std::pair<std::string, gd_cuda_limits>> listed_limits()
{
    gd_cuda_limits older = gd_cuda_limits_of(90);
    older.code = 80, older.cluster = 1, older.bulk_copies = false;
    return {{"9.0", gd_cuda_limits_of(90)}, {"8.0", older}, {"8.9", gd_cuda_limits_of(89)}};
}

// A line for each way: of how many kinds of inputs (of three, without and with one more) under
// which limits.
static std::vector<std::string> list_ways()
{
    std::map<std::string, std::string> ways;
    for (const auto &named : listed_limits()) {
        std::map<std::string, int> kinds;
        for (const PlanCase &c : plan_cases(named.second))
            kinds[(c.back ? "backward, " : "forward, ") + c.way(named.second)]++;
        for (const auto &kind : kinds)
            ways[kind.first] += "; " + named.first + ": " + std::to_string(kind.second);
    }
    std::vector<std::string> lines;
    for (const auto &way : ways) lines.push_back(way.first + way.second);
    return lines;
}

static int print_list()
{
    for (const std::string &line : list_ways()) printf("%s\n", line.c_str());
    return 0;
}

static void compare_list(const char *path)
{
    std::ifstream file(path);
    std::set<std::string> want;
    for (std::string line; std::getline(file, line);) want.insert(line);
    if (want.empty()) printf("%s: no lines\n", path), failures++;
    for (const std::string &line : list_ways())
        if (!want.erase(line)) printf("not in %s: %s\n", path, line.c_str()), failures++;
    for (const std::string &line : want)
        printf("no longer a way, fix %s by --list: %s\n", path, line.c_str()), failures++;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--list")) return print_list();
    std::vector<gd_cuda_limits> all;
    for (int capability : {75, 80, 86, 87, 89, 90, 100, 120, 121})
        all.push_back(gd_cuda_limits_of(capability));
    for (int part = 0; part < 5; part++) { // of a GPU that has everything else
        gd_cuda_limits l = gd_cuda_limits_of(90);
        if (part == 0) l.cluster = 1;
        if (part == 1) l.bulk_copies = false;
        if (part == 2) l.async_copies = false;
        if (part == 4) l.multiprocessor_bytes = 25 * 1024; // an H100
        if (part == 3) l.block_shared = 64 * 1024, l.multiprocessor_threads = 1024;
        all.push_back(l);
    }
    for (const gd_cuda_limits &l : all)
        for (int type = 0; type < 3; type++)
            for (int more = 0; more < 2; more++) check_all(type, more, l);
    // 4096 columns of 16 bits: a block of a ring where memory is an H200's, not where it
    // is an H100's.
    const Sizes s = plan_sizes(1, false, true, 32768, 1, 512);
    expect(plan_kernel(s, true, all[5]) == CLUSTER && plan_cluster(s, true, all[5]).cluster == 1,
           "fast memory", s);
    expect(plan_kernel(s, true, all.back()) == BLOCK, "slower memory", s);
    if (argc == 2) compare_list(argv[1]);
    printf("%d forwards, %d blocks, %d clusters, %d failures\n", forwards, blocks, clusters,
           failures);
    return failures || !forwards || !blocks || !clusters;
}
