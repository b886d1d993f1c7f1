/* rms_norm_op.c - the ops rms_norm and add_rms_norm on CUDA: from tensors to gradus/kernels.h. */
#include "gradus/kernels.h"
#include "kernel.h"
#include "rms_norm/rms_norm.h"
#include "walk.h"

#ifdef GD_HAVE_CUDA

/* ---- From tensors to rows ----------------------------------------------------------------- */

/* t packed, in scratch and in `dtype`, repeated to `heads` rows if it has only one. */
static const void *packed_copy(const gd_call *call, const gd_tensor *t, gd_dtype dtype,
                               int64_t heads)
{
    gd_layout from = gd_layout_of(t);
    int64_t shape[] = {heads, from.shape[0]}, repeated[] = {0, from.strides[0]};
    if (heads > 1 && from.ndim == 1) from.ndim = 2, from.shape = shape, from.strides = repeated;
    int64_t strides[GD_MAX_DIMS], count = 1;
    for (int d = from.ndim - 1; d >= 0; d--) {
        strides[d] = count;
        count *= from.shape[d];
    }
    void *data = gd_call_scratch(call, (size_t)count * gd_dtype_size(dtype));
    if (!data) return NULL;
    gd_layout to = {data, dtype, from.ndim, from.shape, strides};
    gd_copy_cuda(to, from, call->context);
    return gd_error_status(call->context) ? NULL : data;
}

/* Whether the rows of t [..., N] lie as kernels.h needs them for this number of heads, and the
 * stride. */
static bool rows_lie(const gd_tensor *t, int64_t heads, int64_t *stride)
{
    gd_walk walk = {.operands = 1, .ndim = gd_tensor_ndim(t) - 1};
    int64_t N = gd_last_dim(t), step = gd_tensor_strides(t)[walk.ndim];
    for (int d = 0; d < walk.ndim; d++) {
        walk.shape[d] = gd_tensor_shape(t)[d];
        walk.stride[0][d] = gd_tensor_strides(t)[d];
    }
    gd_walk_merge(&walk);
    int64_t first = walk.ndim ? walk.stride[0][0] : N, last = walk.stride[0][1];
    bool two = walk.ndim == 2;
    *stride = two ? first : heads * first;
    if (step != 1 && N != 1) return false;
    if (two) return heads > 1 && walk.shape[1] == heads && last == N;
    return walk.ndim == 0 || (walk.ndim == 1 && (heads == 1 || first == N));
}

/* The rows of t in place, or of a packed copy. NULL: out of memory. */
static const void *open_rows(const gd_call *call, const gd_tensor *t, int64_t heads,
                             int64_t *stride)
{
    if (rows_lie(t, heads, stride)) return gd_tensor_data(t);
    *stride = heads * gd_tensor_dim(t, -1);
    return packed_copy(call, t, gd_tensor_dtype(t), 1);
}

static bool per_head(const gd_tensor *param)
{
    return param && gd_tensor_ndim(param) == 2;
}

/* weight or bias as the kernels need them. NULL: absent, or out of memory. */
static const void *open_param(const gd_call *call, const gd_tensor *t, gd_dtype dtype,
                              int64_t heads)
{
    if (!t) return NULL;
    const bool lies = gd_tensor_is_contiguous(t) && (heads == 1 || gd_tensor_ndim(t) == 2);
    return lies && gd_tensor_dtype(t) == dtype ? gd_tensor_data(t)
                                               : packed_copy(call, t, dtype, heads);
}

/* The problem of x [..., N], with heads if a parameter has them or the strides of x need them. */
static gd_rms_norm_problem problem_of(const gd_call *call, const gd_tensor *x, bool heads,
                                      gd_dtype weight)
{
    const gd_rms_norm_args *args = call->args;
    gd_rms_norm_problem p = {0};
    p.rows = gd_row_count(x);
    p.cols = gd_tensor_dim(x, -1);
    p.heads = heads && gd_tensor_ndim(x) > 1 ? gd_tensor_dim(x, -2) : 1;
    p.weight_dtype = call->dtype == GD_FLOAT64 ? GD_FLOAT64 : weight;
    p.eps = args->eps;
    p.offset = args->offset;
    p.round_before_weight = args->round_xhat != GD_FLOAT64;
    return p;
}

