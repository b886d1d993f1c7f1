/* problem.c - from the tensors of the ops to gradus/kernels.h, for any device; and the functions of
 * that header on the CPU, which check a problem and choose its kernel.
 *
 * rms_norm has the inputs x, weight, bias and the output y; add_rms_norm the inputs x, residual,
 * weight, bias and the outputs y, sum. Both save rstd [M]. */
#include "kernel.h"
#include "rms_norm/rms_norm.h"

/* ---- From tensors to rows ----------------------------------------------------------------- */

/* Whether the rows of t [..., N] lie as kernels.h needs them for this number of heads: the H N
 * numbers of a token are packed, the tokens at one distance, `stride`. */
static bool rows_lie(const gd_tensor *t, int64_t heads, int64_t *stride)
{
    const int64_t *shape = gd_tensor_shape(t), *strides = gd_tensor_strides(t);
    const int64_t width = heads * gd_tensor_dim(t, -1);
    int64_t packed = 1, tokens = 1;
    int d = gd_tensor_ndim(t) - 1;
    for (; packed < width; packed *= shape[d--])
        if (shape[d] != 1 && strides[d] != packed) return false;
    *stride = width;
    for (; d >= 0; tokens *= shape[d--]) {
        if (tokens == 1 && shape[d] != 1) *stride = strides[d];
        if (shape[d] != 1 && strides[d] != *stride * tokens) return false;
    }
    return true;
}

/* The rows of t in place, or of a packed copy. NULL: out of memory. */
static const void *open_rows(const gd_call *call, const gd_tensor *t, int64_t heads,
                             int64_t *stride)
{
    if (rows_lie(t, heads, stride)) return gd_tensor_data(t);
    int64_t strides[GD_MAX_DIMS];
    *stride = heads * gd_tensor_dim(t, -1);
    return gd_packed_copy(call, gd_layout_of(t), gd_tensor_dtype(t), strides);
}

static bool per_head(const gd_tensor *param)
{
    return param && gd_tensor_ndim(param) == 2;
}

/* weight or bias as the kernels need them. NULL: absent, or out of memory. */
static const void *open_param(const gd_call *call, const gd_tensor *t, const gd_rms_norm_problem *p)
{
    if (!t) return NULL;
    const bool repeated = p->weight_per_head && !per_head(t);
    if (gd_tensor_is_contiguous(t) && !repeated && gd_tensor_dtype(t) == p->weight_dtype)
        return gd_tensor_data(t);
    const int64_t shape[] = {p->heads, p->cols}, strides[] = {0, gd_tensor_strides(t)[0]};
    int64_t packed[GD_MAX_DIMS];
    gd_layout from = gd_layout_of(t);
    if (repeated) from.ndim = 2, from.shape = shape, from.strides = strides;
    return gd_packed_copy(call, from, p->weight_dtype, packed);
}

/* The problem of x [..., N], to which residual [..., N] may be added: with heads if weight and bias
 * have them or the strides need them. */
static gd_rms_norm_problem problem_of(const gd_call *call, const gd_tensor *x,
                                      const gd_tensor *residual, bool weight_per_head,
                                      gd_dtype weight_dtype)
{
    const gd_rms_norm_args *args = call->args;
    int64_t stride;
    const bool heads = weight_per_head || !rows_lie(x, 1, &stride) ||
                       (residual && !rows_lie(residual, 1, &stride));
    return (gd_rms_norm_problem){.rows = gd_row_count(x),
                                 .cols = gd_tensor_dim(x, -1),
                                 .heads = heads && gd_tensor_ndim(x) > 1 ? gd_tensor_dim(x, -2) : 1,
                                 .weight_per_head = weight_per_head,
                                 .dtype = gd_tensor_dtype(residual ? residual : x),
                                 .y_dtype = gd_tensor_dtype(x),
                                 .weight_dtype =
                                     call->dtype == GD_FLOAT64 ? GD_FLOAT64 : weight_dtype,
                                 .eps = args->eps,
                                 .offset = args->offset,
                                 .round_before_weight = args->round_before_weight != 0};
}

