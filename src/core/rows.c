/* rows.c - gradients of which few rows are other than 0.
 *
 * A backward adds to few rows of a table with many (gd_op.dinput_rows). The memory of its gradient
 * is dense and always what a reader expects, but its storage has a byte for each granule of 64
 * bytes (`touched`), and kernels that clear, measure, scale or use a gradient skip those whose byte
 * is 0. All bytes are 1 at first, and 0 when a gradient was cleared for such a backward. When
 * something else writes to it they are 1 again, and for good if others have it (`shared`). */
#include "core/core.h"

#include <math.h>

static int64_t bytes_of(const gd_tensor *t)
{
    return t->count * (int64_t)gd_dtype_size(t->dtype);
}

uint8_t *gd_touched_from(const gd_tensor *t, int64_t element)
{
    const int64_t byte = (t->offset + element) * (int64_t)gd_dtype_size(t->dtype);
    return t->storage->touched ? t->storage->touched + byte / GD_GRANULE : NULL;
}

static void touch_all(const gd_tensor *t)
{
    t->ctx->device->fill_bytes(t->ctx, gd_touched_from(t, 0), 1, gd_granules((size_t)bytes_of(t)));
}

bool gd_grad_take_rows(const gd_call *call, int i, const gd_tensor *t)
{
    gd_tensor *grad = t->grad;
    gd_context *ctx = t->ctx;
    if (!grad || grad->step || grad->shared) return false;
    const gd_tensor *ids = call->input[i + 1];
    if (t->grad_valid ? !grad->sparse : ids->count > grad->shape[0] / 4) return false;
    gd_storage *storage = grad->storage;
    if (!storage->touched) {
        void *touched;
        if (gd_pool_allocate(ctx, storage->step, gd_granules(storage->bytes), GD_MEMORY_GRADIENTS,
                             call->op->name, &touched))
            return false;
        storage->touched = touched;
        ctx->device->fill_bytes(ctx, touched, 1, gd_granules(storage->bytes));
    }
    gd_new_version(ctx, storage);
    grad->sparse = true;
    if (!t->grad_valid) gd_grad_zero(grad);
    const int64_t rows = grad->shape[0];
    ctx->services->touch_rows(gd_touched_from(grad, 0), gd_tensor_data(ids), ids->count, rows,
                              bytes_of(grad) / rows, ctx);
    return true;
}

void gd_grad_take_all(gd_tensor *grad)
{
    touch_all(grad);
    grad->sparse = false;
}

void gd_grad_share(gd_tensor *grad)
{
    if (grad->sparse) gd_grad_take_all(grad);
    grad->shared = true;
}

void gd_grad_zero(const gd_tensor *grad)
{
    gd_context *ctx = grad->ctx;
    void *data = gd_tensor_data(grad);
    if (grad->sparse)
        ctx->services->clear_touched(data, bytes_of(grad), gd_touched_from(grad, 0), ctx);
    else
        ctx->services->fill(data, grad->dtype, 0, grad->count, ctx);
}

/* By a negative factor zeros become -0. */
void gd_grad_scale(const gd_tensor *grads, double factor)
{
    gd_context *ctx = grads->ctx;
    if (signbit(factor) && grads->storage->touched) touch_all(grads);
    ctx->services->scale(gd_tensor_data(grads), grads->dtype, factor, grads->count,
                         gd_touched_from(grads, 0), ctx);
    gd_new_version(ctx, grads->storage);
}

void gd_submit_squares(double *sum, const gd_tensor *t)
{
    t->ctx->services->sum_squares(sum, gd_tensor_data(t), t->dtype, t->count, gd_touched_from(t, 0),
                                  t->ctx);
}

double gd_sum_squares(const gd_tensor *t)
{
    gd_context *ctx = t->ctx;
    double sum = NAN;
    gd_call_frame frame;
    gd_frame_begin(ctx, &frame);
    gd_tensor *device_sum = gd_frame_tensor(ctx, GD_FLOAT64, 0, NULL, "sum of squares");
    if (device_sum) {
        gd_submit_squares(gd_tensor_data(device_sum), t);
        if (!gd_failed(ctx))
            ctx->device->download(ctx, &sum, gd_tensor_data(device_sum), sizeof sum);
    }
    gd_frame_end(ctx, &frame);
    return gd_failed(ctx) ? (double)NAN : sum;
}
