/* grad.c - a tensor's gradient: whether it requires one, its memory, its sum.
 *
 * A leaf's gradient stays until it is cleared. Clearing writes no memory: it marks the content as
 * invalid, and the next gradient overwrites it instead of being added. An intermediate has a
 * gradient only while the walk needs it, and then, if the user asked for it, one that is
 * retained. */
#include "core/core.h"

gd_status gd_tensor_need_grad(gd_tensor *t)
{
    if (t->grad) {
        /* It may be an op's input: its backward detects the write. */
        gd_new_version(t->ctx, t->grad->storage);
        if (t->grad->sparse) gd_grad_take_all(t->grad);
        return GD_OK;
    }
    gd_tensor *grad = gd_grad_header(t, t->step, gd_gradient_dtype(t));
    if (!grad) return t->ctx->status;
    if (gd_tensor_allocate(grad, GD_MEMORY_GRADIENTS, "backward")) {
        if (!t->step) gd_tensor_destroy(grad);
        return t->ctx->status;
    }
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
                  gd_shape_text(t).text, gd_called_op(&t->node->call)->name);
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

/* Gradients of tensors made by ops are in step storages, of which closing the last view returns the
 * memory; or views of a user's cotangent, which the step's end closes. */
void gd_grad_release(gd_tensor *t)
{
    gd_tensor *grad = t->grad;
    t->grad = NULL;
    t->grad_valid = false;
    if (!grad) return;
    grad->freed = true;
    gd_storage *storage = grad->storage;
    if (storage->step && --storage->views == 0) gd_storage_release(t->ctx, storage);
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

/* The gradients of several backwards over a kept tape add up here, where none of them passes on
 * what the ones before have passed on. */
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

gd_status gd_grad_add(gd_tensor *t, const gd_tensor *src, const char *who)
{
    gd_context *ctx = t->ctx;
    bool add = t->grad_valid;
    if (gd_tensor_need_grad(t)) return ctx->status;
    t->grad_valid = true;
    if (t->count == 0) return GD_OK;
    if (add)
        accumulate(t->grad, src, who);
    else
        ctx->services->copy(gd_layout_of(t->grad), gd_layout_of(src), ctx);
    return ctx->status;
}
