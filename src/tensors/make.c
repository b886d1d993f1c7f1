/* make.c - the tensors of a user: making, freeing and naming them. */
#include "core/core.h"

#include <stdio.h>

/* ---- Making ----------------------------------------------------------------------------- */

static gd_tensor *create(gd_context *ctx, const char *who, gd_dtype dtype, int ndim,
                         const int64_t *shape)
{
    if (!ctx || gd_failed(ctx) || !gd_outside_graph(ctx, who)) return NULL;
    gd_tensor *t = gd_tensor_header(ctx, who, false, dtype, ndim, shape);
    if (t) gd_tensor_allocate(t, GD_MEMORY_OTHER, who);
    return t;
}

/* t, or NULL after an error. */
static gd_tensor *created(gd_tensor *t)
{
    if (!t || !gd_failed(t->ctx)) return t;
    gd_tensor_destroy(t);
    return NULL;
}

static gd_status check_data(const gd_tensor *t, const char *who, const void *data)
{
    if (!data && t->count) {
        gd_fail(t->ctx, GD_ERROR_ARGUMENT, "%s: data is NULL, wanted %lld elements", who,
                (long long)t->count);
    }
    return t->ctx->status;
}

gd_tensor *gd_tensor_create(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape)
{
    gd_tensor *t = create(ctx, "tensor_create", dtype, ndim, shape);
    if (t && !ctx->status) ctx->device->fill_bytes(ctx, t->storage->data, 0, t->storage->bytes);
    return created(t);
}

gd_tensor *gd_tensor_from(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                          const void *data)
{
    gd_tensor *t = create(ctx, "tensor_from", dtype, ndim, shape);
    if (t && !check_data(t, "tensor_from", data))
        ctx->device->upload(ctx, t->storage->data, data, t->storage->bytes);
    return created(t);
}

gd_tensor *gd_tensor_wrap(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                          void *data)
{
    if (gd_error_status(ctx)) return NULL;
    if (ctx->device->device != GD_CPU) {
        gd_fail(ctx, GD_ERROR_UNSUPPORTED, "tensor_wrap: the device is %s, wanted the CPU",
                ctx->device_name);
        return NULL;
    }
    const size_t size = gd_dtype_size(dtype);
    if (size && (uintptr_t)data % size) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "tensor_wrap: data is %p, wanted a multiple of %zu", data,
                size);
        return NULL;
    }
    gd_tensor *t = gd_tensor_header(ctx, "tensor_wrap", false, dtype, ndim, shape);
    if (!t) return NULL;
    gd_storage *storage = check_data(t, "tensor_wrap", data) ? NULL : gd_storage_create(ctx, false);
    if (storage) {
        storage->data = data;
        storage->bytes = (size_t)t->count * size;
        gd_tensor_attach(t, storage);
    }
    return created(t);
}

/* ---- Freeing ---------------------------------------------------------------------------- */

/* A step tensor's memory is released when no tensor uses it and no backward will read it; inside an
 * op, which may be reading it, by the end of the step. */
static void free_step_tensor(gd_tensor *t)
{
    t->freed = true;
    gd_storage *storage = t->storage;
    if (!storage || !storage->step || t->ctx->frame) return;
    if (--storage->views == 0 && storage->readers == 0) gd_storage_release(t->ctx, storage);
}

/* Whether a tensor of the user's was made before the op, the backward or the gd_gradients that is
 * running, which may use it. */
static bool may_be_in_use(const gd_tensor *t)
{
    const gd_context *ctx = t->ctx;
    const gd_call_frame *frame = ctx->frame;
    const bool walk = ctx->in_backward || ctx->gradients;
    if (t->step || (!frame && !walk)) return false;
    while (frame && frame->outer) frame = frame->outer;
    const gd_tensor *before = walk ? ctx->before : frame->before;
    for (const gd_tensor *u = ctx->user_tensors; u && u != before; u = u->next)
        if (u == t) return false;
    return true;
}

/* What a step's end has freed may be freed again; what the user has freed may not. */
static bool may_be_freed(const gd_tensor *t)
{
    if (!t->freed) return !may_be_in_use(t) || gd_outside_calls(t->ctx, "tensor_free", false);
    if (!t->step || t->storage)
        gd_fail(t->ctx, GD_ERROR_STATE, "tensor_free: the tensor %s was freed already",
                gd_shape_text(t).text);
    return false;
}

void gd_tensor_free(gd_tensor *t)
{
    if (!t || !may_be_freed(t)) return;
    if (t->owned)
        gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                "tensor_free: this tensor belongs to another object, wanted one made by "
                "gd_tensor_create or by an op");
    else if (t->step)
        free_step_tensor(t);
    else
        gd_tensor_destroy(t);
}

/* ---- Naming ----------------------------------------------------------------------------- */

gd_context *gd_tensor_context(const gd_tensor *t)
{
    return t ? t->ctx : NULL;
}

gd_status gd_tensor_set_name(gd_tensor *t, const char *name)
{
    if (!t) return GD_ERROR_ARGUMENT;
    if (t->owned) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                       "set_name: %s \"%s\" is of a group or another tensor, wanted one of yours",
                       gd_shape_text(t).text, t->name);
    }
    snprintf(t->name, sizeof t->name, "%s", name ? name : "");
    return GD_OK;
}

const char *gd_tensor_name(const gd_tensor *t)
{
    return t ? t->name : "";
}
