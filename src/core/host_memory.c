/* host_memory.c - host memory from the context's allocator. */
#include "core/core.h"

void *gd_host_try(gd_context *ctx, size_t bytes)
{
    return ctx->allocator.allocate(ctx->allocator.user, 64, bytes ? bytes : 1);
}

void *gd_host_allocate(gd_context *ctx, size_t bytes, const char *what)
{
    void *memory = gd_host_try(ctx, bytes);
    if (!memory) gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
    return memory;
}

void gd_host_release(gd_context *ctx, void *memory, size_t bytes)
{
    if (memory) ctx->allocator.release(ctx->allocator.user, memory, bytes ? bytes : 1);
}

bool gd_host_grow(gd_context *ctx, void **array, int64_t *capacity, int64_t wanted, size_t size,
                  const char *what)
{
    if (wanted <= *capacity) return true;
    int64_t grown = *capacity ? *capacity : 16;
    while (grown < wanted) grown *= 2;
    void *memory = gd_host_allocate(ctx, (size_t)grown * size, what);
    if (!memory) return false;
    if (*array) memcpy(memory, *array, (size_t)*capacity * size);
    gd_host_release(ctx, *array, (size_t)*capacity * size);
    *array = memory;
    *capacity = grown;
    return true;
}
