/* rms_norm_kernels.c - gd_cpu_rms_norm_* of gradus/kernels.h: the CPU kernels on raw pointers. */
#include "gradus/kernels.h"
#include "rms_norm/rms_norm_cpu.h"

static int64_t heads_of(const gd_rms_norm_problem *p)
{
    return gd_max64(p->heads, 1);
}

/* Rows of weight and bias. */
static int64_t weight_heads(const gd_rms_norm_problem *p)
{
    return p->weight_per_head ? heads_of(p) : 1;
}

static bool good_problem(const gd_rms_norm_problem *p)
{
    return p && p->rows >= 0 && p->cols >= 0 && p->heads >= 0 && p->rows % heads_of(p) == 0 &&
           p->eps >= 0 && gd_dtype_is_real(p->dtype) && gd_dtype_is_real(p->y_dtype) &&
           gd_dtype_is_real(p->weight_dtype) && gd_dtype_is_real(p->dweight_dtype);
}

static bool computes_in_double(const gd_rms_norm_problem *p)
{
    return p->dtype == GD_FLOAT64 || p->y_dtype == GD_FLOAT64 || p->weight_dtype == GD_FLOAT64;
}

static gd_dtype xhat_dtype(const gd_rms_norm_problem *p)
{
    return p->round_before_weight ? p->y_dtype : GD_FLOAT64;
}

/* `stride` leads from token to token. The data of what is read is not written. */
static rms_rows rows_of(const gd_rms_norm_problem *p, const void *data, gd_dtype dtype,
                        int64_t stride)
{
    rms_rows x = {.data = (void *)(uintptr_t)data,
                  .dtype = dtype,
                  .size = (int64_t)gd_dtype_size(dtype),
                  .stride = stride};
    int64_t heads = heads_of(p);
    if (heads > 1 && stride == heads * p->cols) {
        x.stride = p->cols;
    } else if (heads > 1) {
        x.ndim = 2;
        x.shape[0] = p->rows / heads, x.shape[1] = heads;
        x.strides[0] = stride, x.strides[1] = p->cols;
    }
    return x;
}

static rms_param param_of(const gd_rms_norm_problem *p, const void *data, gd_dtype dtype,
                          bool accumulate)
{
    return (rms_param){(void *)(uintptr_t)data, dtype, (int64_t)gd_dtype_size(dtype),
                       weight_heads(p), accumulate};
}

gd_status gd_cpu_rms_norm_forward(const gd_rms_norm_problem *p, const gd_rms_norm_values *v,
                                  int threads)
{
    if (!good_problem(p) || !v || threads < 1) return GD_ERROR_ARGUMENT;
    if (p->rows == 0 || p->cols == 0) return GD_OK;
    if (!v->y || !v->x || (v->residual && !v->sum)) return GD_ERROR_ARGUMENT;
    rms_forward f = {.M = p->rows,
                     .N = p->cols,
                     .eps = p->eps,
                     .offset = p->offset,
                     .round_xhat = xhat_dtype(p),
                     .round_sum = p->dtype,
                     .y = rows_of(p, v->y, p->y_dtype, v->y_stride),
                     .rstd = v->rstd,
                     .weight = param_of(p, v->weight, p->weight_dtype, false),
                     .bias = param_of(p, v->bias, p->weight_dtype, false)};
    f.x = rows_of(p, v->x, v->residual ? p->y_dtype : p->dtype, v->x_stride);
    if (v->residual) {
        f.residual = rows_of(p, v->residual, p->dtype, v->residual_stride);
        f.sum = rows_of(p, v->sum, p->dtype, v->sum_stride);
    }
    f.y.how = rms_how(&f.y, p->rows * p->cols, false, v->y == v->x);
    (computes_in_double(p) ? rms_norm_rows_forward_f64 : rms_norm_rows_forward_f32)(&f, threads);
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
    rms_backward b = {.M = p->rows,
                      .N = p->cols,
                      .offset = p->offset,
                      .round_xhat = xhat_dtype(p),
                      .x = rows_of(p, g->x, p->dtype, g->x_stride),
                      .dy = rows_of(p, g->dy, p->y_dtype, g->dy_stride),
                      .dsum = rows_of(p, g->dsum, p->dtype, g->dsum_stride),
                      .dx = rows_of(p, g->dx, p->dtype, g->dx_stride),
                      .dresidual = rows_of(p, g->dbranch, p->y_dtype, g->dbranch_stride),
                      .rstd = g->rstd,
                      .weight = param_of(p, g->weight, p->weight_dtype, false),
                      .dw = param_of(p, g->dweight, p->dweight_dtype, g->accumulate_dweight),
                      .db = param_of(p, g->dbias, p->dweight_dtype, g->accumulate_dbias),
                      .piece_rows = rms_piece_rows(p->rows, weight_heads(p)),
                      .partials = g->workspace};
    int64_t count = p->rows * p->cols;
    b.dx.how = rms_how(&b.dx, count, g->accumulate_dx, g->dx == g->dy || g->dx == g->dsum);
    b.dresidual.how = rms_how(&b.dresidual, count, g->accumulate_dbranch, false);
    (computes_in_double(p) ? rms_norm_rows_backward_f64 : rms_norm_rows_backward_f32)(&b, threads);
    return GD_OK;
}

size_t gd_cpu_rms_norm_workspace(const gd_rms_norm_problem *p)
{
    if (!good_problem(p)) return 0;
    int64_t heads = weight_heads(p);
    return rms_partials_bytes(p->rows, p->cols, rms_piece_rows(p->rows, heads), 2 * heads);
}
