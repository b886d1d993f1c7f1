/* block.c - blocks of memory, of a group's parameters and buffers and of an optimizer's states: zeros
 * at first; what lies in one begins at a multiple of 64 bytes. */
#include "optim/params.h"

int64_t gd_params_room(const gd_tensor *t)
{
    const int64_t unit = GD_BLOCK_ALIGNMENT / (int64_t)gd_dtype_size(t->dtype);
    return (t->count + unit - 1) / unit * unit;
}

gd_tensor *gd_params_block(gd_context *ctx, gd_dtype dtype, int64_t block,
                           gd_memory_class memory_class, const char *who)
{
    gd_tensor *t = gd_tensor_header(ctx, who, false, dtype, 1, &block);
    if (!t) return NULL;
    t->owned = true;
    if (gd_tensor_allocate(t, memory_class, who) ||
        ctx->device->fill_bytes(ctx, t->storage->data, 0, t->storage->bytes)) {
        gd_tensor_destroy(t);
        return NULL;
    }
    return t;
}

void *gd_block_at(const gd_tensor *block, int64_t start)
{
    if (!block) return NULL;
    return (char *)gd_tensor_data(block) + (size_t)start * gd_dtype_size(block->dtype);
}
