/* params.c - parameters in one block of memory, and their gradients in another.
 *
 *     values     | embed (decay) | w1 (decay) | ... || norm1 | bias | ... |
 *     grads      | the same offsets                                       |
 *     m, v       | the same offsets: an optimizer's (optim.c)             |
 *     master     | the same offsets: float32 where the values are 16-bit  |
 *
 * Parameters that decay come first, so that an update is two calls of a kernel, one with weight
 * decay and one without, for any number of parameters; of others than that, those that are updated
 * alike (gd_params_set_factors, before gd_params_finish) are neighbours, too. The gaps that align
 * each parameter to 64 bytes hold zeros in every block, and stay zero under every rule of apply.c.
 *
 * Buffers, which have no gradient, have a block of their own (buffers.c). */
#include "optim/params.h"

#include "files/utf8.h"
#include "optim/graph.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- A group of parameters ---------------------------------------------------------------- */

gd_params *gd_params_create(gd_context *ctx, gd_dtype dtype)
{
    if (gd_error_status(ctx)) return NULL;
    if (!gd_dtype_is_real(dtype)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "params_create: dtype is %s, wanted a real one",
                gd_dtype_name(dtype));
        return NULL;
    }
    gd_params *params = gd_host_allocate(ctx, sizeof *params, "params_create");
    if (!params) return NULL;
    *params = (gd_params){.ctx = ctx, .dtype = dtype};
    gd_context_hold(ctx);
    return params;
}

static size_t order_bytes(const gd_params *params)
{
    return (size_t)(params->count + 1) * sizeof *params->order; /* there may be no parameter */
}

/* Gradients that no update has used, where others' were: an optimizer that is not there, or
 * not called. */
static void watch_unused(gd_params *params)
{
    enum { MANY_UPDATES = 100 };
    for (int64_t i = 0; i < params->count && !params->had_gradients; i++)
        params->had_gradients = params->list[i].tensor->grad_valid;
    if (!params->had_gradients || params->spent || params->ctx->updates_made < MANY_UPDATES) return;
    gd_notice(params->ctx, GD_NOTICE_UNUSED,
              "params: the group of \"%s\" has had gradients, but no update has used them, while "
              "other groups had %d: call gd_optimizer_step for it, too, or let its parameters "
              "require no gradient",
              params->list[0].tensor->name, MANY_UPDATES);
}

void gd_params_free(gd_params *params)
{
    if (!params || !gd_outside_calls(params->ctx, "params_free", true)) return;
    gd_context *ctx = params->ctx;
    watch_unused(params);
    gd_graphs_forget(ctx);
    if (params->replica) params->replica->calls->free(params->replica);
    for (int64_t i = 0; i < params->count; i++) gd_tensor_destroy(params->list[i].tensor);
    gd_buffers_free(params);
    if (params->values) gd_tensor_destroy(params->values);
    if (params->grads) gd_tensor_destroy(params->grads);
    gd_host_release(ctx, params->order, order_bytes(params));
    gd_host_release(ctx, params->initial,
                    (size_t)params->initial_capacity * sizeof *params->initial);
    gd_host_release(ctx, params->list, (size_t)params->capacity * sizeof *params->list);
    gd_host_release(ctx, params, sizeof *params);
    gd_context_drop(ctx);
}

/* What a new name should be, so that a file can hold it; NULL if it is that. */
static const char *wanted_name(const gd_params *params, const char *name)
{
    _Static_assert(GD_NAME_SIZE == 128, "the sentence below says how many bytes");
    if (!*name || strlen(name) >= GD_NAME_SIZE) return "1 to 127 bytes";
    int bytes = 0;
    const char *c = name;
    while (*c && (bytes = gd_utf8_length((const unsigned char *)c, 4))) c += bytes;
    if (*c) return "UTF-8";
    if (!strncmp(name, GD_PART_PREFIX, strlen(GD_PART_PREFIX)))
        return "one that does not begin with \"" GD_PART_PREFIX "\", as an optimizer's states do";
    if (!strcmp(name, "__metadata__")) return "one that safetensors files do not reserve";
    return gd_params_find(params, name) ? "one that the group does not have yet" : NULL;
}

/* Whether `name` can be that of a new parameter or buffer, and the group can still get one. */
static bool can_add(const gd_params *params, const char *name, const char *who)
{
    gd_context *ctx = params->ctx;
    const char *wanted = name ? wanted_name(params, name) : "1 to 127 bytes";
    if (params->values) {
        gd_fail(ctx, GD_ERROR_STATE,
                "%s: \"%s\" was added after gd_params_finish, wanted it before", who,
                name ? name : "");
    } else if (wanted) {
        const char *quote = name ? "\"" : "";
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: name is %s%s%s, wanted %s", who, quote,
                name ? name : "NULL", quote, wanted);
    }
    return !gd_failed(ctx);
}

