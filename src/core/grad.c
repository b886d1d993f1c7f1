/* grad.c - a tensor's gradient: whether it requires one, its memory, its sum.
 *
 * A leaf's gradient stays until it is cleared. Clearing writes no memory: it marks the content as
 * invalid, and the next gradient overwrites it instead of being added. An intermediate has a
 * gradient only while the walk needs it, and then, if the user asked for it, one that is retained. */
#include "core/core.h"

#include <math.h>

gd_status gd_tensor_set_requires_grad(gd_tensor *t, bool on)
{
    if (!t) return GD_ERROR_ARGUMENT;
    if (gd_failed(t->ctx)) return t->ctx->status;
    const char *fault = t->step    ? "was made by an op, wanted one of yours"
                        : t->freed ? "was freed"
                        : on && !gd_dtype_is_real(t->dtype) ? "is int32, wanted a real dtype"
                                                            : NULL;
    if (fault) {
        return gd_fail(t->ctx, t->freed ? GD_ERROR_STATE : GD_ERROR_ARGUMENT,
                       "set_requires_grad: the tensor %s %s", gd_shape_text(t).text, fault);
    }
    if (on && t->buffer) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                       "set_requires_grad: \"%s\" is a buffer, wanted a parameter (gd_params_add)",
                       t->name);
    }
    t->requires_grad = on;
    if (on) t->ctx->calls_at_require = t->ctx->calls;
    if (!t->owned && t->storage) { /* a group's parameters are counted already */
        gd_storage_reclassify(t->ctx, t->storage, on ? GD_MEMORY_PARAMETERS : GD_MEMORY_OTHER);
    }
    return GD_OK;
}

gd_status gd_tensor_need_grad(gd_tensor *t)
{
    if (t->grad) {
        /* It may be an op's input: its backward detects the write. */
        gd_new_version(t->ctx, t->grad->storage);
        t->grad->was_sparse = t->grad->sparse;
        t->grad->sparse = false;
        return GD_OK;
    }
    const gd_dtype dtype = gd_gradient_dtype(t);
    gd_tensor *grad = gd_tensor_header(t->ctx, "backward", t->step, dtype, t->ndim, t->shape);
    if (!grad) return gd_error_status(t->ctx);
    if (gd_tensor_allocate(grad, GD_MEMORY_GRADIENTS, "backward")) {
        if (!t->step) gd_tensor_destroy(grad);
        return gd_error_status(t->ctx);
    }
    grad->owned = true;
    if (!t->step) gd_tensor_unlist(grad); /* it goes with t */
    t->grad = grad;
    return GD_OK;
}

gd_tensor *gd_grad(const gd_tensor *t)
{
    gd_tensor *grad = t ? gd_grad_now(t) : NULL;
    if (grad) {
        grad->gradient = true;
        gd_grad_share(grad);
    }
    if (!grad && t && t->node && t->node->used && !t->retain_grad)
        gd_notice(t->ctx, GD_NOTICE_NO_GRADIENT,
                  "grad: the gradient of %s, made by %s, was not kept: call gd_retain_grad on it "
                  "before gd_backward",
                  gd_shape_text(t).text, t->node->op->name);
    return grad;
}

gd_status gd_grad_clear(gd_tensor *t)
{
    if (!t) return GD_ERROR_ARGUMENT;
    if (t->retained) {
        t->grad = t->retained;
        t->retained = NULL;
        gd_grad_release(t);
    }
    t->grad_valid = t->spent = false;
    return GD_OK;
}

/* Gradients of tensors made by ops are in step storages; closing the last view returns the
 * memory. */
void gd_grad_release(gd_tensor *t)
{
    gd_tensor *grad = t->grad;
    t->grad = NULL;
    t->grad_valid = false;
    if (!grad) return;
    grad->freed = true;
    gd_storage *storage = grad->storage;
    if (--storage->views == 0) gd_storage_release(t->ctx, storage);
}

/* Adds src, of any strides, to a gradient. */
static void accumulate(const gd_tensor *grad, const gd_tensor *src, const char *who)
{
    gd_context *ctx = src->ctx;
    gd_call_frame frame;
    gd_frame_begin(ctx, &frame);
    gd_tensor *packed = gd_frame_prepare(ctx, (gd_tensor *)src, src->dtype, false, who);
    if (packed && src->count) {
        ctx->services->accumulate(gd_tensor_data(grad), grad->dtype, gd_tensor_data(packed),
                                  packed->dtype, src->count, ctx);
    }
    gd_frame_end(ctx, &frame);
}

/* The gradients of several backwards over a kept tape add up here, where none of them passes on what
 * the ones before have passed on. */
void gd_grad_retain(gd_tensor *t)
{
    if (!t->retained) {
        t->retained = t->grad;
        t->grad = NULL;
    } else if (!gd_failed(t->ctx)) {
        gd_new_version(t->ctx, t->retained->storage);
        accumulate(t->retained, t->grad, "backward");
    }
    gd_grad_release(t);
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

/* ---- Rows ---------------------------------------------------------------------------------
 *
 * A backward touches few rows of a table with many. The memory of its gradient is dense and always what a
 * reader expects, but it is known which rows may be other than 0: only these are cleared, measured and
 * used by updates. That holds until something else writes to the gradient, and from the next clearing
 * on again; and never for a gradient that others have (`shared`). */

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

gd_status gd_grad_add(gd_tensor *t, const gd_tensor *src, const char *who)
{
    gd_context *ctx = t->ctx;
    bool add = t->grad_valid;
    if (gd_tensor_need_grad(t)) return gd_error_status(ctx);
    t->grad_valid = true;
    if (t->count == 0) return GD_OK;
    if (add)
        accumulate(t->grad, src, who);
    else
        ctx->services->copy(gd_tensor_layout(t->grad), gd_tensor_layout(src), ctx);
    return ctx->status;
}
