/* step.c - the end of a step, and for how long calls are not recorded, or repeat earlier ones. */
#include "core/core.h"

void gd_step_end(gd_context *ctx)
{
    if (!ctx || !gd_outside_calls(ctx, "step_end", false)) return;
    ctx->tape_length = 0;
    ctx->tape_floor = 0;
    ctx->calls_at_begin = ctx->calls_at_backward = ctx->calls;
    ctx->updates = 0;
    for (gd_tensor *t = ctx->step_tensors; t; t = t->next) {
        if (t->storage && !t->storage->step) t->storage->readers = 0, gd_tensor_drop_view(t);
        t->storage = NULL; /* a later use of t is an error, until the header is reused */
    }
    for (gd_storage *s = ctx->step_storages; s; s = s->next) gd_storage_release(ctx, s);
    for (gd_tensor *t = ctx->user_tensors; t; t = t->next)
        if (t->storage) t->storage->readers = 0;
    ctx->step_tensors = NULL;
    ctx->step_storages = NULL;
    ctx->spare = NULL;
    gd_tensor_release_headers(ctx, GD_KEPT_HEADERS);
    gd_arena_end_step(ctx);
}

void gd_no_grad_begin(gd_context *ctx)
{
    if (ctx && ctx->no_grad++ == 0) ctx->calls_at_no_grad = ctx->calls;
}

/* Leaves one level of what begins with gd_NAME_begin. */
static void leave(gd_context *ctx, int *depth, const char *name)
{
    if (*depth > 0)
        --*depth;
    else
        gd_fail(ctx, GD_ERROR_STATE, "%s_end: there was no gd_%s_begin before it", name, name);
}

void gd_no_grad_end(gd_context *ctx)
{
    if (!ctx) return;
    if (ctx->calls > ctx->calls_at_no_grad) ctx->unrecorded = ctx->calls;
    leave(ctx, &ctx->no_grad, "no_grad");
}

void gd_repeat_begin(gd_context *ctx)
{
    if (ctx) ctx->repeats++;
}

void gd_repeat_end(gd_context *ctx)
{
    if (ctx) leave(ctx, &ctx->repeats, "repeat");
}

bool gd_grad_enabled(const gd_context *ctx)
{
    return ctx && ctx->no_grad == 0;
}
