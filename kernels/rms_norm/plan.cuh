// plan.cuh - which kernel runs a problem, and with which launch parameters.
//
// A plan depends on the sizes, the dtypes, the compute capability and the limits of
// device_limits.h, and on nothing else, so that the order of every sum is the same on all GPUs that
// are equal in these: one with fewer multiprocessors runs the same blocks in more waves.
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
    bool spread = false; // kernels.cuh; packs are counted in warps
};

// Spread packs are loaded by threads alone.
static inline gd_cuda_limits limits_for(const Sizes &s, gd_cuda_limits l)
{
    if (s.spread) l.async_copies = l.bulk_copies = false;
    return l;
}

// The forward in registers: each thread has `chunks` packs of a row.
struct ForwardPlan : Shape {
    int chunks, threads_per_row;
};
ForwardPlan plan_forward(const Sizes &s, bool adds);

// The backward of rows that fit in a block.
struct BlockPlan : Shape {
    int team, chunks;   // threads that share a row; packs of it for each, at most
    int slice, slices;  // heads of a block, at most; slices of all heads
    int tokens, stages; // that a block works on at a time; steps that are on their way
    int team_sums;      // room for the sums of a team's warps
    bool async;         // cp.async
    bool held;          // rows stay in shared memory; a stage is a chunk of a row
    int64_t partials;   // P; the blocks are as many for each slice
};
// No blocks if it does not fit.
BlockPlan plan_block(const Sizes &s, const gd_cuda_limits &l);

constexpr int BLOCK_ELEMENTS = 16; // of a row, for each thread, at most
constexpr int BLOCK_THREADS = 512;
constexpr int BLOCK_SUMS = 32; // floats for the sums of all teams' warps
constexpr int64_t MOST_ROWS =
    1 << 30; // they are counted in 32 bits, also a few steps past the last

// Rows that a cluster of blocks shares, each with `consumers` threads and a producer, a warp.
struct ClusterPlan : Shape {
    int chunks, consumers, stages;
    int64_t clusters; // the backward's P
};
ClusterPlan plan_cluster(const Sizes &s, bool backward, const gd_cuda_limits &l);
// Threads of a block; with the producer that is 16 warps, which leaves 128 registers to a thread.
constexpr int most_consumers(int chunks)
{
    return chunks == 8 ? 512 : 480;
}

enum Kernel { PLAIN, FEW, BLOCK, CLUSTER };
Kernel plan_kernel(const Sizes &s, bool backward, const gd_cuda_limits &l);

constexpr int FEW_ROWS = 512, FEW_PACKS = 1024; // of the backward for few rows, at most

} // namespace gd_rms
#endif
