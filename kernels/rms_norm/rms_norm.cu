// rms_norm.cu - the functions of gradus/kernels.h on CUDA: checks the call, chooses its kernels and
// launches them.
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

__global__ void hopper_probe(int *answer)
{
    if (answer) *answer = GD_HOPPER;
}

static bool have_hopper()
{
    return runs_on_hopper<hopper_probe>();
}

// ---- The call -----------------------------------------------------------------------------------

static bool valid(const gd_rms_norm_problem *p)
{
    return p && p->rows >= 0 && p->cols >= 0 && p->heads >= 0 && p->eps >= 0 &&
           gd_dtype_is_real(p->dtype) && gd_dtype_is_real(p->y_dtype) &&
           gd_dtype_is_real(p->weight_dtype) && gd_dtype_is_real(p->dweight_dtype) &&
           (p->heads < 2 || p->rows % p->heads == 0);
}

static int size_of(gd_dtype dtype)
{
    return (int)gd_dtype_size(dtype);
}

static Problem problem_of(const gd_rms_norm_problem &p, bool backward)
{
    Problem a = {p, false, false, (float)p.eps, (float)p.offset, 0};
    if (a.heads < 1) a.heads = 1;
    if (a.cols > 0) a.per_col = 1.0f / (float)a.cols;
    a.is_double = a.dtype == GD_FLOAT64 || a.y_dtype == GD_FLOAT64 || a.weight_dtype == GD_FLOAT64;
    // Tensors too large to stay in L2, some 50 MB, from one kernel to the next anyway are loaded
    // with evict_last. Smaller ones are slower with it.
    a.keep = a.rows * a.cols * size_of(a.dtype) >= (backward ? 80 << 20 : 32 << 20);
    return a;
}

