/* tensor.c - dtypes, shapes, storages, and the life of a tensor's header. */
#define GD_ACCESSOR /* here they are functions, for programs */
#include "core/core.h"

#include <stdio.h>

/* ---- Dtypes ----------------------------------------------------------------------------- */

static const char *const dtype_names[GD_DTYPE_COUNT] = {
    [GD_FLOAT32] = "float32", [GD_FLOAT64] = "float64", [GD_BFLOAT16] = "bfloat16",
    [GD_FLOAT16] = "float16", [GD_INT32] = "int32",
};

const char *gd_dtype_name(gd_dtype dtype)
{
    return (unsigned)dtype < GD_DTYPE_COUNT ? dtype_names[dtype] : "unknown dtype";
}

/* ---- Shapes ----------------------------------------------------------------------------- */

/* The largest tensor has PTRDIFF_MAX bytes. Zero dimensions are left out of the overflow check, or
 * [0, 2^62, 2^62] would pass, whose views could overflow. */
bool gd_shape_count(int ndim, const int64_t *shape, size_t element_bytes, int64_t *count)
{
    int64_t bytes = (int64_t)element_bytes;
    *count = 1;
    for (int i = 0; i < ndim; i++) {
        const int64_t factor = shape[i] ? shape[i] : 1;
        if (factor < 0 || __builtin_mul_overflow(bytes, factor, &bytes)) return false;
        *count *= shape[i];
    }
    return true;
}

static gd_text shape_text(int ndim, const int64_t *shape)
{
    gd_text text = {"["};
    size_t used = 1;
    for (int i = 0; i < ndim; i++) {
        int written = snprintf(text.text + used, sizeof text.text - used, "%s%lld", i ? ", " : "",
                               (long long)shape[i]);
        used += (size_t)written;
    }
    snprintf(text.text + used, sizeof text.text - used, "]");
    return text;
}

gd_text gd_shape_text(const gd_tensor *t)
{
    if (!t) return (gd_text){"(none)"};
    return shape_text(t->ndim, t->shape);
}

gd_spec gd_spec_like(const gd_tensor *t)
{
    if (!t) return (gd_spec){.ndim = 0};
    gd_spec spec = {.dtype = t->dtype, .ndim = t->ndim};
    memcpy(spec.shape, t->shape, sizeof spec.shape);
    return spec;
}

/* ---- Storages --------------------------------------------------------------------------- */

gd_storage *gd_storage_create(gd_context *ctx, bool step)
{
    gd_storage *storage = step ? gd_arena_allocate(ctx, sizeof *storage, "a tensor")
                               : gd_host_allocate(ctx, sizeof *storage, "a tensor");
    if (!storage) return NULL;
    *storage = (gd_storage){.step = step};
    gd_new_version(ctx, storage);
    if (step) {
        storage->next = ctx->step_storages;
        ctx->step_storages = storage;
    }
    return storage;
}

void gd_storage_release(gd_context *ctx, gd_storage *storage)
{
    if (storage->released) return;
    if (storage->owned) {
        gd_pool_release(ctx, storage->step, storage->data, storage->bytes, storage->memory_class);
        gd_pool_release(ctx, storage->step, storage->touched, gd_granules(storage->bytes),
                        GD_MEMORY_GRADIENTS);
    }
    storage->data = NULL;
    storage->released = true;
}

gd_status gd_storage_allocate(gd_context *ctx, gd_storage *storage, size_t bytes,
                              gd_memory_class memory_class, const char *who)
{
    storage->owned = true;
    storage->memory_class = memory_class;
    storage->bytes = bytes;
    storage->released =
        gd_pool_allocate(ctx, storage->step, bytes, memory_class, who, &storage->data);
    return storage->released ? ctx->status : GD_OK;
}

void gd_copy_packed(gd_context *ctx, void *to, gd_dtype to_dtype, void *from, gd_dtype from_dtype,
                    int64_t n)
{
    const int64_t stride = 1;
    if (n > 0)
        ctx->services->copy((gd_layout){to, to_dtype, 1, &n, &stride},
                            (gd_layout){from, from_dtype, 1, &n, &stride}, ctx);
}

/* Buffers fill whole multiples of 64 bytes (optim/buffers.c). */
void gd_written(gd_context *ctx, gd_storage *storage)
{
    const int64_t words = (int64_t)((storage->bytes + 3) / 4);
    if (!storage->committed || ctx->tape_length > 0 || gd_failed(ctx)) return;
    gd_copy_packed(ctx, storage->committed, GD_INT32, storage->data, GD_INT32, words);
}

/* ---- Headers ---------------------------------------------------------------------------- */