static gd_status launched(const gd_call *call, gd_status status)
{
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    if (status == GD_OK) return GD_OK;
    return gd_call_fail(call, status, "CUDA: the kernels could not be launched");
}

/* ---- Forward -------------------------------------------------------------------------------- */

/* `weight` is the index of the weight among the inputs; bias is next. */
static gd_status forward(const gd_call *call, const gd_tensor *residual, int weight)
{
    const gd_tensor *x = call->input[0], *w = call->input[weight], *b = call->input[weight + 1];
    int64_t stride;
    const bool heads = per_head(w) || per_head(b) || !rows_lie(x, 1, &stride) ||
                       (residual && !rows_lie(residual, 1, &stride));
    const gd_dtype both = w && b && gd_tensor_dtype(w) != gd_tensor_dtype(b) ? call->dtype
                          : w || b ? gd_tensor_dtype(w ? w : b)
                                   : GD_FLOAT32;
    gd_rms_norm_problem p = problem_of(call, x, heads, both);
    p.weight_per_head = per_head(w) || per_head(b);
    p.y_dtype = gd_tensor_dtype(x);
    p.dtype = gd_tensor_dtype(residual ? residual : x);
    if (p.rows == 0 || p.cols == 0) return GD_OK;
    gd_rms_norm_values v = {0};
    v.y = gd_tensor_data(call->output[0]);
    v.rstd = call->save[0] ? gd_tensor_data(call->save[0]) : NULL;
    v.x = open_rows(call, x, p.heads, &v.x_stride);
    v.y_stride = v.sum_stride = p.heads * p.cols;
    if (residual) {
        v.residual = open_rows(call, residual, p.heads, &v.residual_stride);
        v.sum = gd_tensor_data(call->output[1]);
    }
    v.weight = open_param(call, w, p.weight_dtype, p.weight_per_head ? p.heads : 1);
    v.bias = open_param(call, b, p.weight_dtype, p.weight_per_head ? p.heads : 1);
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    return launched(call, gd_cuda_rms_norm_forward(&p, &v, gd_context_stream(call->context)));
}

/* inputs x [..., N], weight, bias; output y; save rstd [M] */
gd_status rms_norm_forward_cuda(const gd_call *call)
{
    return forward(call, NULL, 1);
}

/* inputs x, residual [..., N], weight, bias; outputs y, sum; save rstd [M] */
gd_status add_rms_norm_forward_cuda(const gd_call *call)
{
    return forward(call, call->input[1], 2);
}

/* ---- Backward ------------------------------------------------------------------------------- */

/* If no gradient reached y: dweight and dbias are 0, and the gradient of the sum is passed on. */
static gd_status pass_dsum(const gd_call *call, const gd_tensor *dsum)
{
    for (int i = 0; i < call->inputs; i++) {
        const gd_tensor *dinput = call->dinput[i];
        const gd_tensor *from = i + 2 < call->inputs ? dsum : NULL; /* x, residual */
        const int64_t n = dinput ? gd_tensor_count(dinput) : 0;
        if (n == 0) continue;
        void *to = gd_tensor_data(dinput);
        const gd_dtype dtype = gd_tensor_dtype(dinput);
        if (from && call->accumulate[i]) {
            gd_accumulate_cuda(to, dtype, gd_tensor_data(from), gd_tensor_dtype(from), n,
                               call->context);
        } else if (from) {
            gd_copy_cuda(gd_layout_of(dinput), gd_layout_of(from), call->context);
        } else if (!call->accumulate[i]) {
            gd_fill_cuda(to, dtype, 0, n, call->context);
        }
    }
    return gd_error_status(call->context);
}