static bool on_cpu(const gd_call *call)
{
    return gd_context_device(call->context) == GD_CPU;
}

/* An earlier error stays: the kernels refuse the NULL of memory that there was not. */
static gd_status launched(const gd_call *call, gd_status status)
{
    return status ? gd_call_fail(call, status, "its kernels could not be launched") : GD_OK;
}

/* ---- Forward -------------------------------------------------------------------------------- */

gd_status rms_norm_forward(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *residual = call->outputs == 2 ? call->input[1] : NULL;
    const gd_tensor *w = call->input[call->inputs - 2], *b = call->input[call->inputs - 1];
    const gd_dtype dtype = w && b && gd_tensor_dtype(w) != gd_tensor_dtype(b) ? call->dtype
                           : w || b ? gd_tensor_dtype(w ? w : b)
                                    : GD_FLOAT32;
    const gd_rms_norm_problem p = problem_of(call, x, residual, per_head(w) || per_head(b), dtype);
    if (p.rows == 0 || p.cols == 0) return GD_OK;
    gd_rms_norm_values v = {.y = gd_tensor_data(call->output[0]),
                            .y_stride = p.heads * p.cols,
                            .rstd = gd_data(call->save[0]),
                            .sum = gd_data(residual ? call->output[1] : NULL),
                            .sum_stride = p.heads * p.cols};
    v.x = open_rows(call, x, p.heads, &v.x_stride);
    if (residual) v.residual = open_rows(call, residual, p.heads, &v.residual_stride);
    v.weight = open_param(call, w, &p);
    v.bias = open_param(call, b, &p);
    return launched(call, on_cpu(call)
                              ? gd_cpu_rms_norm_forward(&p, &v, call->threads)
                              : gd_cuda_rms_norm_forward(&p, &v, gd_context_stream(call->context)));
}

/* ---- Backward ------------------------------------------------------------------------------- */

/* If no gradient reached y: dweight and dbias are 0, and the gradient of the sum is passed on. */
static gd_status pass_dsum(const gd_call *call, const gd_tensor *dsum)
{
    const gd_services *services = gd_services_of[gd_context_device(call->context)];
    for (int i = 0; i < call->inputs; i++) {
        const gd_tensor *to = call->dinput[i], *from = i < call->inputs - 2 ? dsum : NULL;
        const int64_t n = to ? gd_tensor_count(to) : 0;
        if (n && !call->accumulate[i])
            services->fill(gd_tensor_data(to), gd_tensor_dtype(to), 0, n, call->context);
        if (n && from)
            services->accumulate(gd_tensor_data(to), gd_tensor_dtype(to), gd_tensor_data(from),
                                 gd_tensor_dtype(from), n, call->context);
    }
    return gd_error_status(call->context);
}

/* The gradients that g has pointers to. x is what was normalised; `dparam` is the gradient of the
 * weight or of the bias, or NULL. */
static gd_status gradients(const gd_call *call, const gd_tensor *x, const gd_tensor *w,
                           const gd_tensor *dparam, gd_rms_norm_gradients g)
{
    const bool cpu = on_cpu(call);
    const gd_tensor *dy = call->doutput[0];
    gd_rms_norm_problem p =
        problem_of(call, x, NULL, per_head(w ? w : dparam), w ? gd_tensor_dtype(w) : GD_FLOAT32);
    p.y_dtype = gd_tensor_dtype(dy);
    p.dweight_dtype = dparam ? gd_tensor_dtype(dparam) : GD_FLOAT32;
    g.dx_stride = g.dbranch_stride = g.dy_stride = g.dsum_stride = p.heads * p.cols;
    g.dy = gd_tensor_data(dy);
    g.x = open_rows(call, x, p.heads, &g.x_stride);
    g.rstd = gd_tensor_data(call->save[0]);
    g.weight = open_param(call, w, &p);
    g.workspace =
        gd_call_scratch(call, cpu ? gd_cpu_rms_norm_workspace(&p) : gd_cuda_rms_norm_workspace(&p));
    if (!g.workspace) return GD_ERROR_MEMORY;
    return launched(call,
                    cpu ? gd_cpu_rms_norm_backward(&p, &g, call->threads)
                        : gd_cuda_rms_norm_backward(&p, &g, gd_context_stream(call->context)));
}

