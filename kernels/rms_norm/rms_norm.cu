// rms_norm.cu - the functions of gradus/kernels.h on CUDA: checks the call, chooses its kernels and
// launches them.
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

__global__ void hopper_probe(int *answer)
{
    if (answer) *answer = GD_HOPPER;
}

// Whether the driver chose code compiled for compute capability 9.0, which has bulk copies,
// transaction barriers and clusters; queried once per device.
bool have_hopper()
{
    static int known[64]; // 0: not queried; 1: no; 2: yes. Racing threads write the same answer.
    int device = 0;
    if (cudaGetDevice(&device) || device < 0) return false;
    if (device < 64 && known[device]) return known[device] == 2;
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, hopper_probe)) return false;
    const bool yes = attributes.ptxVersion >= 90;
    if (device < 64) known[device] = yes ? 2 : 1;
    return yes;
}

// ---- The call -----------------------------------------------------------------------------------

static bool valid(const gd_rms_norm_problem *p)
{
    return p && p->rows >= 0 && p->cols >= 0 && p->heads >= 0 && p->eps >= 0 &&
           gd_dtype_is_real(p->dtype) && gd_dtype_is_real(p->y_dtype) &&
           gd_dtype_is_real(p->weight_dtype) && gd_dtype_is_real(p->dweight_dtype) &&
           (p->heads < 2 || p->rows % p->heads == 0);
}

static Problem problem_of(const gd_rms_norm_problem *p)
{
    Problem a = {};
    a.rows = p->rows, a.cols = p->cols, a.heads = p->heads > 1 ? p->heads : 1;
    a.weight_per_head = p->weight_per_head;
    a.dtype = p->dtype, a.y_dtype = p->y_dtype, a.weight_dtype = p->weight_dtype;
    a.is_double =
        p->dtype == GD_FLOAT64 || p->y_dtype == GD_FLOAT64 || p->weight_dtype == GD_FLOAT64;
    a.round = p->round_before_weight;
    a.eps = p->eps, a.offset = p->offset;
    a.float_eps = (float)p->eps, a.float_offset = (float)p->offset;
    a.per_col = p->cols ? 1.0f / (float)p->cols : 0.0f;
    return a;
}