static void list_push(gd_tensor **list, gd_tensor *t)
{
    t->next = *list;
    t->previous = NULL;
    if (*list) (*list)->previous = t;
    *list = t;
}

static void list_remove(gd_tensor **list, gd_tensor *t)
{
    if (t->previous) t->previous->next = t->next;
    if (t->next) t->next->previous = t->previous;
    if (*list == t) *list = t->next;
    t->next = t->previous = NULL;
}

static gd_status check_shape(gd_context *ctx, const char *who, gd_dtype dtype, int ndim,
                             const int64_t *shape, int64_t *count)
{
    if (!gd_dtype_size(dtype)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: dtype is %d, wanted one of gd_dtype", who,
                       (int)dtype);
    }
    if (ndim < 0 || ndim > GD_MAX_DIMS) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: ndim is %d, wanted 0 to %d", who, ndim,
                       GD_MAX_DIMS);
    }
    if (ndim > 0 && !shape) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: shape is NULL, wanted %d dimensions", who,
                       ndim);
    }
    if (!gd_shape_count(ndim, shape, gd_dtype_size(dtype), count)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: shape is %s, wanted no negative dimension and at most %td bytes", who,
                       shape_text(ndim, shape).text, (ptrdiff_t)PTRDIFF_MAX);
    }
    return GD_OK;
}

void gd_tensor_pack(gd_tensor *t, gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                    int64_t count)
{
    *t = (gd_tensor){.ctx = ctx, .dtype = dtype, .ndim = ndim, .count = count};
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        t->shape[i] = shape[i];
        t->strides[i] = stride;
        stride *= shape[i] ? shape[i] : 1;
    }
}

static inline gd_tensor *new_header(gd_context *ctx, bool step, gd_dtype dtype, int ndim,
                                    const int64_t *shape, int64_t count)
{
    gd_tensor *t = step ? gd_arena_allocate(ctx, sizeof *t, "a tensor")
                        : gd_host_allocate(ctx, sizeof *t, "a tensor");
    if (!t) return NULL;
    gd_tensor_pack(t, ctx, dtype, ndim, shape, count);
    t->step = step;
    if (!step) return t;
    t->next = ctx->step_tensors;
    return ctx->step_tensors = t;
}

gd_tensor *gd_tensor_header(gd_context *ctx, const char *who, bool step, gd_dtype dtype, int ndim,
                            const int64_t *shape)
{
    int64_t count = 0;
    if (check_shape(ctx, who, dtype, ndim, shape, &count)) return NULL;
    gd_tensor *t = new_header(ctx, step, dtype, ndim, shape, count);
    if (t && !step) list_push(&ctx->user_tensors, t);
    return t;
}

gd_tensor *gd_grad_header(const gd_tensor *t, bool step, gd_dtype dtype)
{
    gd_tensor *grad = new_header(t->ctx, step, dtype, t->ndim, t->shape, t->count);
    if (grad) grad->owned = true;
    return grad;
}

void gd_tensor_attach(gd_tensor *t, gd_storage *storage)
{
    t->storage = storage;
    storage->views++;
}

gd_tensor *gd_tensor_view(const gd_tensor *t, const char *who)
{
    gd_tensor *view = gd_tensor_header(t->ctx, who, true, t->dtype, t->ndim, t->shape);
    if (!view) return NULL;
    memcpy(view->strides, t->strides, sizeof view->strides);
    view->offset = t->offset;
    gd_tensor_attach(view, t->storage);
    return view;
}

gd_status gd_tensor_allocate(gd_tensor *t, gd_memory_class memory_class, const char *who)
{
    gd_context *ctx = t->ctx;
    gd_storage *storage = gd_storage_create(ctx, t->step);
    if (!storage) return ctx->status;
    gd_tensor_attach(t, storage);
    const size_t bytes = (size_t)t->count * gd_dtype_size(t->dtype);
    return gd_storage_allocate(ctx, storage, bytes, memory_class, who);
}

void gd_tensor_drop_view(gd_tensor *t)
{
    gd_storage *storage = t->storage;
    if (!storage) return;
    t->storage = NULL;
    if (--storage->views > 0 || storage->step) return;
    gd_storage_release(t->ctx, storage);
    gd_host_release(t->ctx, storage, sizeof *storage);
}

void gd_tensor_destroy(gd_tensor *t)
{
    gd_context *ctx = t->ctx;
    if (t->grad) gd_tensor_destroy(t->grad);
    t->grad = NULL;
    t->freed = true;
    t->requires_grad = false; /* a tape that reaches it has no tensor to give a gradient to */
    list_remove(&ctx->user_tensors, t);
    gd_tensor_drop_view(t);
    /* The tape may still point here until the step ends, and a variable of the user for ever. */
    list_push(&ctx->freed_headers, t);
    if (ctx->freed_count++ == 0) ctx->oldest_freed = t;
    if (ctx->tape_length == 0 && !ctx->step_tensors)
        gd_tensor_release_headers(ctx, GD_KEPT_HEADERS);
}