static gd_status run_backward(const gd_call *call, const gd_rms_norm_problem *p,
                              gd_rms_norm_gradients *g)
{
    g->workspace = gd_call_scratch(call, gd_cuda_rms_norm_workspace(p));
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    return launched(call, gd_cuda_rms_norm_backward(p, g, gd_context_stream(call->context)));
}

/* dbias is a separate call: the bias may have heads where the weight has none. */
static gd_status bias_backward(const gd_call *call, const gd_tensor *x, int bias)
{
    const gd_tensor *db = call->dinput[bias];
    if (!db) return GD_OK;
    gd_rms_norm_problem p = problem_of(call, x, per_head(db), GD_FLOAT32);
    p.dtype = p.y_dtype = gd_tensor_dtype(call->doutput[0]);
    p.dweight_dtype = gd_tensor_dtype(db);
    p.weight_per_head = per_head(db);
    gd_rms_norm_gradients g = {0};
    g.dbias = gd_tensor_data(db);
    g.accumulate_dbias = call->accumulate[bias];
    g.dy = g.x = gd_tensor_data(call->doutput[0]); /* x is not read */
    g.dy_stride = g.x_stride = p.heads * p.cols;
    g.rstd = gd_tensor_data(call->save[0]); /* nor is this */
    return run_backward(call, &p, &g);
}

/* x is the normalised tensor; input i of the op gets dx, and in add_rms_norm input 0 gets dbranch,
 * unless both are one tensor. */
static gd_status backward(const gd_call *call, const gd_tensor *x, int weight)
{
    const bool adds = call->outputs > 1;
    const gd_tensor *w = call->input[weight], *dw = call->dinput[weight];
    const gd_tensor *dy = call->doutput[0], *dsum = adds ? call->doutput[1] : NULL;
    if (gd_tensor_dim(x, -1) == 0) return GD_OK;
    if (gd_row_count(x) == 0 || !dy) return pass_dsum(call, dsum);
    if (bias_backward(call, x, weight + 1)) return gd_error_status(call->context);

    int64_t stride;
    gd_rms_norm_problem p = problem_of(call, x, per_head(w) || !rows_lie(x, 1, &stride),
                                       w ? gd_tensor_dtype(w) : GD_FLOAT32);
    p.weight_per_head = per_head(w);
    p.dtype = gd_tensor_dtype(x);
    p.y_dtype = gd_tensor_dtype(dy);
    p.dweight_dtype = dw ? gd_tensor_dtype(dw) : GD_FLOAT32;
    gd_rms_norm_gradients g = {0};
    const int i = adds ? 1 : 0;
    if (call->dinput[i]) g.dx = gd_tensor_data(call->dinput[i]);
    g.accumulate_dx = call->accumulate[i];
    if (adds && call->dinput[0] && gd_tensor_data(call->dinput[0]) != g.dx) {
        g.dbranch = gd_tensor_data(call->dinput[0]);
        g.accumulate_dbranch = call->accumulate[0];
    }
    if (!g.dx && p.dtype == p.y_dtype) {
        g.dx = g.dbranch, g.accumulate_dx = g.accumulate_dbranch;
        g.dbranch = NULL, g.accumulate_dbranch = false;
    }
    if (dw) g.dweight = gd_tensor_data(dw);
    g.accumulate_dweight = call->accumulate[weight];
    g.dx_stride = g.dbranch_stride = g.dy_stride = g.dsum_stride = p.heads * p.cols;
    g.dy = gd_tensor_data(dy);
    g.dsum = dsum ? gd_tensor_data(dsum) : NULL;
    g.x = open_rows(call, x, p.heads, &g.x_stride);
    g.rstd = gd_tensor_data(call->save[0]);
    g.weight = open_param(call, w, p.weight_dtype, 1);
    return run_backward(call, &p, &g);
}

/* reads x, weight, rstd */
gd_status rms_norm_backward_cuda(const gd_call *call)
{
    return backward(call, call->input[0], 1);
}

/* reads the sum, weight, rstd */
gd_status add_rms_norm_backward_cuda(const gd_call *call)
{
    return backward(call, call->output[1], 2);
}

#endif