// `more`: another input of dtype, or in the forward of y_dtype, besides those always present.
static Sizes sizes_of(const Problem &p, bool backward, bool more)
{
    Sizes s = {p.rows, p.heads, 0, 0, 0};
    const int size = size_of(p.dtype), y_size = size_of(p.y_dtype);
    const bool types = p.dtype != GD_FLOAT64 && size <= 4 && p.y_dtype != GD_FLOAT64 &&
                       (p.dtype == p.y_dtype || (size == 4 && y_size == 2));
    s.pack_elements = 16 / (size < y_size ? size : y_size);
    if (types && p.cols % s.pack_elements == 0) s.packs = p.cols / s.pack_elements;
    s.pack_bytes = s.pack_elements *
                   (backward ? size + y_size + (more ? size : 0) : size + (more ? y_size : 0));
    return s;
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

static bool aligned_rows(const void *p, int64_t stride, gd_dtype dtype)
{
    return aligned(p) && (!p || stride * size_of(dtype) % 16 == 0);
}

// The fast kernels compute in float32, and rstd is double if anything is.
static bool fast_weight(const Problem &p, const void *weight, const void *bias)
{
    if (p.is_double) return false;
    const bool known = p.weight_dtype == GD_FLOAT32 || p.weight_dtype == p.y_dtype;
    return (known || (!weight && !bias)) && aligned(weight) && aligned(bias);
}

static gd_status status_of(cudaError_t error)
{
    if (!error) return GD_OK;
    (void)cudaGetLastError(); // it has been reported now
    return error == cudaErrorMemoryAllocation ? GD_ERROR_MEMORY : GD_ERROR_DEVICE;
}

// ---- Forward ------------------------------------------------------------------------------------

static cudaError_t forward(const Forward &a, cudaStream_t stream)
{
    const bool adds = a.residual;
    const Sizes s = sizes_of(a, false, adds);
    const bool fast = fast_weight(a, a.weight, a.bias) &&
                      aligned_rows(a.x, a.x_stride, adds ? a.y_dtype : a.dtype) &&
                      aligned_rows(a.y, a.y_stride, a.y_dtype) &&
                      aligned_rows(a.residual, a.residual_stride, a.dtype) &&
                      aligned_rows(adds ? a.sum : nullptr, a.sum_stride, a.dtype);
    const Kernel kernel = fast ? plan_kernel(s, false) : PLAIN;
    if (kernel == BLOCK) return forward_registers(a, plan_forward(s, adds), stream);
    if (kernel == CLUSTER && have_hopper())
        return forward_cluster(a, plan_cluster(s, false), stream);
    return plain_forward(a, stream);
}

// ---- Backward -----------------------------------------------------------------------------------

static int64_t plain_rows(const Problem &p)
{
    return p.rows ? gd_row_pieces_of(p.rows / p.heads).count : 0;
}

// The most rows of partial sums that any kernel for this problem writes, with dsum or without. The
// kernel for many rows may have to stand in for the one for few.
static int64_t most_partials(const Problem &p)
{
    int64_t most = plain_rows(p);
    for (const bool more : {false, true}) {
        const Sizes s = sizes_of(p, true, more);
        const Kernel kernel = plan_kernel(s, true);
        const int64_t rows = kernel == PLAIN     ? 0
                             : kernel == CLUSTER ? plan_cluster(s, true).clusters
                                                 : plan_block(s).partials;
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
    /* [dw sum] */
    if (a.is_double) return gd_sum_partials(out, (double *)a.workspace, partials, cols, stream);
    return gd_sum_partials(out, (float *)a.workspace, partials, cols, stream);
}

// dw or db, by plain.cu.
static cudaError_t plain_sum(const Backward &a, bool of_bias, cudaStream_t stream)
{
    const int64_t partials = plain_rows(a);
    const cudaError_t error = partials ? plain_partials(a, of_bias, stream) : cudaSuccess;
    return error ? error : sum_up(a, of_bias, partials, stream);
}

static cudaError_t plain_backward(const Backward &a, cudaStream_t stream)
{
    const cudaError_t error = a.dweight ? plain_sum(a, false, stream) : cudaSuccess;
    return error || !(a.dx || a.dbranch) || a.rows == 0 ? error : plain_dx(a, stream);
}

static bool runs_fast(const Backward &a)
{
    return (a.dx || a.dbranch || a.dweight) && have_hopper() && !a.accumulate_dx &&
           !a.accumulate_dbranch && (!a.dbranch || a.dsum) && fast_weight(a, a.weight, nullptr) &&
           aligned_rows(a.dx, a.dx_stride, a.dtype) &&
           aligned_rows(a.dbranch, a.dbranch_stride, a.y_dtype) &&
           aligned_rows(a.dy, a.dy_stride, a.y_dtype) && aligned_rows(a.x, a.x_stride, a.dtype) &&
           aligned_rows(a.dsum, a.dsum_stride, a.dtype);
}

static cudaError_t backward(const Backward &asked, cudaStream_t stream)
{
    // dbias first, since dx may overwrite dy.
    cudaError_t error = asked.dbias ? plain_sum(asked, true, stream) : cudaSuccess;
    if (error) return error;

    // Accumulating into dx is the same as passing it for dsum.
    Backward a = asked;
    if (a.dx && a.accumulate_dx && !a.dsum && !a.dbranch) {
        a.dsum = a.dx, a.dsum_stride = a.dx_stride;
        a.accumulate_dx = false;
    }
    const Sizes s = sizes_of(a, true, a.dsum);
    Kernel kernel = runs_fast(a) ? plan_kernel(s, true) : PLAIN;
    // Where a gradient overwrites dy, other blocks of that kernel would still have to read it.
    if (kernel == FEW && (a.dx == a.dy || a.dbranch == a.dy)) kernel = BLOCK;
    if (kernel == PLAIN) return plain_backward(asked, stream);
    if (kernel == FEW) return backward_few(a, stream);
    int64_t partials;
    if (kernel == BLOCK) {
        const BlockPlan plan = plan_block(s);
        partials = plan.partials;
        error = backward_block(a, plan, stream);
    } else {
        const ClusterPlan plan = plan_cluster(s, true);
        partials = plan.clusters;
        error = backward_cluster(a, plan, stream);
    }
    return error || !a.dweight ? error : sum_up(a, false, partials, stream);
}

} // namespace gd_rms

using namespace gd_rms;

gd_status gd_cuda_rms_norm_forward(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                   void *stream)
{
    if (!valid(p) || !v) return GD_ERROR_ARGUMENT;
    if (p->rows == 0 || (p->cols == 0 && !v->rstd)) return GD_OK;
    if (p->cols > 0 && (!v->y || !v->x || (v->residual && !v->sum))) return GD_ERROR_ARGUMENT;
    return status_of(forward({problem_of(*p, false), *v}, (cudaStream_t)stream));
}

gd_status gd_cuda_rms_norm_backward(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g,
                                    void *stream)
{
    if (!valid(p) || !g) return GD_ERROR_ARGUMENT;
    if (p->cols == 0 || (!g->dx && !g->dbranch && !g->dweight && !g->dbias)) return GD_OK;
    if (p->rows > 0 && (!g->dy || !g->x || !g->rstd)) return GD_ERROR_ARGUMENT;
    const bool sums = (g->dweight || g->dbias) && p->rows > 0;
    if (sums && (!g->workspace || !aligned(g->workspace))) return GD_ERROR_ARGUMENT;
    return status_of(backward({problem_of(*p, true), *g}, (cudaStream_t)stream));
}

size_t gd_cuda_rms_norm_workspace(const gd_rms_norm_problem *p)
{
    if (!valid(p)) return 0;
    const Problem a = problem_of(*p, true);
    const size_t size = a.is_double ? sizeof(double) : sizeof(float);
    return ((size_t)(most_partials(a) * a.heads * a.cols) * size + 15) / 16 * 16;
}
