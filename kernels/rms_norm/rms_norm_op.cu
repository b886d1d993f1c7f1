// rms_norm_op.cu - the ops rms_norm and add_rms_norm on CUDA: from tensors to kernels.
//
// Most calls of rms_norm end in the fast kernels of gradus/kernels.h, which want one dtype for x, y
// and the gradients of both, one for weight and bias, and rows a constant distance apart. The plain
// kernels of rms_norm_op.cuh do the rest: weights per head, a residual, gradients that are added to
// what is there, any mix of dtypes. dweight and dbias always come from the fast kernels.
#include "rms_norm/rms_norm_op.cuh"

#include "gradus/kernels.h"

// ---- From tensors to rows ---------------------------------------------------------------------

// t packed, in scratch and in `dtype`.
static void *packed_copy(const gd_call *call, const gd_tensor *t, gd_dtype dtype)
{
    const gd_layout from = gd_cuda_layout(t);
    int64_t strides[GD_MAX_DIMS], count = 1;
    for (int d = from.ndim - 1; d >= 0; d--) {
        strides[d] = count;
        count *= from.shape[d];
    }
    void *to = gd_call_scratch(call, (size_t)count * gd_dtype_size(dtype));
    if (!to) return nullptr;
    const gd_layout packed = {to, dtype, from.ndim, from.shape, strides};
    gd_copy_cuda(packed, from, call->context);
    return gd_error_status(call->context) ? nullptr : to;
}

static rms_rows packed_rows(void *data, gd_dtype dtype, int64_t M, int64_t N)
{
    return {data, dtype, M, 0, N};
}

// The rows of t as they lie, if they are packed and at most two strides lead from row to row; or of
// a packed copy.
static gd_status open_rows(const gd_call *call, const gd_tensor *t, rms_rows *rows)
{
    const gd_layout lies = gd_cuda_layout(t);
    const int last = lies.ndim - 1;
    const gd_layout leading[] = {{lies.data, lies.dtype, last, lies.shape, lies.strides}};
    const gd_cuda_walk<1> walk = gd_cuda_walk_over(last, lies.shape, leading);
    *rows = {lies.data, lies.dtype, 1, 0, 0};
    if (walk.ndim > 2 || (lies.strides[last] != 1 && lies.shape[last] != 1)) {
        void *copy = packed_copy(call, t, lies.dtype);
        *rows = packed_rows(copy, lies.dtype, walk.count, lies.shape[last]);
        return copy ? GD_OK : gd_error_status(call->context);
    }
    if (walk.ndim > 0) {
        rows->inner = walk.shape[walk.ndim - 1];
        rows->step = walk.stride[0][walk.ndim - 1];
    }
    if (walk.ndim > 1) rows->stride = walk.stride[0][0];
    return GD_OK;
}

static gd_status open_param(const gd_call *call, const gd_tensor *t, rms_param *param)
{
    *param = {nullptr, GD_FLOAT32, 1};
    if (!t) return GD_OK;
    const gd_dtype dtype = gd_tensor_dtype(t);
    *param = {gd_tensor_data(t), dtype, gd_tensor_ndim(t) == 2 ? gd_tensor_dim(t, 0) : 1};
    if (!gd_tensor_is_contiguous(t)) param->data = packed_copy(call, t, dtype);
    return param->data ? GD_OK : gd_error_status(call->context);
}

static rms_packed packed_of(const gd_tensor *t, bool accumulate)
{
    if (!t) return {nullptr, GD_FLOAT32, false};
    return {gd_tensor_data(t), gd_tensor_dtype(t), accumulate};
}

static int64_t last_dim(const gd_tensor *t)
{
    return gd_tensor_dim(t, -1);
}

// The product of all dimensions but the last.
static int64_t row_count(const gd_tensor *t)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < gd_tensor_ndim(t); d++) rows *= gd_tensor_shape(t)[d];
    return rows;
}

// ---- The fast kernels -------------------------------------------------------------------------

static gd_rms_norm_problem problem_of(const gd_rms_norm_args *args, int64_t M, int64_t N,
                                      gd_dtype dtype, gd_dtype weight, gd_dtype dweight)
{
    gd_rms_norm_problem p = {};
    p.rows = M;
    p.cols = N;
    p.dtype = dtype;
    p.weight_dtype = weight;
    p.dweight_dtype = dweight;
    p.eps = args->eps;
    p.offset = args->offset;
    p.round_before_weight = args->round_xhat != GD_FLOAT64;
    return p;
}

