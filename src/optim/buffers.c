/* buffers.c - what belongs to a model but is not trained: the running statistics of batch_norm.
 *
 * The memory of all buffers is one block, so that ranks exchange it in one message. Each has a
 * storage of its own, though: by storage a backward knows whether what it reads was overwritten,
 * and the statistics of one layer may change while the backward of another, which is fixed,
 * reads its own.
 *
 * Forwards change buffers before an update is decided on. So there is a second block, of what they
 * held after the last update that was made; each update copies one to the other
 * (gd_settle_service). */
#include "optim/params.h"

int gd_params_buffer_count(const gd_params *params)
{
    return params ? (int)params->buffers : 0;
}

gd_tensor *gd_params_buffer_at(const gd_params *params, int index)
{
    return params && index >= 0 && index < params->buffers ? params->buffer[index] : NULL;
}

static int64_t block_bytes(const gd_tensor *t)
{
    return gd_params_room(t) * (int64_t)gd_dtype_size(t->dtype);
}

gd_status gd_buffers_finish(gd_params *params)
{
    gd_context *ctx = params->ctx;
    const char *who = "params_finish";
    int64_t bytes = 0;
    for (int64_t i = 0; i < params->buffers; i++) {
        const gd_tensor *t = params->buffer[i];
        const int64_t size = (int64_t)gd_dtype_size(t->dtype);
        if (t->count > (PTRDIFF_MAX - bytes - GD_BLOCK_ALIGNMENT) / size) {
            return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: the buffers have more than %td bytes", who,
                           (ptrdiff_t)PTRDIFF_MAX);
        }
        bytes += block_bytes(t);
    }
    params->buffer_block = gd_params_block(ctx, GD_INT32, bytes / 4, GD_MEMORY_OTHER, who);
    char *next = params->buffer_block ? gd_tensor_data(params->buffer_block) : NULL;
    for (int64_t i = 0; i < params->buffers && !gd_failed(ctx); i++) {
        gd_tensor *t = params->buffer[i];
        gd_storage *storage = gd_storage_create(ctx, false);
        if (!storage) break;
        storage->bytes = (size_t)t->count * gd_dtype_size(t->dtype);
        if (t->count) storage->data = next;
        gd_tensor_attach(t, storage);
        if (t->count) next += block_bytes(t);
    }
    return gd_error_status(ctx);
}

void gd_buffers_undo(gd_params *params)
{
    for (int64_t i = 0; i < params->buffers; i++) {
        gd_tensor *t = params->buffer[i];
        gd_host_release(params->ctx, t->storage, sizeof *t->storage);
        t->storage = NULL;
    }
    if (params->buffer_block) gd_tensor_destroy(params->buffer_block);
    params->buffer_block = NULL;
}

gd_status gd_buffers_commit(gd_params *params)
{
    gd_context *ctx = params->ctx;
    const gd_tensor *block = params->buffer_block;
    if (params->committed || block->count == 0) return gd_error_status(ctx);
    params->committed =
        gd_params_block(ctx, block->dtype, block->count, GD_MEMORY_OTHER, "an optimizer");
    char *next = params->committed ? gd_tensor_data(params->committed) : NULL;
    for (int64_t i = 0; i < params->buffers && !gd_failed(ctx); i++) {
        const gd_tensor *t = params->buffer[i];
        if (t->count == 0) continue;
        t->storage->committed = next;
        next += block_bytes(t);
    }
    return params->committed ? gd_tensor_copy(params->committed, block) : ctx->status;
}

void gd_buffers_free(gd_params *params)
{
    for (int64_t i = 0; i < params->buffers; i++) gd_tensor_destroy(params->buffer[i]);
    if (params->committed) gd_tensor_destroy(params->committed);
    if (params->buffer_block) gd_tensor_destroy(params->buffer_block);
    gd_host_release(params->ctx, params->buffer,
                    (size_t)params->buffer_capacity * sizeof *params->buffer);
}