gd_tensor *gd_params_add(gd_params *params, const char *name, int ndim, const int64_t *shape,
                         unsigned flags)
{
    if (!params || gd_failed(params->ctx)) return NULL;
    gd_context *ctx = params->ctx;
    if (!can_add(params, name, "params_add")) return NULL;
    if (flags & ~(unsigned)(GD_DECAY | GD_MUON)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "params_add: flags is %#x, wanted 0, GD_DECAY or GD_MUON",
                flags);
        return NULL;
    }
    if (flags & GD_MUON && ndim != 2) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "params_add: \"%s\" has GD_MUON and %d dimensions, wanted a matrix", name, ndim);
        return NULL;
    }
    if (!gd_host_grow(ctx, (void **)&params->list, &params->capacity, params->count + 1,
                      sizeof *params->list, "params_add"))
        return NULL;
    gd_tensor *t = gd_tensor_header(ctx, "params_add", false, params->dtype, ndim, shape);
    if (!t) return NULL;
    gd_tensor_set_name(t, name);
    t->owned = true;
    t->requires_grad = true;
    params->list[params->count++] =
        (gd_param){.tensor = t, .flags = flags, .rate = 1, .weight_decay = 1};
    return t;
}

gd_tensor *gd_params_addf(gd_params *params, unsigned flags, int ndim, const int64_t *shape,
                          gd_init init, const char *format, ...)
{
    char name[256];
    va_list arguments;
    va_start(arguments, format);
    if (format) vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    gd_tensor *t = gd_params_add(params, format ? name : NULL, ndim, shape, flags);
    if (!t || !gd_params_set_init(params, t, init)) return t;
    gd_params_truncate(params, (int)params->count - 1, (int)params->buffers);
    return NULL;
}

void gd_params_truncate(gd_params *params, int count, int buffers)
{
    if (!params) return;
    if (params->values) {
        gd_fail(params->ctx, GD_ERROR_STATE,
                "params_truncate: called after gd_params_finish, wanted before");
        return;
    }
    if (count < 0 || buffers < 0) {
        gd_fail(params->ctx, GD_ERROR_ARGUMENT,
                "params_truncate: count is %d and buffers is %d, wanted at least 0", count,
                buffers);
        return;
    }
    while (params->count > count) gd_tensor_destroy(params->list[--params->count].tensor);
    while (params->buffers > buffers) gd_tensor_destroy(params->buffer[--params->buffers]);
    gd_initials_truncate(params);
}

gd_tensor *gd_params_add_buffer(gd_params *params, const char *name, gd_dtype dtype, int ndim,
                                const int64_t *shape)
{
    const char *who = "params_add_buffer";
    if (!params || gd_failed(params->ctx) || !can_add(params, name, who)) return NULL;
    gd_context *ctx = params->ctx;
    if (!gd_host_grow(ctx, (void **)&params->buffer, &params->buffer_capacity, params->buffers + 1,
                      sizeof(gd_tensor *), who))
        return NULL;
    gd_tensor *t = gd_tensor_header(ctx, who, false, dtype, ndim, shape);
    if (!t) return NULL;
    gd_tensor_set_name(t, name);
    t->owned = t->buffer = true;
    return params->buffer[params->buffers++] = t;
}

/* Whether `a` and `b` are neighbours in the block. */
static bool belong_together(const gd_param *a, const gd_param *b)
{
    return gd_param_alike(a, b) && (a->flags & GD_DECAY) == (b->flags & GD_DECAY);
}

/* Gives every parameter its offset in the block; false if the bytes overflow. */
static bool lay_out(gd_params *params, int64_t *block)
{
    const int64_t limit =
        PTRDIFF_MAX / (int64_t)gd_dtype_size(gd_params_state_dtype(params)) - GD_BLOCK_ALIGNMENT;
    int64_t next = 0, placed = 0;
    for (int64_t i = 0; i < params->count; i++) params->list[i].tensor->offset = -1; /* none */
    for (int64_t k = 0; k < 2 * params->count; k++) { /* those that decay, then the others */
        const int64_t first = k % params->count;
        const gd_param *p = &params->list[first];
        if (p->tensor->offset >= 0 || !(p->flags & GD_DECAY) != (k >= params->count)) continue;
        for (int64_t i = first; i < params->count; i++) {
            gd_tensor *t = params->list[i].tensor;
            if (t->offset >= 0 || !belong_together(p, &params->list[i])) continue;
            if (t->count > limit - next) return false;
            t->offset = next;
            next += gd_params_room(t);
            params->order[placed++] = i;
        }
    }
    *block = next;
    return true;
}

/* The gradient of t, at the same offset in the block of gradients. */
static gd_status create_grad(gd_tensor *t, const gd_tensor *grads)
{
    gd_tensor *grad = gd_grad_header(t, false, grads->dtype);
    if (!grad) return gd_error_status(t->ctx);
    grad->offset = t->offset;
    gd_tensor_attach(grad, grads->storage);
    t->grad = grad;
    return GD_OK;
}