// Whether the fast kernels compute on this dtype what the call asks for: they sum, and keep rstd,
// in float64 for float64 alone, and round xhat to x's dtype or not at all.
static bool fast_dtype(const gd_call *call, gd_dtype dtype)
{
    const gd_dtype round = ((const gd_rms_norm_args *)call->args)->round_xhat;
    return (dtype == GD_FLOAT64) == (call->dtype == GD_FLOAT64) &&
           (round == GD_FLOAT64 || round == dtype);
}

// Rows a constant distance, `step`, apart.
static bool one_stride(const rms_rows &rows, int64_t M)
{
    return rows.inner == M;
}

static gd_status fast_launched(const gd_call *call, gd_status status)
{
    if (status == GD_OK) return GD_OK;
    return gd_call_fail(call, status, "CUDA: the kernels could not be launched");
}

// ---- Forward ----------------------------------------------------------------------------------

// `weight` is its place among the inputs, bias is next.
static gd_status run_forward(const gd_call *call, rms_forward *f, int weight)
{
    const gd_tensor *x = call->input[0];
    f->M = row_count(x);
    f->N = last_dim(x);
    f->args = *(const gd_rms_norm_args *)call->args;
    f->y = packed_of(call->output[0], false);
    f->rstd = call->save[0] ? gd_tensor_data(call->save[0]) : nullptr;
    if (f->M == 0 || f->N == 0) return GD_OK;
    if (open_rows(call, x, &f->x) || open_param(call, call->input[weight], &f->weight) ||
        open_param(call, call->input[weight + 1], &f->bias)) {
        return gd_error_status(call->context);
    }
    const bool one_dtype = !f->weight.data || !f->bias.data || f->weight.dtype == f->bias.dtype;
    if (!f->sum.data && fast_dtype(call, f->x.dtype) && one_dtype && f->weight.heads == 1 &&
        f->bias.heads == 1 && one_stride(f->x, f->M)) {
        const gd_dtype dtype = f->weight.data ? f->weight.dtype : f->bias.dtype;
        const gd_rms_norm_problem p = problem_of(&f->args, f->M, f->N, f->x.dtype, dtype, dtype);
        return fast_launched(call, gd_cuda_rms_norm_forward(&p, f->y.data, f->N, f->rstd, f->x.data,
                                                            f->x.step, f->weight.data, f->bias.data,
                                                            gd_stream(call)));
    }
    const unsigned blocks = gd_blocks(f->M, 1), threads = threads_for(f->N);
    if (call->dtype == GD_FLOAT64)
        forward_kernel<double><<<blocks, threads, 0, gd_stream(call)>>>(*f);
    else
        forward_kernel<float><<<blocks, threads, 0, gd_stream(call)>>>(*f);
    return gd_launched(call);
}

// inputs x [..., N], weight, bias; output y; save rstd [M]
extern "C" gd_status rms_norm_forward_cuda(const gd_call *call)
{
    rms_forward f = {};
    return run_forward(call, &f, 1);
}

// inputs x, residual [..., N], weight, bias; outputs y, sum; save rstd [M]
extern "C" gd_status add_rms_norm_forward_cuda(const gd_call *call)
{
    rms_forward f = {};
    if (gd_tensor_count(call->input[1]) == 0) return GD_OK;
    f.sum = packed_of(call->output[1], false);
    if (open_rows(call, call->input[1], &f.residual)) return gd_error_status(call->context);
    return run_forward(call, &f, 2);
}

// ---- Backward ---------------------------------------------------------------------------------

// Replaces x by xhat and dy by a copy, both of the type that is computed in, and rstd by ones: then
// the fast kernels can sum up dweight, whatever the dtypes are.
static gd_status widen(const gd_call *call, rms_backward *b)
{
    const bool is_double = call->dtype == GD_FLOAT64;
    void *xhat = gd_call_scratch(call, (size_t)(b->M * b->N) * gd_dtype_size(call->dtype));
    void *ones = gd_call_scratch(call, (size_t)b->M * gd_dtype_size(call->dtype));
    void *dy = packed_copy(call, call->doutput[0], call->dtype);
    if (!xhat || !ones || !dy) return gd_error_status(call->context);
    gd_fill_cuda(ones, call->dtype, 1, b->M, call->context);
    const unsigned blocks = gd_blocks(b->M, 1), threads = threads_for(b->N);
    if (is_double)
        xhat_kernel<<<blocks, threads, 0, gd_stream(call)>>>((double *)xhat, *b);
    else
        xhat_kernel<<<blocks, threads, 0, gd_stream(call)>>>((float *)xhat, *b);
    b->x = packed_rows(xhat, call->dtype, b->M, b->N);
    b->dy = {dy, call->dtype, false};
    b->rstd = ones;
    b->args.round_xhat = GD_FLOAT64;
    return gd_launched(call);
}

