// rms_norm.cu - the functions of gradus/kernels.h on CUDA: checks the call, chooses its kernels and
// runs them.
#include "rms_norm/async.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/plan.cuh"

namespace gd_rms
{

__global__ void hopper_probe(int *answer)
{
    if (answer) *answer = GD_HOPPER;
}

// 90 or more where the driver chose code made for compute capability 9.0; asked once per device.
bool have_hopper()
{
    static int known[64]; // 0: not asked yet; 1: no; 2: yes. Racing threads write the same answer.
    int device = 0;
    if (cudaGetDevice(&device) || device < 0) return false;
    if (device < 64 && known[device]) return known[device] == 2;
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, hopper_probe)) return false;
    const bool yes = attributes.ptxVersion >= 90;
    if (device < 64) known[device] = yes ? 2 : 1;
    return yes;
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

static bool aligned_rows(const void *p, int64_t stride, size_t size)
{
    return aligned(p) && stride * (int64_t)size % 16 == 0;
}

static bool good_problem(const gd_rms_norm_problem *p)
{
    return p && p->rows >= 0 && p->cols >= 0 && p->eps >= 0 && gd_dtype_is_real(p->dtype) &&
           gd_dtype_is_real(p->weight_dtype) && gd_dtype_is_real(p->dweight_dtype);
}

static gd_status status_of(cudaError_t error)
{
    if (!error) return GD_OK;
    (void)cudaGetLastError(); // it has been reported now
    return error == cudaErrorMemoryAllocation ? GD_ERROR_MEMORY : GD_ERROR_DEVICE;
}

// Whether writing dx may change what another block has yet to read.
static bool overwrites(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g)
{
    const size_t size = gd_dtype_size(p->dtype);
    auto overlap = [&](const void *input, int64_t stride) {
        const char *const a = (const char *)g->dx, *const b = (const char *)input;
        const size_t a_bytes = (size_t)((p->rows - 1) * g->dx_stride + p->cols) * size;
        const size_t b_bytes = (size_t)((p->rows - 1) * stride + p->cols) * size;
        return a < b + b_bytes && b < a + a_bytes;
    };
    return g->dx && (overlap(g->dy, g->dy_stride) || overlap(g->x, g->x_stride));
}

// Whether the tensors are so large that L2, 50 MB or so, cannot hold them from one kernel to the
// next anyway. Smaller ones lost by it.
static bool keeps_inputs(const gd_rms_norm_problem *p, int inputs)
{
    const int64_t one = p->rows * p->cols * (int64_t)gd_dtype_size(p->dtype);
    return one >= (inputs == 1 ? 32 << 20 : 80 << 20);
}

// Of an H200. How many blocks may wait for the kernel ahead is a guess that changes no result.
constexpr int MULTIPROCESSORS = 132;

static size_t sum_size(gd_dtype dtype)
{
    return dtype == GD_FLOAT64 ? sizeof(double) : sizeof(float);
}

// Bytes of one partial buffer: the fallback may have to step in where fast kernels were planned.
static size_t partial_bytes(const gd_rms_norm_problem *p)
{
    const int64_t fast = plan_backward(p->rows, p->cols, p->dtype).partials;
    const int64_t slow = fallback_partials(p->rows, p->cols);
    const size_t bytes = (size_t)(fast > slow ? fast : slow) * (size_t)p->cols * sum_size(p->dtype);
    return (bytes + 15) / 16 * 16;
}

// The partial sums of dweight or dbias, by the fallback, and then the sum itself.
static cudaError_t column_sums(Backward a, const gd_rms_norm_problem *p, bool bias, void *result,
                               bool accumulate, void *workspace, Launches *to)
{
    const int64_t partials = fallback_partials(a.rows, a.cols);
    cudaError_t error = cudaSuccess;
    a.partial = workspace;
    if (partials > 0) error = fallback_partials_of(a, p->dtype, bias, partials, to);
    if (!error)
        error = add_dweight(result, p->dweight_dtype, accumulate, workspace, p->dtype == GD_FLOAT64,
                            partials, a.cols, false, to);
    return error;
}

