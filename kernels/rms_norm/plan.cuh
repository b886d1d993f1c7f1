// plan.cuh - which kernel runs a problem, and with which launch parameters.
//
// A plan depends on the sizes and dtypes alone, never on the GPU, so that the order of every sum is
// the same everywhere: a GPU with fewer multiprocessors runs the same blocks in more than one wave.
#ifndef GD_RMS_NORM_PLAN_CUH
#define GD_RMS_NORM_PLAN_CUH

#include "gradus/kernels.h"
#include "launch.cuh"

namespace gd_rms
{
using namespace gd_async;

constexpr int MULTIPROCESSORS = 132; // of an H200, for which the plans are made

// Sizes as the plans use them: rows of `packs` packs (kernels.cuh), of `pack_bytes` bytes in all
// inputs together.
struct Sizes {
    int64_t rows, heads, packs;
    int pack_elements, pack_bytes;
};

// The forward in registers: each thread has `chunks` packs of a row.
struct ForwardPlan : Shape {
    int chunks, threads_per_row;
};
ForwardPlan plan_forward(const Sizes &s, bool adds);

// The backward of rows that fit in a block: teams of threads_per_row threads, or of one warp.
struct BlockPlan : Shape {
    int teams, threads_per_row, groups; // groups: rows of a warp
    int slice, slices;                  // heads of a slice, at most; slices of all heads
    int stage_tokens, stages;           // tokens that arrive together; stages of a team
    int64_t partials;                   // P; the blocks are as many for each slice
};
BlockPlan plan_block(const Sizes &s);

constexpr int BLOCK_PACKS = 1024;    // of a row, at most
constexpr int MOST_TEAMS = 15;       // of several warps: named barrier 0 is that of the whole block
constexpr int MOST_TEAM_STAGES = 96; // teams times stages
constexpr int BLOCK_REGISTERS = 128; // of a thread, at most, and so ...
constexpr int BLOCK_THREADS = 512;   // ... threads of a block
constexpr int64_t MOST_ROWS =
    1 << 30; // they are counted in 32 bits, also a few steps past the last

// The shared memory of a block before its stages.
struct BlockShared {
    uint64_t full[MOST_TEAM_STAGES];  // [teams, stages]: a stage is there
    uint64_t drained, gathered;       // at the end: all pipelines are empty, all sums are there
    float sums[2][MOST_TEAMS * 16];   // [2, teams, 16 warps]
    float rstd[MOST_TEAM_STAGES][32]; // [teams, stages]: of a stage's rows
};
constexpr int STAGES_AT = (sizeof(BlockShared) + 127) / 128 * 128;

// Rows that a cluster of blocks shares, each with `consumers` threads and a producer, a warp.
struct ClusterPlan : Shape {
    int chunks, consumers, stages;
    int64_t clusters; // the backward's P
};
ClusterPlan plan_cluster(const Sizes &s, bool backward);
// Of a block; with the producer that is 16 warps, which leaves 128 registers to a thread.
constexpr int most_consumers(int chunks)
{
    return chunks == 8 ? 512 : 480;
}

enum Kernel { PLAIN, FEW, BLOCK, CLUSTER };
Kernel plan_kernel(const Sizes &s, bool backward);

inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

} // namespace gd_rms
#endif