// rstd [M] = [M / heads, heads] as [heads, M / heads].
static const void *rstd_by_head(const gd_call *call, const rms_backward *b, int64_t heads)
{
    if (heads == 1) return b->rstd;
    const int64_t shape[] = {heads, b->M / heads}, by_row[] = {1, heads};
    const int64_t packed[] = {b->M / heads, 1};
    void *to = gd_call_scratch(call, (size_t)b->M * gd_dtype_size(call->dtype));
    if (!to) return nullptr;
    gd_copy_cuda({to, call->dtype, 2, shape, packed},
                 {(void *)b->rstd, call->dtype, 2, shape, by_row}, call->context);
    return to;
}

// Calls the fast backward for the rows of each head. `g` says what is wanted, for head 0.
static gd_status run_fast(const gd_call *call, const gd_rms_norm_problem *p,
                          gd_rms_norm_gradients g, int64_t heads, int64_t x_step)
{
    const int64_t size = (int64_t)gd_dtype_size(p->dtype), N = p->cols;
    const int64_t dw_size = (int64_t)gd_dtype_size(p->dweight_dtype);
    const int64_t sum_size = (int64_t)gd_dtype_size(call->dtype);
    g.workspace = gd_call_scratch(call, gd_cuda_rms_norm_workspace(p));
    if (!g.workspace) return gd_error_status(call->context);
    // From 10 us or so the GPU takes longer than the host does to launch.
    g.overlap = p->rows * N * size >= 8 << 20;
    for (int64_t h = 0; h < heads; h++) {
        const gd_status status = gd_cuda_rms_norm_backward(p, &g, gd_stream(call));
        if (status) return fast_launched(call, status);
        g.dy = (const char *)g.dy + N * size;
        g.x = (const char *)g.x + x_step * size;
        g.rstd = (const char *)g.rstd + p->rows * sum_size;
        if (g.dweight) g.dweight = (char *)g.dweight + N * dw_size;
        if (g.dbias) g.dbias = (char *)g.dbias + N * dw_size;
    }
    return GD_OK;
}

static gd_status dbias_sums(const gd_call *call, const rms_backward *b, int input)
{
    const gd_tensor *db = call->dinput[input];
    const gd_dtype dtype = gd_tensor_dtype(db);
    const int64_t heads = row_count(db);
    const gd_rms_norm_problem p =
        problem_of(&b->args, b->M / heads, b->N, b->dy.dtype, dtype, dtype);
    gd_rms_norm_gradients g = {};
    g.dbias = gd_tensor_data(db);
    g.accumulate_dbias = call->accumulate[input];
    g.dy = g.x = b->dy.data; // x is not read
    g.dy_stride = g.x_stride = heads * b->N;
    g.rstd = b->rstd; // nor is this
    return run_fast(call, &p, g, heads, b->N);
}

// The rows of one head are to be a constant distance apart: those of x are, or are packed.
static gd_status dweight_sums(const gd_call *call, rms_backward b, const gd_tensor *x, int input)
{
    const gd_tensor *dw = call->dinput[input];
    const gd_dtype dtype = gd_tensor_dtype(dw);
    const int64_t heads = row_count(dw);
    if (b.x.dtype != b.dy.dtype || !fast_dtype(call, b.x.dtype)) {
        if (widen(call, &b)) return gd_error_status(call->context);
    } else if (!one_stride(b.x, b.M) && b.x.inner != heads) {
        b.x = packed_rows(packed_copy(call, x, b.x.dtype), b.x.dtype, b.M, b.N);
        if (!b.x.data) return gd_error_status(call->context);
    }
    const gd_rms_norm_problem p = problem_of(&b.args, b.M / heads, b.N, b.x.dtype, dtype, dtype);
    gd_rms_norm_gradients g = {};
    g.dweight = gd_tensor_data(dw);
    g.accumulate_dweight = call->accumulate[input];
    g.dy = b.dy.data;
    g.dy_stride = heads * b.N;
    g.x = b.x.data;
    g.x_stride = one_stride(b.x, b.M) ? heads * b.x.step : b.x.stride;
    g.rstd = rstd_by_head(call, &b, heads);
    if (!g.rstd) return gd_error_status(call->context);
    return run_fast(call, &p, g, heads, b.x.step);
}