gd_status rms_norm_backward(const gd_call *call)
{
    const bool adds = call->outputs == 2;
    const int weight = call->inputs - 2, bias = call->inputs - 1;
    const gd_tensor *x = adds ? call->output[1] : call->input[0], *dy = call->doutput[0];
    const gd_tensor *dsum = adds ? call->doutput[1] : NULL, *w = call->input[weight];
    const gd_tensor *dw = call->dinput[weight], *db = call->dinput[bias];
    if (gd_tensor_dim(x, -1) == 0) return GD_OK;
    if (gd_row_count(x) == 0 || !dy) return pass_dsum(call, dsum);
    gd_rms_norm_gradients g = {.dbias = gd_data(db), .accumulate_dbias = call->accumulate[bias]};
    if (db && ((w && per_head(w) != per_head(db)) ||
               (dw && gd_tensor_dtype(dw) != gd_tensor_dtype(db)))) {
        /* A call for dbias alone, to which x does not matter. */
        if (gradients(call, dy, NULL, db, g)) return gd_error_status(call->context);
        g.dbias = NULL, db = NULL;
    }
    /* The gradients of x and, in add_rms_norm, of the residual are the same numbers. dx is that of
     * the normalised tensor, which has the residual's dtype; dbranch is that of x. */
    const gd_tensor *dx = call->dinput[0], *dresidual = adds ? call->dinput[1] : NULL;
    const bool first = dx && !dresidual && gd_tensor_dtype(x) == gd_tensor_dtype(dy);
    const gd_tensor *main = first ? dx : dresidual, *branch = first ? NULL : dx;
    g.dx = gd_data(main), g.accumulate_dx = main && call->accumulate[first ? 0 : 1];
    g.dbranch = gd_data(branch), g.accumulate_dbranch = branch && call->accumulate[0];
    g.dweight = gd_data(dw), g.accumulate_dweight = call->accumulate[weight];
    g.dsum = gd_data(dsum);
    return gradients(call, x, w, dw ? dw : db, g);
}

/* ---- gradus/kernels.h on the CPU ------------------------------------------------------------ */

gd_status gd_cpu_rms_norm_forward(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                  int threads)
{
    if (!rms_norm_valid(p) || !v || threads < 1) return GD_ERROR_ARGUMENT;
    if (p->rows == 0 || p->cols == 0) return GD_OK;
    if (!v->y || !v->x || (v->residual && !v->sum)) return GD_ERROR_ARGUMENT;
    (rms_norm_in_double(p) ? rms_norm_fast_forward_f64 : rms_norm_fast_forward_f32)(p, v, threads);
    return GD_OK;
}

gd_status gd_cpu_rms_norm_backward(const gd_rms_norm_problem *p, const gd_rms_norm_gradients *g,
                                   int threads)
{
    if (!rms_norm_valid(p) || !g || threads < 1) return GD_ERROR_ARGUMENT;
    bool sums = g->dweight || g->dbias;
    if (p->cols == 0 || (!g->dx && !g->dbranch && !sums)) return GD_OK;
    if (p->rows > 0 && (!g->dy || !g->x || !g->rstd || (sums && !g->workspace)))
        return GD_ERROR_ARGUMENT;
    (rms_norm_in_double(p) ? rms_norm_fast_backward_f64 : rms_norm_fast_backward_f32)(p, g,
                                                                                      threads);
    return GD_OK;
}

size_t gd_cpu_rms_norm_workspace(const gd_rms_norm_problem *p)
{
    if (!rms_norm_valid(p)) return 0;
    const int64_t pieces = gd_divide_up(p->rows, rms_norm_piece_rows(p));
    return (size_t)(pieces * 2 * rms_norm_weight_rows(p) * p->cols) * sizeof(double);
}