static void undo_finish(gd_params *params)
{
    for (int64_t i = 0; i < params->count; i++) {
        gd_tensor *t = params->list[i].tensor;
        if (t->grad) gd_tensor_destroy(t->grad);
        t->grad = NULL;
        if (t->storage) t->storage->views--;
        t->storage = NULL;
    }
    gd_buffers_undo(params);
    if (params->grads) gd_tensor_destroy(params->grads);
    if (params->values) gd_tensor_destroy(params->values);
    params->grads = params->values = NULL;
    gd_host_release(params->ctx, params->order, order_bytes(params));
    params->order = NULL;
}

gd_status gd_params_finish(gd_params *params)
{
    if (!params) return GD_ERROR_ARGUMENT;
    gd_context *ctx = params->ctx;
    const char *who = "params_finish";
    if (gd_failed(ctx)) return ctx->status;
    if (params->values) return gd_fail(ctx, GD_ERROR_STATE, "%s: it was called before", who);
    int64_t block;
    params->order = gd_host_allocate(ctx, order_bytes(params), who);
    if (!params->order) return ctx->status;
    if (!lay_out(params, &block)) {
        undo_finish(params);
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: the parameters have more than %td bytes", who,
                       (ptrdiff_t)PTRDIFF_MAX);
    }
    params->values = gd_params_block(ctx, params->dtype, block, GD_MEMORY_PARAMETERS, who);
    if (params->values) {
        params->grads =
            gd_params_block(ctx, gd_params_state_dtype(params), block, GD_MEMORY_GRADIENTS, who);
    }
    for (int64_t i = 0; i < params->count && params->grads; i++) {
        if (create_grad(params->list[i].tensor, params->grads)) break;
    }
    if (gd_failed(ctx) || gd_buffers_finish(params)) {
        undo_finish(params);
        return ctx->status;
    }
    for (int64_t i = 0; i < params->count; i++) {
        gd_tensor_attach(params->list[i].tensor, params->values->storage);
    }
    if (gd_params_begin(params)) undo_finish(params);
    return gd_error_status(ctx);
}

gd_context *gd_params_context(const gd_params *params)
{
    return params ? params->ctx : NULL;
}

int gd_params_count(const gd_params *params)
{
    return params ? (int)params->count : 0;
}

int64_t gd_params_elements(const gd_params *params)
{
    int64_t elements = 0;
    for (int64_t i = 0; params && i < params->count; i++) elements += params->list[i].tensor->count;
    return elements;
}

gd_tensor *gd_params_at(const gd_params *params, int index)
{
    return params && index >= 0 && index < params->count ? params->list[index].tensor : NULL;
}

gd_tensor *gd_params_find(const gd_params *params, const char *name)
{
    for (int64_t i = 0; params && name && i < params->count; i++) {
        if (!strcmp(params->list[i].tensor->name, name)) return params->list[i].tensor;
    }
    for (int64_t i = 0; params && name && i < params->buffers; i++) {
        if (!strcmp(params->buffer[i]->name, name)) return params->buffer[i];
    }
    return NULL;
}

unsigned gd_params_flags(const gd_params *params, int index)
{
    return gd_params_at(params, index) ? params->list[index].flags : 0;
}

int64_t gd_params_offset(const gd_params *params, int index)
{
    const gd_tensor *t = gd_params_at(params, index);
    return t ? t->offset : 0;
}

gd_status gd_params_set_factors(gd_params *params, const gd_tensor *parameter, double rate,
                                double weight_decay)
{
    const char *who = "params_set_factors";
    if (!params) return GD_ERROR_ARGUMENT;
    gd_context *ctx = params->ctx;
    if (gd_failed(ctx) || !gd_outside_graph(ctx, who)) return ctx->status;
    int64_t i = 0;
    while (i < params->count && params->list[i].tensor != parameter) i++;
    if (i == params->count) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: the tensor is no parameter of the group, wanted one of gd_params_add",
                       who);
    }
    if (!(rate >= 0 && rate < INFINITY && weight_decay >= 0 && weight_decay < INFINITY)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: rate is %g and weight_decay %g, wanted finite numbers of at least 0",
                       who, rate, weight_decay);
    }
    params->list[i].rate = rate;
    params->list[i].weight_decay = weight_decay;
    gd_graphs_forget(ctx);
    return GD_OK;
}

bool gd_params_ready(const gd_params *params, const char *who)
{
    if (!params || gd_failed(params->ctx)) return false;
    if (!params->values) {
        gd_fail(params->ctx, GD_ERROR_STATE,
                "%s: the parameters have no memory yet, call gd_params_finish", who);
    }
    return params->values;
}

/* Nothing is written: the next backward overwrites the old values. */
gd_status gd_params_clear_grads(gd_params *params)
{
    if (!gd_params_ready(params, "params_clear_grads")) return gd_params_status(params);
    watch_unused(params);
    for (int64_t i = 0; i < params->count; i++) gd_grad_clear(params->list[i].tensor);
    if (params->replica) params->replica->calls->clear(params->replica);
    return GD_OK;
}
