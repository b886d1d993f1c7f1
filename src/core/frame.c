/* frame.c - what surrounds one call of a kernel, forward or backward: memory that lives as long as
 * the call, tensors converted for it, those who watch it, and what must not be called inside it. */
#include "core/core.h"

/* ---- Memory of one call ------------------------------------------------------------------- */

void gd_frame_begin(gd_context *ctx, gd_call_frame *frame)
{
    *frame = (gd_call_frame){.outer = ctx->frame, .before = ctx->user_tensors};
    ctx->frame = frame;
}

void gd_frame_end(gd_context *ctx, gd_call_frame *frame)
{
    for (gd_temporary *temporary = frame->temporaries, *next; temporary; temporary = next) {
        next = temporary->next;
        gd_storage_release(ctx, &temporary->storage);
        temporary->next = ctx->spare;
        ctx->spare = temporary;
    }
    ctx->frame = frame->outer;
}

static gd_temporary *temporary_create(gd_context *ctx, size_t bytes, const char *who)
{
    if (!ctx->frame || bytes > PTRDIFF_MAX) {
        gd_fail(ctx, ctx->frame ? GD_ERROR_MEMORY : GD_ERROR_STATE,
                "%s: temporary memory of %zu bytes %s", who, bytes,
                ctx->frame ? "is too large" : "was asked for outside of a call");
        return NULL;
    }
    gd_temporary *temporary = ctx->spare;
    if (temporary)
        ctx->spare = temporary->next;
    else
        temporary = gd_arena_allocate(ctx, sizeof *temporary, who);
    if (!temporary) return NULL;
    temporary->next = ctx->frame->temporaries;
    ctx->frame->temporaries = temporary;
    gd_storage *storage = &temporary->storage;
    *storage = (gd_storage){.step = true}; /* not to be freed with a view that an op made of it */
    return gd_storage_allocate(ctx, storage, bytes, GD_MEMORY_WORKSPACE, who) ? NULL : temporary;
}

gd_tensor *gd_frame_tensor(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                           const char *who)
{
    int64_t count;
    const bool fits = gd_shape_count(ndim, shape, gd_dtype_size(dtype), &count);
    const size_t bytes = fits ? (size_t)count * gd_dtype_size(dtype) : SIZE_MAX;
    gd_temporary *temporary = temporary_create(ctx, bytes, who);
    if (!temporary) return NULL;
    gd_tensor_pack(&temporary->tensor, ctx, dtype, ndim, shape, count);
    gd_tensor_attach(&temporary->tensor, &temporary->storage);
    return &temporary->tensor;
}

gd_tensor *gd_call_tensor(const gd_call *call, gd_spec spec)
{
    return gd_frame_tensor(call->context, spec.dtype, spec.ndim, spec.shape, call->op->name);
}

void *gd_call_scratch(const gd_call *call, size_t bytes)
{
    if (!call) return NULL;
    gd_temporary *temporary = temporary_create(call->context, bytes ? bytes : 1, call->op->name);
    return temporary ? temporary->storage.data : NULL;
}

/* ---- Conversions -------------------------------------------------------------------------- */

gd_tensor *gd_frame_prepare(gd_context *ctx, gd_tensor *t, gd_dtype dtype, bool strided,
                            const char *who)
{
    bool real = gd_dtype_is_real(t->dtype);
    if (t->dtype == dtype && ((strided && real) || gd_tensor_is_contiguous(t))) return t;
    gd_tensor *packed = gd_frame_tensor(ctx, dtype, t->ndim, t->shape, who);
    if (packed && t->count) {
        ctx->services->copy(gd_layout_of(packed), gd_layout_of(t), ctx);
    }
    return packed;
}

/* ---- Kernels ------------------------------------------------------------------------------ */

gd_status gd_run_kernel(gd_kernel kernel, const gd_call *call, bool backward)
{
    gd_context *ctx = call->context;
    if (ctx->device->op_begin) ctx->device->op_begin(ctx, gd_called_op(call)->name, backward);
    if (ctx->watcher) ctx->watcher(ctx->watcher_user, call, backward, true);
    gd_status status = kernel(call);
    if (ctx->watcher) ctx->watcher(ctx->watcher_user, call, backward, false);
    if (ctx->device->op_end) ctx->device->op_end(ctx);
    return status;
}

void gd_watch_ops(gd_context *ctx, gd_watcher watcher, void *user)
{
    if (!ctx) return;
    ctx->watcher = watcher;
    ctx->watcher_user = user;
}

/* ---- Inside of a call --------------------------------------------------------------------- */

bool gd_outside_calls(gd_context *ctx, const char *who, bool graphs)
{
    const char *inside = ctx->segments             ? "a segment of gd_recompute"
                         : ctx->frame              ? "an op"
                         : ctx->in_backward        ? "a backward"
                         : ctx->gradients          ? "a definition or derivative"
                         : graphs && ctx->in_graph ? "the function of a graph"
                                                   : NULL;
    if (inside)
        gd_fail(ctx, GD_ERROR_STATE, "%s: called from inside %s, wanted a call after it", who,
                inside);
    return !inside;
}
