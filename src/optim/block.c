/* block.c - blocks of memory, of a group's parameters and buffers and of an optimizer's states:
 * zeros at first; what lies in one begins at a multiple of 64 bytes. */
#include "optim/params.h"

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
