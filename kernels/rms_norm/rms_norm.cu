// rms_norm.cu - the functions of gradus/kernels.h on CUDA: checks the call, chooses its kernels and
// launches them.
#include "rms_norm/kernels.cuh"
#include "rms_norm/rms_norm.h"

namespace gd_rms
{

// ---- The call -----------------------------------------------------------------------------------

static int size_of(gd_dtype dtype)
{
    return (int)gd_dtype_size(dtype);
}

static Problem problem_of(const gd_rms_norm_problem &p, bool backward)
{
    Problem a = {p, false, false, (float)gd_option_of_dtype(GD_FLOAT32, p.eps), (float)p.offset, 0};
    if (a.heads < 1) a.heads = 1;
    if (a.cols > 0) a.per_col = 1.0f / (float)a.cols;
    a.is_double = rms_norm_in_double(&p);
    // Tensors too large to stay in L2, some 50 MB, from one kernel to the next anyway are loaded
    // with evict_last. Smaller ones are slower with it.
    a.keep = a.rows * a.cols * size_of(a.dtype) >= (backward ? 80 << 20 : 32 << 20);
    return a;
}

// `more`: another input of dtype, or in the forward of y_dtype, besides those always present.
static Sizes sizes_of(const Problem &p, bool backward, bool more, bool aligned)
{
    Sizes s = {p.rows, p.heads, 0, 0, 0};
    const int size = size_of(p.dtype), y_size = size_of(p.y_dtype);
    const bool types = p.dtype != GD_FLOAT64 && size <= 4 && p.y_dtype != GD_FLOAT64 &&
                       (p.dtype == p.y_dtype || (size == 4 && y_size == 2));
    s.pack_elements = 16 / (size < y_size ? size : y_size);
    s.spread = !aligned || p.cols % s.pack_elements != 0;
    const int unit = s.spread ? 32 : 1;
    if (types) s.packs = gd_ceil_div(p.cols, unit * s.pack_elements) * unit;
    s.pack_bytes = s.pack_elements *
                   (backward ? size + y_size + (more ? size : 0) : size + (more ? y_size : 0));
    return s;
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

// How plain.cu reads; fast: as fast_weight says.
static Access access_of(const Sizes &s, bool fast)
{
    return !fast || s.packs == 0 ? ANY_DTYPE : s.spread ? SPREAD_PACKS : PACKS;
}

static bool aligned_rows(const void *p, int64_t stride, gd_dtype dtype)
{
    return aligned(p) && (!p || stride * size_of(dtype) % 16 == 0);
}

// The fast kernels compute in float32, and rstd is double if anything is.
static bool fast_weight(const Problem &p, bool weight)
{
    const bool known = p.weight_dtype == GD_FLOAT32 || p.weight_dtype == p.y_dtype;
    return (known || !weight) && !p.is_double;
}

static gd_status status_of(cudaError_t error)
{
    if (!error) return GD_OK;
    (void)cudaGetLastError(); // it has been reported now
    return error == cudaErrorMemoryAllocation ? GD_ERROR_MEMORY : GD_ERROR_DEVICE;
}

// ---- Forward ------------------------------------------------------------------------------------

static cudaError_t launch_forward(const Forward &a, cudaStream_t stream)
{
    const bool adds = a.residual;
    const bool packs = aligned_rows(a.x, a.x_stride, adds ? a.y_dtype : a.dtype) &&
                       aligned_rows(a.y, a.y_stride, a.y_dtype) &&
                       aligned_rows(a.residual, a.residual_stride, a.dtype) &&
                       aligned_rows(adds ? a.sum : nullptr, a.sum_stride, a.dtype) &&
                       aligned(a.weight) && aligned(a.bias);
    const Sizes s = sizes_of(a, false, adds, packs);
    const gd_cuda_limits limits = limits_for(s, gd_cuda_device_limits());
    const bool fast = fast_weight(a, a.weight || a.bias);
    const Kernel kernel = fast ? plan_kernel(s, false, limits) : PLAIN;
    if (kernel == BLOCK) return forward_registers(a, plan_forward(s, adds), s.spread, stream);
    if (kernel == CLUSTER) return forward_cluster(a, plan_cluster(s, false, limits), stream);
    return plain_forward(a, access_of(s, fast), stream);
}

// ---- Backward -----------------------------------------------------------------------------------

// The most rows of partial sums that any kernel for this problem writes, with dsum or without. The
// kernel for many rows may have to stand in for the one for few.
static int64_t most_partials(const Problem &p)
{
    int64_t most = plain_partials(p);
    for (const int kind : {0, 1, 2, 3}) {
        const Sizes s = sizes_of(p, true, kind & 1, kind & 2);
        const gd_cuda_limits limits = limits_for(s, gd_cuda_device_limits());
        const Kernel kernel = plan_kernel(s, true, limits);
        const int64_t rows = kernel == PLAIN     ? 0
                             : kernel == CLUSTER ? plan_cluster(s, true, limits).clusters
                                                 : plan_block(s, limits).partials;
        if (rows > most) most = rows;
    }
    return most;
}

// dweight or dbias from the partial sums. Heads that share a weight multiply the number of rows.
static cudaError_t sum_up(const Backward &a, bool of_bias, int64_t partials, cudaStream_t stream)
{
    const int64_t shared = a.weight_per_head ? 1 : a.heads, cols = a.heads * a.cols / shared;
    const gd_sum_place dweight = {a.dweight, a.dweight_dtype, a.accumulate_dweight};
    const gd_sum_place dbias = {a.dbias, a.dweight_dtype, a.accumulate_dbias};
    const gd_sum_place &out = of_bias ? dbias : dweight;
    partials *= shared;
    if (a.is_double) return gd_sum_partials(out, (double *)a.workspace, partials, cols, stream);
    return gd_sum_partials(out, (float *)a.workspace, partials, cols, stream);
}

// dweight or dbias by plain.cu.
static cudaError_t plain_param(const Backward &a, Access by, bool of_bias, cudaStream_t stream)
{
    const cudaError_t error = plain_sums(a, by, of_bias, stream);
    return error ? error : sum_up(a, of_bias, plain_partials(a), stream);
}

// By the kernels of plan_kernel.
static cudaError_t fast_backward(const Backward &a, const Sizes &s, Kernel kernel,
                                 const gd_cuda_limits &limits, cudaStream_t stream)
{
    if (kernel == FEW) return backward_few(a, stream);
    int64_t partials;
    cudaError_t error;
    if (kernel == BLOCK) {
        const BlockPlan plan = plan_block(s, limits);
        partials = plan.partials;
        error = backward_block(a, plan, s.spread, stream);
    } else {
        const ClusterPlan plan = plan_cluster(s, true, limits);
        partials = plan.clusters;
        error = backward_cluster(a, plan, stream);
    }
    return error || !a.dweight ? error : sum_up(a, false, partials, stream);
}

static cudaError_t launch_backward(const Backward &a, cudaStream_t stream)
{
    const bool packs = aligned_rows(a.dx, a.dx_stride, a.dtype) &&
                       aligned_rows(a.dbranch, a.dbranch_stride, a.y_dtype) &&
                       aligned_rows(a.dy, a.dy_stride, a.y_dtype) &&
                       aligned_rows(a.x, a.x_stride, a.dtype) &&
                       aligned_rows(a.dsum, a.dsum_stride, a.dtype) && aligned(a.weight);
    const Access by = access_of(sizes_of(a, true, a.dsum, packs), fast_weight(a, a.weight));
    // dbias first, since dx may overwrite dy.
    cudaError_t error = a.dbias ? plain_param(a, by, true, stream) : cudaSuccess;
    if (error || !(a.dx || a.dbranch || a.dweight)) return error;

    // Accumulating into dx is the same as passing it for dsum.
    Backward b = a;
    if (a.dx && a.accumulate_dx && !a.dsum && !a.dbranch) {
        b.dsum = a.dx, b.dsum_stride = a.dx_stride;
        b.accumulate_dx = false;
    }
    const Sizes s = sizes_of(b, true, b.dsum, packs);
    const gd_cuda_limits limits = limits_for(s, gd_cuda_device_limits());
    const bool fast = fast_weight(b, b.weight) && !b.accumulate_dx && !b.accumulate_dbranch;
    Kernel kernel = fast ? plan_kernel(s, true, limits) : PLAIN;
    // Where a gradient overwrites dy, other blocks of that kernel would still have to read it.
    if (kernel == FEW && (b.dx == b.dy || b.dbranch == b.dy))
        kernel = plan_block(s, limits).blocks ? BLOCK : PLAIN;
    if (kernel != PLAIN) return fast_backward(b, s, kernel, limits, stream);
    if (a.dweight) error = plain_param(a, by, false, stream);
    return error || !(a.dx || a.dbranch) ? error : plain_backward(a, by, stream);
}

} // namespace gd_rms

using namespace gd_rms;

gd_status gd_cuda_rms_norm_forward(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                   void *stream)
{
    if (!rms_norm_valid(p) || !v) return GD_ERROR_ARGUMENT;
    if (p->rows == 0 || (p->cols == 0 && !v->rstd)) return GD_OK;
    if (p->cols > 0 && (!v->y || !v->x || (v->residual && !v->sum))) return GD_ERROR_ARGUMENT;
    return status_of(launch_forward({problem_of(*p, false), *v}, (cudaStream_t)stream));
}

gd_status gd_cuda_rms_norm_backward(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g,
                                    void *stream)
{
    if (!rms_norm_valid(p) || !g) return GD_ERROR_ARGUMENT;
    if (p->cols == 0 || (!g->dx && !g->dbranch && !g->dweight && !g->dbias)) return GD_OK;
    if (p->rows > 0 && (!g->dy || !g->x || !g->rstd)) return GD_ERROR_ARGUMENT;
    const bool sums = (g->dweight || g->dbias) && p->rows > 0;
    if (sums && (!g->workspace || !aligned(g->workspace))) return GD_ERROR_ARGUMENT;
    return status_of(launch_backward({problem_of(*p, true), *g}, (cudaStream_t)stream));
}

size_t gd_cuda_rms_norm_workspace(const gd_rms_norm_problem *p)
{
    if (!rms_norm_valid(p)) return 0;
    const Problem a = problem_of(*p, true);
    const size_t size = a.is_double ? sizeof(double) : sizeof(float);
    return ((size_t)(most_partials(a) * a.heads * a.cols) * size + 15) / 16 * 16;
}
