// cuda_plans.cuh - every way in which plan.cu divides a problem, each at the smallest of the
// sizes that are tried: with idle teams and lanes, partial slices and chunks, rows that are held,
// and with steps after the first. cuda_plan compares the list with rms_norm_plans.txt, and
// cuda_rms_norm --plans runs it.
#ifndef GRADUS_CUDA_PLANS_CUH
#define GRADUS_CUDA_PLANS_CUH

#include <map>
#include <string>
#include <vector>

#include "rms_norm/plan.cuh"

struct PlanTypes {
    const char *name;
    int elements; // of a pack
    int forward[2],
        backward[2]; // bytes of a pack of all inputs, without and with a residual or dsum
};
static const PlanTypes plan_types[] = {{"float32", 4, {16, 32}, {32, 48}},
                                       {"16 bits", 8, {16, 32}, {32, 48}},
                                       {"float32 and 16 bits", 8, {32, 48}, {48, 80}}};
enum { PLAN_TYPES = 3, PLAN_MOST = 1 << 23 }; // packs of a problem, at most

static gd_rms::Sizes plan_sizes(int type, bool more, bool back, int64_t rows, int64_t heads,
                                int64_t packs)
{
    const PlanTypes &t = plan_types[type];
    return {rows, heads, packs, t.elements, back ? t.backward[more] : t.forward[more]};
}

// How a problem is divided: as one number, and in words. Numbers that follow from the sizes alone,
// such as that of the blocks, are left out.
struct PlanKey {
    uint64_t key = 0;
    int at = 0;

    void number(const char *, int n)
    {
        key |= (uint64_t)n << at, at += 8;
    }
    void is(const char *, bool holds)
    {
        key |= (uint64_t)holds << at++;
    }
};
struct PlanWords {
    std::string text;

    void number(const char *what, int n)
    {
        text += std::string(text.empty() ? "" : " ") + what + " " + std::to_string(n);
    }
    void is(const char *what, bool holds)
    {
        if (holds) text += std::string(", ") + what;
    }
};

template <class Way>
static void forward_way(Way &way, const gd_rms::Sizes &s, bool more)
{
    const gd_rms::ForwardPlan p = gd_rms::plan_forward(s, more);
    way.number("chunks", p.chunks);
    way.number("team", p.threads_per_row <= 32 ? p.threads_per_row : 64);
    way.is("idle lanes", p.threads_per_row * p.chunks > s.packs);
    way.is("idle teams", s.rows % (p.threads / p.threads_per_row) != 0);
    way.is("heads", s.heads > 1);
}

template <class Way>
static void block_way(Way &way, const gd_rms::Sizes &s, const gd_cuda_limits &l)
{
    const gd_rms::BlockPlan p = gd_rms::plan_block(s, l);
    const int64_t tokens = s.rows / s.heads;
    way.number("chunks", p.chunks);
    way.number("team", p.team <= 32 ? p.team : 64);
    way.number("stages", p.async ? p.stages : 0);
    way.is("held", p.held);
    way.is("idle lanes", p.team * p.chunks > s.packs);
    way.is("idle teams", p.threads > p.slice * p.tokens * p.team);
    way.is("heads", s.heads > 1);
    way.is("slices", p.slices > 1);
    way.is("a partial slice", s.heads > 1 && (int64_t)p.slice * p.slices > s.heads);
    way.is("tokens side by side", p.tokens > 1);
    way.is("a partial step", tokens % p.tokens != 0);
    way.is("several steps", gd_ceil_div(tokens, p.tokens) > p.partials);
}

template <class Way>
static void cluster_way(Way &way, const gd_rms::Sizes &s, bool back, const gd_cuda_limits &l)
{
    const gd_rms::ClusterPlan p = gd_rms::plan_cluster(s, back, l);
    const int64_t share = gd_ceil_div(s.packs, p.cluster);
    way.number("cluster", p.cluster);
    way.number("chunks", p.chunks);
    way.is("idle threads", (int64_t)p.consumers * p.chunks > share);
    way.is("a partial block", share * p.cluster > s.packs);
    way.is("several rows", s.rows > p.clusters);
}

