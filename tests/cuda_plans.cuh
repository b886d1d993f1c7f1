// cuda_plans.cuh - every way in which plan.cu divides a problem, each at the smallest of the sizes that
// are tried: with idle teams and lanes, partial slices, parts and chunks, and with steps after the first.
// cuda_plan compares the list with rms_norm_plans.txt, and cuda_rms_norm --plans runs it.
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
enum { PLAN_TYPES = 3, PLAN_MOST = 1 << 21 }; // packs of a problem, at most

static gd_rms::Sizes plan_sizes(int type, bool more, bool back, int64_t rows, int64_t heads,
                                int64_t packs)
{
    const PlanTypes &t = plan_types[type];
    return {rows, heads, packs, t.elements, back ? t.backward[more] : t.forward[more]};
}

// How a problem is divided, in words. Numbers that follow from the sizes alone, such as that of the
// blocks, are left out.
struct PlanWay {
    std::string text;

    void add(const char *what, int number)
    {
        text += std::string(text.empty() ? "" : " ") + what + " " + std::to_string(number);
    }
    void add(const char *what, bool is)
    {
        if (is) text += std::string(", ") + what;
    }
};

static PlanWay forward_way(const gd_rms::Sizes &s, bool more)
{
    const gd_rms::ForwardPlan p = gd_rms::plan_forward(s, more);
    const int rows = p.threads / p.threads_per_row;
    PlanWay way;
    way.add("chunks", p.chunks);
    way.add("team", p.threads_per_row <= 32 ? p.threads_per_row : 64);
    way.add("idle lanes", p.threads_per_row * p.chunks > s.packs);
    way.add("idle teams", s.rows % rows != 0);
    way.add("heads", s.heads > 1);
    return way;
}

static PlanWay block_way(const gd_rms::Sizes &s, const gd_cuda_limits &l)
{
    const gd_rms::BlockPlan p = gd_rms::plan_block(s, l);
    const int64_t tokens = s.rows / s.heads, steps = gd_ceil_div(tokens, p.tokens);
    PlanWay way;
    way.add("chunks", p.chunks);
    way.add("team", p.team <= 32 ? p.team : 64);
    way.add("stages", p.async ? p.stages : 0);
    way.add("parts", p.parts > 1);
    way.add("a partial part", (int64_t)p.parts * p.part_packs > s.packs);
    way.add("idle lanes", p.team * p.chunks > p.part_packs);
    way.add("idle teams", p.threads > p.slice * p.tokens * p.team);
    way.add("heads", s.heads > 1);
    way.add("slices", p.slices > 1);
    way.add("a partial slice", s.heads > 1 && (int64_t)p.slice * p.slices > s.heads);
    way.add("tokens side by side", p.tokens > 1);
    way.add("a partial step", tokens % p.tokens != 0);
    way.add("several steps", steps > p.partials);
    return way;
}

static PlanWay cluster_way(const gd_rms::Sizes &s, bool back, const gd_cuda_limits &l)
{
    const gd_rms::ClusterPlan p = gd_rms::plan_cluster(s, back, l);
    const int64_t share = gd_ceil_div(s.packs, p.cluster);
    PlanWay way;
    way.add("cluster", p.cluster);
    way.add("chunks", p.chunks);
    way.add("idle threads", (int64_t)p.consumers * p.chunks > share);
    way.add("a partial block", share * p.cluster > s.packs);
    way.add("several rows", s.rows > p.clusters);
    return way;
}

static PlanWay few_way(const gd_rms::Sizes &s)
{
    PlanWay way; // by the limits of backward_few
    way.add("chunks", s.packs <= 512 ? 1 : 2);
    way.add("columns", s.packs <= 128 && s.rows > 256 ? 2 : s.packs <= 512 && s.rows > 64 ? 4 : 8);
    way.add("a partial block", s.packs % 8 != 0);
    way.add("idle threads", s.packs % 256 != 0);
    return way;
}

static std::string plan_text(const gd_rms::Sizes &s, bool back, bool more, const gd_cuda_limits &l)
{
    switch (gd_rms::plan_kernel(s, back, l)) {
    case gd_rms::PLAIN:
        return "plain";
    case gd_rms::FEW:
        return "few: " + few_way(s).text;
    case gd_rms::BLOCK:
        return "block: " + (back ? block_way(s, l) : forward_way(s, more)).text;
    default:
        return "cluster: " + cluster_way(s, back, l).text;
    }
}

// A way, and the smallest problem that is divided so.
struct PlanCase {
    int type;
    bool more, back;
    int64_t tokens, heads, packs;
    std::string way;

    int64_t size() const
    {
        return tokens * heads * packs;
    }
    std::string text() const
    {
        return std::string(plan_types[type].name) + (back ? ", backward" : ", forward") +
               (!more  ? ""
                : back ? ", dsum"
                       : ", residual") +
               ": " + way + ": " + std::to_string(tokens) + " x " + std::to_string(heads) + " x " +
               std::to_string(packs * plan_types[type].elements);
    }
};

static void plan_cases_of(int type, bool more, bool back, const gd_cuda_limits &l,
                          std::vector<PlanCase> *all)
{
    std::map<std::string, PlanCase> least;
    const auto consider = [&](int64_t tokens, int64_t heads, int64_t packs) {
        const gd_rms::Sizes s = plan_sizes(type, more, back, tokens * heads, heads, packs);
        const PlanCase c = {type, more, back, tokens, heads, packs, plan_text(s, back, more, l)};
        const auto known = least.find(c.way);
        if (known == least.end())
            least.insert({c.way, c});
        else if (c.size() < known->second.size())
            known->second = c;
    };
    const auto next = [](int64_t n, int64_t all) { return n < all ? n + 1 : n + n / 7; };
    for (int64_t tokens = 1; tokens < 60000; tokens = next(tokens, 40))
        for (int64_t up : {0, 1}) { // to full blocks of whatever teams, too
            const int64_t some = up ? gd_ceil_div(tokens, 32) * 32 : tokens;
            for (int64_t heads = 1; heads < 100; heads = next(heads, 34))
                for (int64_t packs = 1; packs <= (heads == 1 ? 3000 : 300); packs = next(packs, 70))
                    if (some * heads * packs <= PLAN_MOST) consider(some, heads, packs);
            for (int64_t packs = 3000; packs < 80000; packs += 211)
                if (some * packs <= PLAN_MOST) consider(some, 1, packs);
        }
    for (const auto &c : least) all->push_back(c.second);
}

static std::vector<PlanCase> plan_cases(const gd_cuda_limits &l)
{
    std::vector<PlanCase> all;
    for (int type = 0; type < PLAN_TYPES; type++)
        for (int k = 0; k < 4; k++) plan_cases_of(type, k & 1, k & 2, l, &all);
    return all;
}

#endif