void gd_tensor_release_headers(gd_context *ctx, int64_t keep)
{
    for (; ctx->freed_count > keep; ctx->freed_count--) {
        gd_tensor *t = ctx->oldest_freed;
        ctx->oldest_freed = t->previous;
        list_remove(&ctx->freed_headers, t);
        gd_host_release(ctx, t, sizeof *t);
    }
}

bool gd_tensor_usable(const gd_tensor *t, const char *who, const char *argument)
{
    if (!t) return false;
    gd_context *ctx = t->ctx;
    const bool ended = t->step && !t->storage;
    if (ended || (t->freed && !gd_is_lent(t))) {
        gd_fail(ctx, GD_ERROR_STATE, "%s: %s %s %s", who, argument, gd_shape_text(t).text,
                ended ? "belongs to a step that gd_step_end has ended" : "was freed");
    } else if (!t->storage) {
        gd_fail(ctx, GD_ERROR_STATE, "%s: %s \"%s\" has no memory yet, call gd_params_finish", who,
                argument, t->name);
    } else if (t->storage->released) {
        gd_fail(ctx, GD_ERROR_STATE,
                "%s: the memory of %s %s, made by %s, was reused after gd_backward; call gd_keep "
                "on it before, or for another loss add all losses before one gd_backward, or use "
                "gd_backward_from with keep_tape",
                who, argument, gd_shape_text(t).text,
                t->node ? gd_called_op(&t->node->call)->name : "an op");
    }
    return !gd_failed(ctx);
}

gd_status gd_check_tensors(gd_context *ctx, gd_tensor *const *t, int count, const char *who,
                           const char *role)
{
    for (int i = 0; i < count; i++) {
        if (!t[i] || t[i]->ctx != ctx) {
            return gd_fail(ctx, GD_ERROR_ARGUMENT,
                           "%s: %s %d is %s, wanted a tensor of the same context", who, role, i,
                           t[i] ? "of another context" : "NULL");
        }
        if (!gd_tensor_usable(t[i], who, role)) return ctx->status;
    }
    return GD_OK;
}

gd_status gd_check_like(const gd_tensor *t, const char *of, const gd_tensor *u, const char *who,
                        const char *role, int i)
{
    if (u && u->ctx == t->ctx && gd_dtype_is_real(u->dtype) && gd_same_shape(u, t)) return GD_OK;
    return gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                   "%s: %s %d is %s%s%s, wanted a real tensor of the %s's shape %s and context",
                   who, role, i, u ? gd_dtype_name(u->dtype) : "NULL", u ? " " : "",
                   u ? gd_shape_text(u).text : "", of, gd_shape_text(t).text);
}

gd_status gd_check_made(const gd_op *op, const gd_tensor *made, const gd_tensor *t,
                        const char *whose)
{
    if (made->ctx == t->ctx && gd_same_shape(made, t)) return GD_OK;
    return gd_fail(t->ctx, GD_ERROR_ARGUMENT, "%s: its %s made a tensor %s, wanted %s", op->name,
                   whose, gd_shape_text(made).text, gd_shape_text(t).text);
}

/* Elements of an expanded view share memory, so writing one would write others. */
static bool is_expanded(const gd_tensor *t)
{
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] > 1 && t->strides[i] == 0) return true;
    }
    return false;
}

bool gd_tensor_writable(const gd_tensor *t, const char *who)
{
    if (!t || gd_failed(t->ctx) || !gd_tensor_usable(t, who, "tensor")) return false;
    if (is_expanded(t)) {
        gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                "%s: the tensor %s is an expanded view, whose elements share memory; wanted one "
                "with an element for each index",
                who, gd_shape_text(t).text);
        return false;
    }
    return true;
}

gd_tensor *gd_constant(gd_context *ctx, gd_dtype dtype, int ndim, const int64_t *shape,
                       double value)
{
    if (ctx->status) return NULL;
    gd_tensor *t = gd_tensor_header(ctx, "constant", true, dtype, ndim, shape);
    if (!t || gd_tensor_allocate(t, GD_MEMORY_ACTIVATIONS, "constant")) return NULL;
    if (t->count) ctx->services->fill(gd_tensor_data(t), dtype, value, t->count, ctx);
    return gd_failed(ctx) ? NULL : t;
}

gd_layout gd_layout_of(const gd_tensor *t)
{
    return (gd_layout){gd_tensor_data(t), t->dtype, t->ndim, t->shape, t->strides};
}
