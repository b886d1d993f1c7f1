/* random.c - the context's offset in its random stream. */
#include "core/core.h"

gd_random_state gd_random_get(const gd_context *ctx)
{
    return ctx ? ctx->random : (gd_random_state){0};
}

void gd_random_set(gd_context *ctx, gd_random_state state)
{
    if (ctx) ctx->random = state;
}

/* Multiples of four, so that every call starts at a Philox block, even after gd_random_set. */
uint64_t gd_random_take(gd_context *ctx, uint64_t count)
{
    if (!ctx) return 0;
    uint64_t offset = (ctx->random.offset + 3) / 4 * 4;
    ctx->random.offset = offset;
    ctx->random.offset += (count + 3) / 4 * 4;
    return offset;
}

const gd_random_state *gd_random_base(const gd_context *ctx)
{
    return ctx->random_base;
}
