// plan.cuh - what the CUDA files of RMSNorm share: the problem as the kernels get it, the plan of
// how to run it, and one function per kernel that adds it to the launches.
//
// rms_norm.cu checks a call and makes its plan, launch.cu puts the kernels on the stream; each
// kernel has a file of its own:
//   forward.cu         y and rstd: some lanes or a block for each row
//   forward_ring.cu    the same for rows that no block can hold
//   forward.cuh        the arithmetic of both
//   backward_rows.cu   dx and partial dw for rows that a block can hold: crews of threads
//   backward_ring.cu   dx and partial dw for rows that no block can hold: a cluster for each
//   backward_small.cu  dx and dw for few rows, in one kernel
//   ring.cuh           what the two rings share
//   dweight.cu         partial dw -> dw
//   fallback.cu        everything for any size, alignment and dtype
#ifndef GD_RMS_NORM_PLAN_CUH
#define GD_RMS_NORM_PLAN_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "gradus/kernels.h"

namespace gd_rms
{

struct Forward {
    void *y;
    void *rstd;
    const void *x;
    const void *weight;
    const void *bias;
    int64_t rows, cols;
    int64_t y_stride, x_stride;
    double eps, offset;
    gd_dtype weight_dtype;
    bool round;    // before the weight
    float per_col; // 1 / cols
    bool keep;     // x shall outlive y in L2 (pack.cuh)
    int waiting;   // the first blocks, which bring x to L2 while the kernel ahead ends
};

struct Backward {
    void *dx;
    void *partial; // [P, N] sums of dweight, float or double; NULL: not wanted
    const void *dy;
    const void *x;
    const void *rstd;
    const void *weight;
    int64_t rows, cols;
    int64_t dx_stride, dy_stride, x_stride;
    double offset;
    gd_dtype weight_dtype;
    bool round;
    bool keep;   // x and dy shall outlive dx in L2 (pack.cuh)
    int waiting; // SMALL: the first rows, which are brought to L2 while the kernel ahead ends
};

// What most calls are: a weight of x's own dtype, no bias, no rounding before the weight. Kernels
// that know it are shorter and take fewer registers.
inline bool is_plain(const Forward &a, gd_dtype dtype)
{
    return a.weight && !a.bias && !a.round && a.weight_dtype == dtype;
}

// Where a kernel that needs no partial sums puts dw.
struct SmallDweight {
    void *dweight; // NULL: not wanted
    gd_dtype dtype;
    bool accumulate;
};

enum Kernel { FALLBACK, ROWS, WIDE, RING, SMALL };

// How to run a forward. ROWS: `lanes` lanes of a warp share a row, and have `rows` of them at once.
// WIDE: a block has a row. RING: a cluster has a row, or one for each of its teams, that comes
// through a ring. Each thread has `chunks` vectors of 16 bytes of a row.
struct ForwardPlan {
    Kernel kernel;
    int lanes, rows, chunks;
    int threads, cluster;
    bool early;                  // WIDE: the weight is read before the sum
    int blocks;                  // WIDE: how many a multiprocessor shall hold
    int teams, clusters, stages; // RING
    int tile_chunks;             // RING: of a thread's chunks, how many arrive together
    int lead;                    // RING: tiles that writing a row is behind reading the next
};

// How to run a backward. The first two say it all for the fallback. ROWS: `lanes` threads share a
// row (8 lanes of a warp to 512 threads), crews of as many make up a block. RING: a cluster has a
// row, or one for each of its teams. SMALL: a block has a row of dx, or some columns of dw. In the
// last two each thread has `chunks` vectors.
struct BackwardPlan {
    Kernel kernel;
    int64_t partials; // P: rows of the partial buffer, which is also the number of blocks or teams
    int lanes, chunks;
    int threads, cluster, teams;
    int columns;     // SMALL: of dw to a block, in vectors
    int tile_chunks; // RING: of a thread's chunks, how many arrive together
    int stage_rows;  // ROWS: rows that arrive together
    bool guard;      // ROWS: see backward_rows.cu
    int stages;      // depth of the ring
    int lead;        // RING: tiles that writing a row is behind reading the next
};

// Plans depend on the sizes and the dtype alone, never on the GPU, so that the order of every sum
// is the same everywhere.
ForwardPlan plan_forward(int64_t rows, int64_t cols, gd_dtype dtype);
BackwardPlan plan_backward(int64_t rows, int64_t cols, gd_dtype dtype);
BackwardPlan plan_backward_small(int64_t rows, int64_t cols, gd_dtype dtype); // or FALLBACK: not so
int64_t fallback_partials(int64_t rows, int64_t cols);

// Each adds a kernel to what the call launches (launch.cuh), or says what is wrong with it.
struct Launches;
cudaError_t add_forward(const Forward &a, const ForwardPlan &plan, gd_dtype dtype, Launches *to);
cudaError_t add_forward_ring(const Forward &a, const ForwardPlan &plan, gd_dtype dtype,
                             Launches *to);
cudaError_t add_backward_rows(const Backward &a, const BackwardPlan &plan, gd_dtype dtype,
                              Launches *to);
cudaError_t add_backward_ring(const Backward &a, const BackwardPlan &plan, gd_dtype dtype,
                              Launches *to);
cudaError_t add_backward_small(const Backward &a, const SmallDweight &d, const BackwardPlan &plan,
                               gd_dtype dtype, Launches *to);
cudaError_t add_dweight(void *dweight, gd_dtype dweight_dtype, bool accumulate, const void *partial,
                        bool partial_is_double, int64_t partials, int64_t cols,
                        bool after_fast_kernel, Launches *to);

cudaError_t fallback_forward(const Forward &a, gd_dtype dtype, Launches *to);
cudaError_t fallback_dx(const Backward &a, gd_dtype dtype, Launches *to);
// partial = sums over rows p, p + P, ... of dy * xhat, or of dy alone for the bias
cudaError_t fallback_partials_of(const Backward &a, gd_dtype dtype, bool bias, int64_t partials,
                                 Launches *to);

// Whether the device that is current can run, and this file was compiled for, what came with
// compute capability 9.0: bulk copies, transaction barriers, clusters.
bool have_hopper();

// The most dynamic shared memory that one block can have there.
constexpr int max_shared = 232448;

// WIDE: the most threads of a block, of which a multiprocessor shall hold so many.
constexpr int wide_threads(int chunks, int blocks)
{
    return blocks == 1 ? 1024 : blocks == 4 ? 512 : chunks == 8 ? 640 : 704;
}

// What a plan of crews must keep to (backward_rows.cu): rows are counted in 32 bits, also those a
// few steps behind the last; barrier 0 is that of the whole block; a thread has so many registers;
// the rings begin behind the barriers and sums.
constexpr int64_t MOST_ROWS = 1 << 30;
constexpr int MOST_CREWS = 15;
constexpr int MOST_CREW_STAGES = 128; // crews times stages
constexpr int ROWS_RING_AT = 2048;
constexpr int crew_registers(size_t element)
{
    return element == 4 ? 112 : 128;
}

inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

} // namespace gd_rms
#endif
