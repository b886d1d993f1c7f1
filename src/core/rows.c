/* rows.c - gradients of which few rows are other than 0.
 *
 * A backward touches few rows of a table with many. The memory of its gradient is dense and always
 * what a reader expects, but it is known which rows may be other than 0: only these are cleared,
 * measured and used by updates. That holds until something else writes to the gradient, and from
 * the next clearing on again; and never for a gradient that others have (`shared`). */
#include "core/core.h"

#include <math.h>

gd_touched gd_touched_of(const gd_tensor *grad, int64_t begin, int64_t end)
{
    return (gd_touched){grad->touched, begin, end, grad->count / grad->shape[0]};
}

void gd_grad_zero(gd_tensor *grad)
{
    gd_context *ctx = grad->ctx;
    if (grad->sparse) {
        const gd_touched rows = gd_touched_of(grad, 0, grad->count);
        ctx->services->clear_rows(gd_tensor_data(grad), grad->dtype, &rows, ctx);
    } else {
        ctx->services->fill(gd_tensor_data(grad), grad->dtype, 0, grad->count, ctx);
    }
}

uint32_t *gd_touch_rows(const gd_call *call, int i, int64_t rows)
{
    gd_tensor *grad = call->dinput[i];
    gd_context *ctx = call->context;
    const bool lasts = grad->owned && !grad->step, add = call->accumulate[i];
    if (!lasts || grad->shared || (add ? !grad->was_sparse : rows > grad->shape[0] / 4))
        return NULL;
    const size_t bytes = gd_touched_bytes(grad);
    void *touched = grad->touched;
    if (!touched && gd_pool_allocate(ctx, GD_POOL_LASTING, bytes, GD_MEMORY_GRADIENTS,
                                     call->op->name, &touched))
        return NULL;
    grad->touched = touched;
    grad->sparse = grad->was_sparse;
    if (!add) {
        if (!grad->sparse && ctx->device->fill_bytes(ctx, touched, 0, bytes)) return NULL;
        gd_grad_zero(grad);
    }
    grad->sparse = !gd_failed(ctx);
    return grad->sparse ? grad->touched : NULL;
}

double gd_sum_squares(const gd_tensor *t, const gd_sparse *sparse)
{
    gd_context *ctx = t->ctx;
    double sum = NAN;
    gd_call_frame frame;
    gd_frame_begin(ctx, &frame);
    gd_tensor *device_sum = gd_frame_tensor(ctx, GD_FLOAT64, 0, NULL, "sum of squares");
    if (device_sum) {
        double *at = gd_tensor_data(device_sum);
        ctx->services->sum_squares(at, gd_tensor_data(t), t->dtype, t->count, sparse, ctx);
        if (!gd_failed(ctx)) ctx->device->download(ctx, &sum, at, sizeof sum);
    }
    gd_frame_end(ctx, &frame);
    return gd_failed(ctx) ? (double)NAN : sum;
}
