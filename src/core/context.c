/* context.c - contexts: their device, and where they are in the random stream. */
#include "core/core.h"
#include "platform/slabs.h"

#include <stdio.h>

const char *gd_version(void)
{
    return GD_VERSION_STRING;
}

/* ---- Making and freeing ------------------------------------------------------------------- */

static bool open_device(gd_context *ctx, gd_device device)
{
    ctx->device = gd_devices[device];
    ctx->services = gd_services_of[device];
    if (ctx->device->open(ctx)) ctx->device = NULL;
    return ctx->device != NULL;
}

static void choose_device(gd_context *ctx)
{
    const int device = (int)ctx->options.device;
    if (device == GD_CPU || device == GD_CUDA) {
        open_device(ctx, (gd_device)device);
    } else if (device != GD_DEVICE_AUTO) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "context: device is %d, wanted GD_CPU, GD_CUDA or GD_DEVICE_AUTO", device);
    } else if (!open_device(ctx, GD_CUDA)) {
        /* Having no GPU is not an error here, nor worth a note. */
        if (ctx->status == GD_ERROR_UNSUPPORTED)
            snprintf(ctx->device_note, sizeof ctx->device_note, "%s", ctx->error);
        ctx->status = GD_OK;
        ctx->error[0] = '\0';
        open_device(ctx, GD_CPU);
    }
}

gd_context *gd_context_create(const gd_context_options *options)
{
    gd_context_options chosen = options ? *options : (gd_context_options){0};
    gd_allocator allocator = chosen.allocator;
    const bool garbage =
        gd_is_garbage((uintptr_t)allocator.allocate) || gd_is_garbage((uintptr_t)allocator.release);
    if (garbage || !allocator.allocate || !allocator.release) {
        allocator = (gd_allocator){gd_os_slab_allocate, gd_os_slab_release, NULL};
    }
    gd_context *ctx = allocator.allocate(allocator.user, 64, sizeof *ctx);
    if (!ctx) return NULL;
    *ctx = (gd_context){.options = chosen, .allocator = allocator};
    if (allocator.allocate == gd_os_slab_allocate) ctx->allocator.user = &ctx->slabs;
    const bool fits = gd_choose_threads(ctx); /* the device's name says how many */
    const bool guards = (unsigned)chosen.guard <= GD_GUARD_EXACT;
    if (!guards) ctx->options.guard = GD_GUARD_NONE;
    ctx->random.seed = chosen.seed;
    choose_device(ctx);
    const bool bad_notice = gd_is_garbage((uintptr_t)chosen.notice);
    if (bad_notice) ctx->options.notice = NULL;
    if (garbage || bad_notice) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "context: %s at %p, wanted a function or NULL",
                garbage ? "the allocator's functions are" : "notice is", (void *)UINTPTR_MAX);
    }
    if (!fits) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "context: threads is %d, wanted 0 to %d", chosen.threads,
                GD_MAX_THREADS);
    }
    if (!guards) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "context: guard is %d, wanted GD_GUARD_NONE, GD_GUARD_MARGINS or GD_GUARD_EXACT",
                (int)chosen.guard);
    }
    return ctx;
}

static void destroy(gd_context *ctx)
{
    while (ctx->user_tensors) gd_tensor_destroy(ctx->user_tensors);
    gd_tensor_release_headers(ctx, 0);
    gd_on_gradient(ctx, NULL, NULL);
    if (ctx->device) gd_pool_free(ctx);
    gd_arena_free(ctx);
    gd_host_release(ctx, ctx->tape, (size_t)ctx->tape_capacity * sizeof *ctx->tape);
    gd_signatures_free(ctx);
    gd_host_release(ctx, ctx->user_ops, (size_t)ctx->user_op_capacity * sizeof *ctx->user_ops);
    if (ctx->device && ctx->device->close) ctx->device->close(ctx);
    gd_allocator allocator = ctx->allocator;
    if (allocator.user == &ctx->slabs) allocator.user = NULL; /* as when ctx was made */
    allocator.release(allocator.user, ctx, sizeof *ctx);
}

void gd_context_free(gd_context *ctx)
{
    if (!ctx || !gd_outside_calls(ctx, "context_free", true)) return;
    gd_step_end(ctx);
    if (gd_failed(ctx) && !ctx->asked)
        gd_notice(ctx, GD_NOTICE_UNREAD, "gd_error was not asked for an error: %s", ctx->error);
    ctx->freed = true;
    if (ctx->objects == 0) destroy(ctx);
}

void gd_context_drop(gd_context *ctx)
{
    if (--ctx->objects == 0 && ctx->freed) destroy(ctx);
}

gd_device gd_context_device(const gd_context *ctx)
{
    return ctx && ctx->device ? ctx->device->device : GD_CPU;
}

void gd_context_set_tf32(gd_context *ctx, bool tf32)
{
    if (ctx) ctx->options.tf32 = tf32;
}

const char *gd_context_device_name(const gd_context *ctx)
{
    return ctx ? ctx->device_name : "";
}

const char *gd_context_device_note(const gd_context *ctx)
{
    return ctx && ctx->device_note[0] ? ctx->device_note : NULL;
}

void *gd_context_stream(const gd_context *ctx)
{
    return ctx ? ctx->stream : NULL;
}

gd_status gd_synchronize(gd_context *ctx)
{
    if (gd_error_status(ctx) || !gd_outside_graph(ctx, "synchronize")) return gd_error_status(ctx);
    if (!gd_wait_for_device(ctx)) gd_guard_look(ctx);
    return ctx->status;
}

/* ---- The offset in the random stream ------------------------------------------------------ */

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
    const uint64_t offset = (ctx->random.offset + 3) / 4 * 4;
    ctx->random.offset = offset + (count + 3) / 4 * 4;
    return offset;
}

const gd_random_state *gd_random_base(const gd_context *ctx)
{
    return ctx->random_base;
}
