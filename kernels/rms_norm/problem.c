/* problem.c - from the tensors of the ops to gradus/kernels.h, for any device; and the functions of
 * that header on the CPU: they check a problem, and choose its kernel. */
#include "kernel.h"
#include "rms_norm/rms_norm.h"
#include "walk.h"

/* ---- From tensors to rows ----------------------------------------------------------------- */

static const gd_services *services_of(const gd_call *call)
{
    return gd_services_of[gd_context_device(call->context)];
}

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
    services_of(call)->copy(to, from, call->context);
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
static const void *open_param(const gd_call *call, const gd_tensor *t, const gd_rms_norm_problem *p)
{
    if (!t) return NULL;
    const int64_t heads = rms_norm_weight_rows(p);
    const bool lies = gd_tensor_is_contiguous(t) && (heads == 1 || gd_tensor_ndim(t) == 2);
    return lies && gd_tensor_dtype(t) == p->weight_dtype
               ? gd_tensor_data(t)
               : packed_copy(call, t, p->weight_dtype, heads);
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
    p.round_before_weight = args->round_before_weight != 0;
    return p;
}

static gd_status launched(const gd_call *call, gd_status status)
{
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    if (status == GD_OK) return GD_OK;
    return gd_call_fail(call, status, "its kernels could not be launched");
}

/* ---- Forward -------------------------------------------------------------------------------- */

/* `weight` is the index of the weight among the inputs; bias is next. */
static gd_status problem_forward(const gd_call *call, const gd_tensor *residual, int weight)
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
    v.weight = open_param(call, w, &p);
    v.bias = open_param(call, b, &p);
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    if (gd_context_device(call->context) == GD_CPU)
        return launched(call, gd_cpu_rms_norm_forward(&p, &v, call->threads));
    return launched(call, gd_cuda_rms_norm_forward(&p, &v, gd_context_stream(call->context)));
}

/* inputs x [..., N], weight, bias; output y; save rstd [M] */
gd_status rms_norm_forward(const gd_call *call)
{
    return problem_forward(call, NULL, 1);
}

/* inputs x, residual [..., N], weight, bias; outputs y, sum; save rstd [M] */
gd_status add_rms_norm_forward(const gd_call *call)
{
    return problem_forward(call, call->input[1], 2);
}

/* ---- Backward ------------------------------------------------------------------------------- */

/* If no gradient reached y: dweight and dbias are 0, and the gradient of the sum is passed on. */
static gd_status pass_dsum(const gd_call *call, const gd_tensor *dsum)
{
    const gd_services *services = services_of(call);
    for (int i = 0; i < call->inputs; i++) {
        const gd_tensor *dinput = call->dinput[i];
        const gd_tensor *from = i + 2 < call->inputs ? dsum : NULL; /* x, residual */
        const int64_t n = dinput ? gd_tensor_count(dinput) : 0;
        if (n == 0) continue;
        void *to = gd_tensor_data(dinput);
        const gd_dtype dtype = gd_tensor_dtype(dinput);
        if (from && call->accumulate[i]) {
            services->accumulate(to, dtype, gd_tensor_data(from), gd_tensor_dtype(from), n,
                                 call->context);
        } else if (from) {
            services->copy(gd_layout_of(dinput), gd_layout_of(from), call->context);
        } else if (!call->accumulate[i]) {
            services->fill(to, dtype, 0, n, call->context);
        }
    }
    return gd_error_status(call->context);
}

static gd_status run_backward(const gd_call *call, const gd_rms_norm_problem *p,
                              gd_rms_norm_gradients *g)
{
    const bool cpu = gd_context_device(call->context) == GD_CPU;
    const size_t bytes = cpu ? gd_cpu_rms_norm_workspace(p) : gd_cuda_rms_norm_workspace(p);
    g->workspace = gd_call_scratch(call, bytes);
    if (gd_error_status(call->context)) return gd_error_status(call->context);
    if (cpu) return launched(call, gd_cpu_rms_norm_backward(p, g, call->threads));
    return launched(call, gd_cuda_rms_norm_backward(p, g, gd_context_stream(call->context)));
}

/* A call for dbias alone, which may have heads or a dtype that dweight has not. */
static gd_status bias_backward(const gd_call *call, const gd_tensor *x, int bias)
{
    const gd_tensor *db = call->dinput[bias];
    gd_rms_norm_problem p = problem_of(call, x, per_head(db), GD_FLOAT32);
    p.dtype = p.y_dtype = gd_tensor_dtype(call->doutput[0]);
    p.dweight_dtype = gd_tensor_dtype(db);
    p.weight_per_head = per_head(db);
    gd_rms_norm_gradients g = {0};
    g.dbias = gd_tensor_data(db);
    g.accumulate_dbias = call->accumulate[bias];
    g.dy = g.x = gd_tensor_data(call->doutput[0]); /* x counts for nothing */
    g.dy_stride = g.x_stride = p.heads * p.cols;
    g.rstd = gd_tensor_data(call->save[0]); /* nor does this */
    return run_backward(call, &p, &g);
}

/* The gradients of x and, in add_rms_norm, of the residual: the same numbers. dx is that of the
 * normalised tensor, which has the residual's dtype; dbranch is that of x. */