static cudaError_t add_backward(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g,
                                Launches *to)
{
    Backward a = {g->dx,           nullptr,      g->dy,       g->x,
                  g->rstd,         g->weight,    p->rows,     p->cols,
                  g->dx_stride,    g->dy_stride, g->x_stride, p->offset,
                  p->weight_dtype, false,        false,       0};
    const size_t size = gd_dtype_size(p->dtype);
    a.round = p->round_before_weight && size == 2;
    a.keep = keeps_inputs(p, 2);
    a.waiting = MULTIPROCESSORS;
    cudaError_t error = cudaSuccess;

    // First dbias: dx may overwrite dy.
    if (g->dbias) error = column_sums(a, p, true, g->dbias, g->accumulate_dbias, g->workspace, to);
    if (error) return error;

    const BackwardPlan plan = plan_backward(p->rows, p->cols, p->dtype);
    const bool fast = plan.kernel != FALLBACK && (g->dx || g->dweight) &&
                      (!g->dx || aligned_rows(g->dx, g->dx_stride, size)) &&
                      aligned_rows(g->dy, g->dy_stride, size) &&
                      aligned_rows(g->x, g->x_stride, size) && aligned(g->weight) && have_hopper();
    if (!fast) {
        if (g->dweight)
            error = column_sums(a, p, false, g->dweight, g->accumulate_dweight, g->workspace, to);
        if (!error && g->dx && p->rows > 0) error = fallback_dx(a, p->dtype, to);
        return error;
    }

    const BackwardPlan small = plan_backward_small(p->rows, p->cols, p->dtype);
    if (small.kernel == SMALL && !overwrites(p, g)) {
        const SmallDweight d = {g->dweight, p->dweight_dtype, g->accumulate_dweight};
        return add_backward_small(a, d, small, p->dtype, to);
    }

    // One partial row of the right dtype is the result.
    const bool direct = plan.partials == 1 && p->dweight_dtype == GD_FLOAT32 &&
                        !g->accumulate_dweight && aligned(g->dweight);
    if (g->dweight) a.partial = direct ? g->dweight : g->workspace;
    error = plan.kernel == ROWS ? add_backward_rows(a, plan, p->dtype, to)
                                : add_backward_ring(a, plan, p->dtype, to);
    if (!error && g->dweight && !direct)
        error = add_dweight(g->dweight, p->dweight_dtype, g->accumulate_dweight, a.partial, false,
                            plan.partials, p->cols, true, to);
    return error;
}

} // namespace gd_rms

using namespace gd_rms;

gd_status gd_cuda_rms_norm_forward(const gd_rms_norm_problem *p, void *y, int64_t y_stride,
                                   void *rstd, const void *x, int64_t x_stride, const void *weight,
                                   const void *bias, void *stream)
{
    if (!good_problem(p)) return GD_ERROR_ARGUMENT;
    if (p->rows == 0 || (p->cols == 0 && !rstd)) return GD_OK;
    if (p->cols > 0 && (!y || !x)) return GD_ERROR_ARGUMENT;

    const size_t size = gd_dtype_size(p->dtype);
    Forward a = {y,
                 rstd,
                 x,
                 weight,
                 bias,
                 p->rows,
                 p->cols,
                 y_stride,
                 x_stride,
                 p->eps,
                 p->offset,
                 p->weight_dtype,
                 p->round_before_weight && size == 2,
                 p->cols ? 1.0f / (float)p->cols : 0.0f,
                 keeps_inputs(p, 1),
                 0};
    ForwardPlan plan = {};
    if (p->dtype != GD_FLOAT64 && p->cols > 0 && p->cols * (int64_t)size % 16 == 0 &&
        aligned_rows(x, x_stride, size) && aligned_rows(y, y_stride, size) && aligned(weight) &&
        aligned(bias))
        plan = plan_forward(p->rows, p->cols, p->dtype);
    a.waiting = (plan.kernel == ROWS ? 3 : 2) * MULTIPROCESSORS;
    Launches all;
    cudaError_t error = plan.kernel == FALLBACK || (plan.kernel == RING && !have_hopper())
                            ? fallback_forward(a, p->dtype, &all)
                            : add_forward(a, plan, p->dtype, &all);
    if (!error) error = run(all, true, (cudaStream_t)stream);
    return status_of(error);
}

gd_status gd_cuda_rms_norm_backward(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g,
                                    void *stream)
{
    if (!good_problem(p) || !g) return GD_ERROR_ARGUMENT;
    if (p->cols == 0 || (!g->dx && !g->dweight && !g->dbias)) return GD_OK;
    if (p->rows > 0 && (!g->dy || !g->x || !g->rstd)) return GD_ERROR_ARGUMENT;
    const bool sums = (g->dweight || g->dbias) && p->rows > 0;
    if (sums && (!g->workspace || !aligned(g->workspace))) return GD_ERROR_ARGUMENT;
    Launches all;
    cudaError_t error = add_backward(p, g, &all);
    if (!error) error = run(all, g->overlap, (cudaStream_t)stream);
    return status_of(error);
}

size_t gd_cuda_rms_norm_workspace(const gd_rms_norm_problem *p)
{
    return good_problem(p) ? partial_bytes(p) : 0;
}
