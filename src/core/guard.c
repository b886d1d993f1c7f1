/* guard.c - guarded memory (gd_guard): each tensor and each workspace has a block to itself, which
 * is freed with it. Work recorded in a graph has the addresses of its blocks: these are held until
 * gd_memory_trim, and nothing else gets them. */
#include "core/core.h"

#include <stdio.h>

static size_t margin_of(const gd_context *ctx)
{
    return ctx->options.guard == GD_GUARD_MARGINS ? GD_MARGIN : 0;
}

/* Fills a margin, and hides it from AddressSanitizer's programs. */
static void fill_margin(gd_context *ctx, void *margin)
{
    ctx->device->fill_bytes(ctx, margin, 0xff, margin_of(ctx));
    gd_allow(ctx, margin, margin_of(ctx), false);
}

void *gd_guard_allocate(gd_context *ctx, size_t bytes, const char *what)
{
    const size_t margin = margin_of(ctx), all = bytes + 2 * margin;
    if (!gd_host_grow(ctx, (void **)&ctx->guarded, &ctx->guarded_capacity, ctx->guarded_count + 1,
                      sizeof *ctx->guarded, what))
        return NULL;
    char *block = ctx->device->allocate(ctx, all);
    ctx->stats.system_calls++;
    if (!block) return NULL;
    gd_guarded *g = &ctx->guarded[ctx->guarded_count++];
    *g = (gd_guarded){.data = block + margin, .bytes = bytes};
    snprintf(g->what, sizeof g->what, "%s", what);
    ctx->stats.held += all;
    fill_margin(ctx, block);
    fill_margin(ctx, g->data + bytes);
    return g->data;
}

static void guarded_free(gd_context *ctx, gd_guarded *g)
{
    const size_t margin = margin_of(ctx), all = g->bytes + 2 * margin;
    char *const block = g->data - margin;
    gd_allow(ctx, block, all, true);
    ctx->device->release(ctx, block, all);
    ctx->stats.held -= all;
    *g = ctx->guarded[--ctx->guarded_count];
}

/* Checks both margins, unless a graph is being captured, when the device cannot be read. */
static void look_at(gd_context *ctx, const gd_guarded *g)
{
    for (int behind = 0; behind < 2 && margin_of(ctx) && !ctx->capture; behind++) {
        char *margin = behind ? g->data + g->bytes : g->data - GD_MARGIN;
        gd_allow(ctx, margin, GD_MARGIN, true);
        if (!ctx->device->is_filled(ctx, margin, 0xff, GD_MARGIN))
            gd_fail(ctx, GD_ERROR_STATE, "%s: its memory of %zu bytes was written to %s", g->what,
                    g->bytes, behind ? "behind its end" : "before its beginning");
        fill_margin(ctx, margin);
    }
}

void gd_guard_look(gd_context *ctx)
{
    for (int64_t i = 0; i < ctx->guarded_count; i++) look_at(ctx, &ctx->guarded[i]);
}

void gd_guard_release(gd_context *ctx, const void *data)
{
    gd_guarded *g = ctx->guarded;
    while (g->data != data) g++;
    look_at(ctx, g);
    g->held = ctx->capture != NULL;
    if (!g->held) guarded_free(ctx, g);
}

void gd_guard_trim(gd_context *ctx)
{
    for (int64_t i = ctx->guarded_count - 1; i >= 0; i--) {
        if (ctx->guarded[i].held) guarded_free(ctx, &ctx->guarded[i]);
    }
}