template <class Way>
static void few_way(Way &way, const gd_rms::Sizes &s) // by the limits of backward_few
{
    way.number("chunks", s.packs <= 512 ? 1 : 2);
    way.number("columns", s.packs <= 128 && s.rows > 256  ? 2
                          : s.packs <= 512 && s.rows > 64 ? 4
                                                          : 8);
    way.is("a partial block", s.packs % 8 != 0);
    way.is("idle threads", s.packs % 256 != 0);
}

static const char *const plan_kernels[] = {"plain", "few", "block", "cluster"};

template <class Way>
static gd_rms::Kernel plan_way(Way &way, const gd_rms::Sizes &s, bool back, bool more,
                               const gd_cuda_limits &l)
{
    const gd_rms::Kernel kernel = gd_rms::plan_kernel(s, back, l);
    if (kernel == gd_rms::FEW) few_way(way, s);
    if (kernel == gd_rms::BLOCK && !back) forward_way(way, s, more);
    if (kernel == gd_rms::BLOCK && back) block_way(way, s, l);
    if (kernel == gd_rms::CLUSTER) cluster_way(way, s, back, l);
    return kernel;
}

// A problem, the smallest that is divided in its way.
struct PlanCase {
    int type;
    bool more, back;
    int64_t tokens, heads, packs;

    int64_t size() const
    {
        return tokens * heads * packs;
    }
    gd_rms::Sizes sizes() const
    {
        return plan_sizes(type, more, back, tokens * heads, heads, packs);
    }
    std::string way(const gd_cuda_limits &l) const
    {
        PlanWords words;
        const gd_rms::Kernel kernel = plan_way(words, sizes(), back, more, l);
        return plan_kernels[kernel] + (words.text.empty() ? "" : ": " + words.text);
    }
};

using PlanCases = std::map<uint64_t, PlanCase>;

static void consider(PlanCases *least, const PlanCase &c, const gd_cuda_limits &l)
{
    PlanKey way;
    const uint64_t kernel = plan_way(way, c.sizes(), c.back, c.more, l);
    const auto known = least->insert({way.key << 2 | kernel, c}).first;
    if (c.size() < known->second.size()) known->second = c;
}

// Numbers of tokens between which rules of plan.cu choose differently; each also in full steps, and
// with one more.
static void consider_tokens(PlanCases *least, PlanCase c, const gd_cuda_limits &l)
{
    int64_t step = 32, at_once = 133;
    c.tokens = 1 << 20;
    const gd_rms::BlockPlan p = c.back ? gd_rms::plan_block(c.sizes(), l) : gd_rms::BlockPlan();
    if (p.blocks) step = p.tokens, at_once = gd_ceil_div(c.tokens, p.tokens) > 0 ? p.partials : 1;
    const int64_t bytes = c.sizes().pack_bytes, row = c.heads * c.packs;
    for (int64_t least_tokens : {(int64_t)1, (int64_t)2, (int64_t)3, (int64_t)65, (int64_t)257,
                                 (int64_t)513, (int64_t)1025, (int64_t)16384, at_once * step + 1,
                                 (1 << 20) / row + 1, (128 << 20) / (row * bytes) + 1})
        for (int64_t more : {0, 1, 2}) {
            c.tokens = more ? gd_ceil_div(least_tokens, step) * step + more - 1 : least_tokens;
            if (c.size() <= PLAN_MOST) consider(least, c, l);
        }
}

static std::vector<PlanCase> plan_cases(const gd_cuda_limits &l)
{
    std::vector<PlanCase> all;
    std::vector<int64_t> widths; // in packs
    for (int64_t n = 1; n < 72; n++) widths.push_back(n);
    for (int64_t n = 72; n < 80000; n += n < 1200 ? 8 : 16)
        for (int64_t packs : {n - 1, n, n + 1}) widths.push_back(packs);
    for (int type = 0; type < PLAN_TYPES; type++)
        for (int k = 0; k < 4; k++) {
            PlanCases least;
            for (int64_t heads = 1; heads <= 128; heads++)
                for (int64_t packs : widths)
                    if (heads == 1 || packs < 1100)
                        consider_tokens(&least, {type, (k & 1) != 0, (k & 2) != 0, 1, heads, packs},
                                        l);
            for (const auto &c : least) all.push_back(c.second);
        }
    return all;
}

#endif