// Where no gradient came to y: dweight and dbias are zero, and what came to the sum passes on.
static gd_status pass_dsum(const gd_call *call, const gd_tensor *dsum)
{
    for (int i = 0; i < call->inputs; i++) {
        const gd_tensor *dinput = call->dinput[i];
        const gd_tensor *from = i + 2 < call->inputs ? dsum : nullptr; // x, residual
        const int64_t n = dinput ? gd_tensor_count(dinput) : 0;
        if (n == 0) continue;
        void *to = gd_tensor_data(dinput);
        const gd_dtype dtype = gd_tensor_dtype(dinput);
        if (from && call->accumulate[i]) {
            gd_accumulate_cuda(to, dtype, gd_tensor_data(from), gd_tensor_dtype(from), n,
                               call->context);
        } else if (from) {
            gd_copy_cuda(gd_cuda_layout(dinput), gd_cuda_layout(from), call->context);
        } else if (!call->accumulate[i]) {
            gd_fill_cuda(to, dtype, 0, n, call->context);
        }
    }
    return gd_error_status(call->context);
}

// dx by a plain kernel, and dresidual, which is the same numbers.
static gd_status run_dx(const gd_call *call, const rms_backward *b)
{
    if (!b->dx.data && !b->dresidual.data) return GD_OK;
    const unsigned blocks = gd_blocks(b->M, 1), threads = threads_for(b->N);
    if (call->dtype == GD_FLOAT64)
        dx_kernel<double><<<blocks, threads, 0, gd_stream(call)>>>(*b);
    else
        dx_kernel<float><<<blocks, threads, 0, gd_stream(call)>>>(*b);
    return gd_launched(call);
}

// dx and dweight at once, by the fast kernels.
static gd_status run_fast_dx(const gd_call *call, const rms_backward *b)
{
    const gd_tensor *dw = call->dinput[1];
    const gd_dtype dtype = dw ? gd_tensor_dtype(dw) : GD_FLOAT32;
    const gd_rms_norm_problem p =
        problem_of(&b->args, b->M, b->N, b->x.dtype, b->weight.dtype, dtype);
    gd_rms_norm_gradients g = {};
    g.dx = b->dx.data;
    g.dx_stride = g.dy_stride = b->N;
    g.dweight = dw ? gd_tensor_data(dw) : nullptr;
    g.accumulate_dweight = call->accumulate[1];
    g.dy = b->dy.data;
    g.x = b->x.data;
    g.x_stride = b->x.step;
    g.rstd = b->rstd;
    g.weight = b->weight.data;
    return run_fast(call, &p, g, 1, 0);
}

// dx comes last, as it may take the place of dy. `weight` is its place among the inputs.
static gd_status run_backward(const gd_call *call, rms_backward *b, const gd_tensor *x, int weight)
{
    b->M = row_count(x);
    b->N = last_dim(x);
    b->args = *(const gd_rms_norm_args *)call->args;
    b->dy = packed_of(call->doutput[0], false);
    b->dx = packed_of(call->dinput[0], call->accumulate[0]);
    b->rstd = gd_tensor_data(call->save[0]);
    if (b->N == 0) return GD_OK;
    if (b->M == 0 || !call->doutput[0])
        return pass_dsum(call, call->outputs > 1 ? call->doutput[1] : nullptr);

    if (open_rows(call, x, &b->x) || open_param(call, call->input[weight], &b->weight)) {
        return gd_error_status(call->context);
    }
    if (call->dinput[weight + 1] && dbias_sums(call, b, weight + 1)) {
        return gd_error_status(call->context);
    }
    if (call->outputs == 1 && b->dx.data && !b->dx.accumulate && fast_dtype(call, b->x.dtype) &&
        b->weight.heads == 1 && one_stride(b->x, b->M)) {
        return run_fast_dx(call, b);
    }
    if (call->dinput[weight] && dweight_sums(call, *b, x, weight)) {
        return gd_error_status(call->context);
    }
    return run_dx(call, b);
}

// reads x, weight, rstd
extern "C" gd_status rms_norm_backward_cuda(const gd_call *call)
{
    rms_backward b = {};
    return run_backward(call, &b, call->input[0], 1);
}

// reads the sum, weight, rstd
extern "C" gd_status add_rms_norm_backward_cuda(const gd_call *call)
{
    rms_backward b = {};
    b.dsum = packed_of(call->doutput[1], false);
    b.dresidual = packed_of(call->dinput[1], call->accumulate[1]);
    return run_backward(call, &b, call->output[1], 2);
}