static void place_dx(const gd_call *call, const gd_rms_norm_problem *p, gd_rms_norm_gradients *g)
{
    const gd_tensor *dx = call->dinput[0], *dresidual = call->outputs > 1 ? call->dinput[1] : NULL;
    const bool first = dx && !dresidual && p->dtype == p->y_dtype;
    const gd_tensor *main = first ? dx : dresidual, *branch = first ? NULL : dx;
    g->dx = gd_data(main), g->accumulate_dx = main && call->accumulate[first ? 0 : 1];
    g->dbranch = gd_data(branch), g->accumulate_dbranch = branch && call->accumulate[0];
}

/* x is what was normalised: x, or the sum. */
static gd_status problem_backward(const gd_call *call, const gd_tensor *x, int weight)
{
    const gd_tensor *w = call->input[weight], *dw = call->dinput[weight];
    const gd_tensor *db = call->dinput[weight + 1], *dy = call->doutput[0];
    const gd_tensor *dsum = call->outputs > 1 ? call->doutput[1] : NULL;
    if (gd_tensor_dim(x, -1) == 0) return GD_OK;
    if (gd_row_count(x) == 0 || !dy) return pass_dsum(call, dsum);
    const bool apart = db && ((w && per_head(w) != per_head(db)) ||
                              (dw && gd_tensor_dtype(dw) != gd_tensor_dtype(db)));
    if (apart && bias_backward(call, x, weight + 1)) return gd_error_status(call->context);

    int64_t stride;
    const gd_tensor *either = w || apart ? w : db;
    gd_rms_norm_problem p = problem_of(call, x, per_head(either) || !rows_lie(x, 1, &stride),
                                       w ? gd_tensor_dtype(w) : GD_FLOAT32);
    p.weight_per_head = per_head(either);
    p.dtype = gd_tensor_dtype(x);
    p.y_dtype = gd_tensor_dtype(dy);
    p.dweight_dtype = dw ? gd_tensor_dtype(dw) : db && !apart ? gd_tensor_dtype(db) : GD_FLOAT32;
    gd_rms_norm_gradients g = {0};
    place_dx(call, &p, &g);
    g.dweight = gd_data(dw);
    g.accumulate_dweight = call->accumulate[weight];
    g.dbias = apart ? NULL : gd_data(db);
    g.accumulate_dbias = call->accumulate[weight + 1];
    g.dx_stride = g.dbranch_stride = g.dy_stride = g.dsum_stride = p.heads * p.cols;
    g.dy = gd_tensor_data(dy);
    g.dsum = gd_data(dsum);
    g.x = open_rows(call, x, p.heads, &g.x_stride);
    g.rstd = gd_tensor_data(call->save[0]);
    g.weight = open_param(call, w, &p);
    return run_backward(call, &p, &g);
}

/* reads x, weight, rstd */
gd_status rms_norm_backward(const gd_call *call)
{
    return problem_backward(call, call->input[0], 1);
}

/* reads the sum, weight, rstd */
gd_status add_rms_norm_backward(const gd_call *call)
{
    return problem_backward(call, call->output[1], 2);
}

/* ---- gradus/kernels.h on the CPU ------------------------------------------------------------ */

static bool good_problem(const gd_rms_norm_problem *p)
{
    return p && p->rows >= 0 && p->cols >= 0 && p->heads >= 0 && p->rows % rms_norm_heads(p) == 0 &&
           p->eps >= 0 && gd_dtype_is_real(p->dtype) && gd_dtype_is_real(p->y_dtype) &&
           gd_dtype_is_real(p->weight_dtype) && gd_dtype_is_real(p->dweight_dtype);
}

/* How many of the dtypes that decide it are float64: any, and it computes in double. */
static int doubles(const gd_rms_norm_problem *p)
{
    return (p->dtype == GD_FLOAT64) + (p->y_dtype == GD_FLOAT64) + (p->weight_dtype == GD_FLOAT64);
}

gd_status gd_cpu_rms_norm_forward(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                  int threads)
{
    if (!good_problem(p) || !v || threads < 1) return GD_ERROR_ARGUMENT;
    if (p->rows == 0 || p->cols == 0) return GD_OK;
    if (!v->y || !v->x || (v->residual && !v->sum)) return GD_ERROR_ARGUMENT;
    if (doubles(p) == 0)
        rms_norm_fast_forward_f32(p, v, threads);
    else if (doubles(p) == 3)
        rms_norm_fast_forward_f64(p, v, threads);
    else
        rms_norm_plain_forward_f64(p, v, threads);
    return GD_OK;
}

gd_status gd_cpu_rms_norm_backward(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g,
                                   int threads)
{
    if (!good_problem(p) || !g || threads < 1) return GD_ERROR_ARGUMENT;
    bool sums = g->dweight || g->dbias;
    if (p->cols == 0 || (!g->dx && !g->dbranch && !sums)) return GD_OK;
    if (p->rows > 0 && (!g->dy || !g->x || !g->rstd || (sums && !g->workspace)))
        return GD_ERROR_ARGUMENT;
    if (doubles(p) == 0)
        rms_norm_fast_backward_f32(p, g, threads);
    else if (doubles(p) == 3)
        rms_norm_fast_backward_f64(p, g, threads);
    else
        rms_norm_plain_backward_f64(p, g, threads);
    return GD_OK;
}

size_t gd_cpu_rms_norm_workspace(const gd_rms_norm_problem *p)
{
    if (!good_problem(p)) return 0;
    const int64_t pieces = gd_divide_up(p->rows, rms_norm_piece_rows(p));
    return (size_t)(pieces * 2 * rms_norm_weight_rows(p) * p->cols) * sizeof(double);
}