static int size_of(gd_dtype dtype)
{
    return (int)gd_dtype_size(dtype);
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

// Whether to load inputs with evict_last: if the tensors are too large to stay in L2, some 50 MB,
// from one kernel to the next anyway. Smaller ones are slower with it.
static bool keeps_inputs(const Problem &p, bool backward)
{
    const int64_t one = p.rows * p.cols * size_of(p.dtype);
    return one >= (backward ? 80 << 20 : 32 << 20);
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
    const gd_rms_norm_values &v = a.at;
    const bool adds = v.residual;
    const Sizes s = sizes_of(a, false, adds);
    const bool fast = fast_weight(a, v.weight, v.bias) &&
                      aligned_rows(v.x, v.x_stride, adds ? a.y_dtype : a.dtype) &&
                      aligned_rows(v.y, v.y_stride, a.y_dtype) &&
                      aligned_rows(v.residual, v.residual_stride, a.dtype) &&
                      aligned_rows(adds ? v.sum : nullptr, v.sum_stride, a.dtype);
    const Kernel kernel = fast ? plan_kernel(s, false) : PLAIN;
    if (kernel == BLOCK) return forward_registers(a, plan_forward(s, adds), stream);
    if (kernel == CLUSTER && have_hopper())
        return forward_cluster(a, plan_cluster(s, false), stream);
    return plain_forward(a, stream);
}

// ---- Backward -----------------------------------------------------------------------------------

// The partial rows of the kernel for many rows, which may have to stand in for the one for few
// rows; 0 if the plain kernels run this.
static int64_t fast_partials(const Sizes &s)
{
    switch (plan_kernel(s, true)) {
    case PLAIN:
        return 0;
    case CLUSTER:
        return plan_cluster(s, true).clusters;
    default:
        return plan_block(s).partials;
    }
}

static int64_t most_partials(const Problem &p)
{
    const int64_t tokens = p.rows / p.heads;
    int64_t most = plan_plain_partials(tokens, p.heads * p.cols);
    for (const bool more : {false, true}) {
        const int64_t fast = fast_partials(sizes_of(p, true, more));
        if (fast > most) most = fast;
    }
    return most;
}

// Whether writing a gradient may overwrite what another block has yet to read.
static bool overwrites(const Backward &a)
{
    const gd_rms_norm_gradients &g = a.at;
    auto meet = [&](const void *out, int64_t out_stride, gd_dtype out_dtype, const void *in,
                    int64_t stride, gd_dtype dtype) {
        if (!out || !in) return false;
        const char *const o = (const char *)out, *const i = (const char *)in;
        const int64_t o_bytes = ((a.rows - 1) * out_stride + a.cols) * size_of(out_dtype);
        const int64_t i_bytes = ((a.rows - 1) * stride + a.cols) * size_of(dtype);
        return o < i + i_bytes && i < o + o_bytes;
    };
    return meet(g.dx, g.dx_stride, a.dtype, g.dy, g.dy_stride, a.y_dtype) ||
           meet(g.dx, g.dx_stride, a.dtype, g.x, g.x_stride, a.dtype) ||
           meet(g.dbranch, g.dbranch_stride, a.y_dtype, g.dy, g.dy_stride, a.y_dtype) ||
           meet(g.dbranch, g.dbranch_stride, a.y_dtype, g.x, g.x_stride, a.dtype);
}

// Adds the partial rows to dweight or dbias. Heads that share a weight multiply the number of
// partial rows.
static cudaError_t sum_up(const Backward &a, gd_dtype dtype, bool of_bias, int64_t partials,
                          cudaStream_t stream)
{
    const gd_rms_norm_gradients &g = a.at;
    const int64_t shared = a.weight_per_head ? 1 : a.heads;
    return sum_partials(of_bias ? g.dbias : g.dweight, dtype,
                        of_bias ? g.accumulate_dbias : g.accumulate_dweight, g.workspace,
                        a.is_double, partials * shared, a.heads * a.cols / shared, stream);
}

static cudaError_t plain_sum(Backward a, gd_dtype dtype, bool of_bias, cudaStream_t stream)
{
    const int64_t partials = plan_plain_partials(a.rows / a.heads, a.heads * a.cols);
    a.partial = a.at.workspace;
    const cudaError_t error = partials ? plain_partials(a, of_bias, partials, stream) : cudaSuccess;
    return error ? error : sum_up(a, dtype, of_bias, partials, stream);
}

static bool runs_fast(const Backward &a, const gd_rms_norm_gradients &g)
{
    return (g.dx || g.dbranch || g.dweight) && have_hopper() && !g.accumulate_dbranch &&
           (!g.dbranch || g.dsum) && fast_weight(a, g.weight, nullptr) &&
           aligned_rows(g.dx, g.dx_stride, a.dtype) &&
           aligned_rows(g.dbranch, g.dbranch_stride, a.y_dtype) &&
           aligned_rows(g.dy, g.dy_stride, a.y_dtype) && aligned_rows(g.x, g.x_stride, a.dtype) &&
           aligned_rows(g.dsum, g.dsum_stride, a.dtype);
}

static cudaError_t backward(Backward a, gd_dtype dweight_dtype, cudaStream_t stream)
{
    gd_rms_norm_gradients &g = a.at;
    cudaError_t error = cudaSuccess;
    // dbias first, since dx may overwrite dy.
    if (g.dbias) error = plain_sum(a, dweight_dtype, true, stream);
    if (error) return error;

    // Accumulating into dx is the same as passing it for dsum.
    const gd_rms_norm_gradients asked = g;
    if (g.dx && g.accumulate_dx && !g.dsum && !g.dbranch) {
        g.dsum = g.dx, g.dsum_stride = g.dx_stride;
        g.accumulate_dx = false;
    }
    const Sizes s = sizes_of(a, true, g.dsum);
    Kernel kernel = !g.accumulate_dx && runs_fast(a, g) ? plan_kernel(s, true) : PLAIN;
    if (kernel == FEW && overwrites(a)) kernel = BLOCK;
    if (kernel == FEW) return backward_few(a, dweight_dtype, stream);
    if (kernel == PLAIN) {
        g = asked;
        if (g.dweight) error = plain_sum(a, dweight_dtype, false, stream);
        return error || !(g.dx || g.dbranch) || a.rows == 0 ? error : plain_dx(a, stream);
    }
    a.partial = g.dweight ? g.workspace : nullptr;
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
    return error || !g.dweight ? error : sum_up(a, dweight_dtype, false, partials, stream);
}

} // namespace gd_rms

using namespace gd_rms;

gd_status gd_cuda_rms_norm_forward(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                   void *stream)
{
    if (!valid(p) || !v) return GD_ERROR_ARGUMENT;
    if (p->rows == 0 || (p->cols == 0 && !v->rstd)) return GD_OK;
    if (p->cols > 0 && (!v->y || !v->x || (v->residual && !v->sum))) return GD_ERROR_ARGUMENT;
    Forward a;
    (Problem &)a = problem_of(p);
    a.at = *v;
    a.keep = keeps_inputs(a, false);
    return status_of(forward(a, (cudaStream_t)stream));
}

gd_status gd_cuda_rms_norm_backward(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g,
                                    void *stream)
{
    if (!valid(p) || !g) return GD_ERROR_ARGUMENT;
    if (p->cols == 0 || (!g->dx && !g->dbranch && !g->dweight && !g->dbias)) return GD_OK;
    if (p->rows > 0 && (!g->dy || !g->x || !g->rstd)) return GD_ERROR_ARGUMENT;
    const bool sums = (g->dweight || g->dbias) && p->rows > 0;
    if (sums && (!g->workspace || !aligned(g->workspace))) return GD_ERROR_ARGUMENT;
    Backward a;
    (Problem &)a = problem_of(p);
    a.at = *g;
    a.partial = nullptr;
    a.keep = keeps_inputs(a, true);
    return status_of(backward(a, p->dweight_dtype, (cudaStream_t)stream));
}

size_t gd_cuda_rms_norm_workspace(const gd_rms_norm_problem *p)
{
    if (!valid(p)) return 0;
    const Problem a = problem_of(p);
    const size_t size = a.is_double ? sizeof(double) : sizeof(float);
    return ((size_t)(most_partials(a) * a.heads * a.cols) * size + 15) / 16 * 16;
}
