/* optim.c - parameters in one block of memory, and the books of the optimizers.
 *
 *     values     | embed (decay) | w1 (decay) | ... || norm1 | bias | ... |
 *     grads      | the same places                                        |
 *     m, v       | the same places                                        |
 *     master     | the same places: float32 where the values are 16-bit   |
 *
 * Parameters that decay come first, so that an update is two calls of a kernel, one with weight
 * decay and one without, whatever the number of parameters. The gaps that align each parameter to
 * 64 bytes hold zeros in every block, and stay zero under every rule here. */
#include "core.h"

#include <math.h>
#include <string.h>

enum { ALIGNMENT_BYTES = 64, MAX_STATES = 3 };

typedef struct parameter {
    gd_tensor *tensor; /* its header; its gradient's header is tensor->grad */
    unsigned flags;
} parameter;

struct gd_params {
    gd_context *ctx;
    gd_dtype dtype;
    parameter *list; /* in the order added */
    int64_t count, capacity;
    gd_tensor *values, *grads; /* the blocks [block]; NULL before gd_params_finish */
};

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
    if (params) *params = (gd_params){.ctx = ctx, .dtype = dtype};
    return params;
}

void gd_params_free(gd_params *params)
{
    if (!params) return;
    gd_context *ctx = params->ctx;
    for (int64_t i = 0; i < params->count; i++) gd_tensor_destroy(params->list[i].tensor);
    if (params->values) gd_tensor_destroy(params->values);
    if (params->grads) gd_tensor_destroy(params->grads);
    gd_host_release(ctx, params->list, (size_t)params->capacity * sizeof *params->list);
    gd_host_release(ctx, params, sizeof *params);
}

static gd_status check_name(const gd_params *params, const char *name)
{
    gd_context *ctx = params->ctx;
    const size_t room = sizeof params->list->tensor->name;
    if (!name || !*name || strlen(name) >= room) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "params_add: name is %s%s%s, wanted 1 to %zu bytes",
                       name ? "\"" : "", name ? name : "NULL", name ? "\"" : "", room - 1);
    }
    if (gd_params_find(params, name)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "params_add: name is \"%s\", wanted one that the group does not have yet",
                       name);
    }
    return GD_OK;
}

gd_tensor *gd_params_add(gd_params *params, const char *name, int ndim, const int64_t *shape,
                         unsigned flags)
{
    if (!params || gd_failed(params->ctx)) return NULL;
    gd_context *ctx = params->ctx;
    if (params->values) {
        gd_fail(ctx, GD_ERROR_STATE,
                "params_add: \"%s\" comes after gd_params_finish, wanted it before",
                name ? name : "");
        return NULL;
    }
    if (check_name(params, name) ||
        !gd_host_grow(ctx, (void **)&params->list, &params->capacity, params->count + 1,
                      sizeof *params->list, "params_add")) {
        return NULL;
    }
    gd_tensor *t = gd_tensor_header(ctx, "params_add", false, params->dtype, ndim, shape);
    if (!t) return NULL;
    t->owned = true;
    t->requires_grad = true;
    gd_tensor_set_name(t, name);
    params->list[params->count++] = (parameter){t, flags};
    return t;
}

static int decays(const parameter *p)
{
    return p->flags & GD_DECAY ? 1 : 0;
}

/* The dtype of gradients, of the optimizer's state, and of what it computes. */
static gd_dtype state_dtype(const gd_params *params)
{
    return params->dtype == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32;
}

/* Elements that a parameter takes of the block, the gap behind it included. */
static int64_t room_for(const gd_tensor *t)
{
    const int64_t unit = ALIGNMENT_BYTES / (int64_t)gd_dtype_size(t->dtype);
    return (t->count + unit - 1) / unit * unit;
}

/* Gives every parameter its place in the block; false if the bytes overflow. */
static bool lay_out(gd_params *params, int64_t *block)
{
    const int64_t limit =
        PTRDIFF_MAX / (int64_t)gd_dtype_size(state_dtype(params)) - ALIGNMENT_BYTES;
    int64_t next = 0;
    for (int decay = 1; decay >= 0; decay--) {
        for (int64_t i = 0; i < params->count; i++) {
            gd_tensor *t = params->list[i].tensor;
            if (decays(&params->list[i]) != decay) continue;
            if (t->count > limit - next) return false;
            t->offset = next;
            next += room_for(t);
        }
    }
    *block = next;
    return true;
}

/* A one-dimensional tensor of zeros that belongs to a group or an optimizer. */
static gd_tensor *create_block(gd_context *ctx, gd_dtype dtype, int64_t block,
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

/* The gradient of t: the same place in the block of gradients. */
static gd_status create_grad(gd_tensor *t, const gd_tensor *grads)
{
    gd_tensor *grad =
        gd_tensor_header(t->ctx, "params_finish", false, grads->dtype, t->ndim, t->shape);
    if (!grad) return gd_error_status(t->ctx);
    grad->owned = true;
    grad->offset = t->offset;
    gd_tensor_attach(grad, grads->storage);
    gd_tensor_unlist(grad); /* it goes with t */
    t->grad = grad;
    return GD_OK;
}

static void undo_finish(gd_params *params)
{
    for (int64_t i = 0; i < params->count; i++) {
        gd_tensor *t = params->list[i].tensor;
        if (t->grad) gd_tensor_destroy(t->grad);
        t->grad = NULL;
    }
    if (params->grads) gd_tensor_destroy(params->grads);
    if (params->values) gd_tensor_destroy(params->values);
    params->grads = params->values = NULL;
}

gd_status gd_params_finish(gd_params *params)
{
    if (!params) return GD_ERROR_ARGUMENT;
    gd_context *ctx = params->ctx;
    const char *who = "params_finish";
    if (gd_failed(ctx)) return ctx->status;
    if (params->values) return gd_fail(ctx, GD_ERROR_STATE, "%s: it was called before", who);
    int64_t block;
    if (!lay_out(params, &block)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: the parameters have more than %td bytes", who,
                       PTRDIFF_MAX);
    }
    params->values = create_block(ctx, params->dtype, block, GD_MEMORY_PARAMETERS, who);
    if (params->values) {
        params->grads = create_block(ctx, state_dtype(params), block, GD_MEMORY_GRADIENTS, who);
    }
    for (int64_t i = 0; i < params->count && params->grads; i++) {
        if (create_grad(params->list[i].tensor, params->grads)) break;
    }
    if (gd_failed(ctx)) {
        undo_finish(params);
        return ctx->status;
    }
    for (int64_t i = 0; i < params->count; i++) {
        gd_tensor_attach(params->list[i].tensor, params->values->storage);
    }
    return GD_OK;
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
    return NULL;
}

unsigned gd_params_flags(const gd_params *params, int index)
{
    return gd_params_at(params, index) ? params->list[index].flags : 0;
}

/* ---- Gradients ---------------------------------------------------------------------------- */

/* True when the group can be worked on: no error stands, and it has memory. */
static bool ready(const gd_params *params, const char *who)
{
    if (!params || gd_failed(params->ctx)) return false;
    if (!params->values) {
        gd_fail(params->ctx, GD_ERROR_STATE,
                "%s: the parameters have no memory yet, call gd_params_finish", who);
    }
    return params->values;
}

static gd_status refused(const gd_params *params)
{
    return params ? gd_error_status(params->ctx) : GD_ERROR_ARGUMENT;
}

/* Nothing is written: the next backward overwrites what it finds. */
gd_status gd_params_clear_grads(gd_params *params)
{
    if (!ready(params, "params_clear_grads")) return refused(params);
    for (int64_t i = 0; i < params->count; i++) gd_grad_clear(params->list[i].tensor);
    return GD_OK;
}

/* A parameter that no gradient reached in this step may still hold that of an earlier one, since
 * clearing writes nothing; here, where the block is about to be read as a whole, it becomes zero. */
static void zero_missing_grads(gd_params *params)
{
    gd_context *ctx = params->ctx;
    for (int64_t i = 0; i < params->count; i++) {
        const gd_tensor *t = params->list[i].tensor;
        if (t->grad_valid || t->count == 0) continue;
        ctx->services->fill(gd_tensor_data(t->grad), t->grad->dtype, 0, t->count, ctx);
    }
}

gd_status gd_params_scale_grads(gd_params *params, double factor)
{
    if (!ready(params, "params_scale_grads")) return refused(params);
    gd_context *ctx = params->ctx;
    if (!isfinite(factor)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "params_scale_grads: factor is %g, wanted a finite number", factor);
    }
    gd_tensor *grads = params->grads;
    zero_missing_grads(params);
    ctx->services->scale(gd_tensor_data(grads), grads->dtype, factor, grads->count, ctx);
    grads->storage->version++;
    return gd_error_status(ctx);
}

gd_status gd_clip_grad_norm(gd_params *params, double max_norm, double *norm)
{
    if (!ready(params, "clip_grad_norm")) return refused(params);
    gd_context *ctx = params->ctx;
    if (isnan(max_norm)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "clip_grad_norm: max_norm is nan, wanted a number");
    }
    const gd_services *services = ctx->services;
    gd_tensor *grads = params->grads;
    void *data = gd_tensor_data(grads);
    zero_missing_grads(params);
    double length = sqrt(services->sum_squares(data, grads->dtype, grads->count, ctx));
    double factor = max_norm / (length + 1e-6);
    if (max_norm > 0 && isfinite(length) && factor < 1) {
        services->scale(data, grads->dtype, factor, grads->count, ctx);
        grads->storage->version++;
    }
    if (norm) *norm = length;
    return gd_error_status(ctx);
}

/* ---- Optimizers --------------------------------------------------------------------------- */

typedef enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZER_ADAMW } optimizer_kind;

struct gd_optimizer {
    gd_params *params;
    optimizer_kind kind;
    gd_sgd_options sgd;
    gd_adamw_options adamw;
    int64_t steps;
    gd_tensor *state[MAX_STATES]; /* AdamW: m, v; SGD with momentum: v; then the master, if any */
    gd_tensor *master;            /* one of them, or NULL */
};

/* `state_names` [states], to which the master of 16-bit parameters is added. */
static gd_optimizer *create_optimizer(gd_params *params, optimizer_kind kind,
                                      const char *const *state_names, int states, const char *who)
{
    gd_context *ctx = params->ctx;
    const bool narrow = params->dtype != state_dtype(params);
    gd_optimizer *optimizer = gd_host_allocate(ctx, sizeof *optimizer, who);
    if (!optimizer) return NULL;
    *optimizer = (gd_optimizer){.params = params, .kind = kind};
    for (int i = 0; i < states + narrow; i++) {
        gd_tensor *state =
            create_block(ctx, state_dtype(params), params->values->count, GD_MEMORY_OPTIMIZER, who);
        if (!state) {
            gd_optimizer_free(optimizer);
            return NULL;
        }
        gd_tensor_set_name(state, i < states ? state_names[i] : "master");
        optimizer->state[i] = state;
        if (i == states) optimizer->master = state;
    }
    return optimizer;
}

/* False, and the error set, unless low <= value < high. */
static bool in_range(gd_context *ctx, const char *who, const char *option, double value, double low,
                     double high)
{
    if (value >= low && value < high) return true;
    if (isinf(high)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: %s is %g, wanted a finite number of at least %g", who,
                option, value, low);
    } else {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: %s is %g, wanted at least %g and less than %g", who,
                option, value, low, high);
    }
    return false;
}

gd_optimizer *gd_sgd_create(gd_params *params, const gd_sgd_options *options)
{
    const char *who = "sgd_create";
    if (!ready(params, who)) return NULL;
    gd_context *ctx = params->ctx;
    gd_sgd_options o = options ? *options : (gd_sgd_options){0};
    if (!in_range(ctx, who, "momentum", o.momentum, 0, INFINITY) ||
        !in_range(ctx, who, "dampening", o.dampening, 0, INFINITY) ||
        !in_range(ctx, who, "weight_decay", o.weight_decay, 0, INFINITY)) {
        return NULL;
    }
    if (o.nesterov && (o.momentum == 0 || o.dampening != 0)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "%s: nesterov with momentum %g and dampening %g, wanted some momentum and no "
                "dampening",
                who, o.momentum, o.dampening);
        return NULL;
    }
    const int states = o.momentum != 0;
    gd_optimizer *optimizer =
        create_optimizer(params, OPTIMIZER_SGD, (const char *[]){"v"}, states, who);
    if (optimizer) optimizer->sgd = o;
    return optimizer;
}

gd_optimizer *gd_adamw_create(gd_params *params, const gd_adamw_options *options)
{
    const char *who = "adamw_create";
    if (!ready(params, who)) return NULL;
    gd_context *ctx = params->ctx;
    gd_adamw_options o = options ? *options : (gd_adamw_options){0};
    if (o.beta1 == 0) o.beta1 = 0.9;
    if (o.beta2 == 0) o.beta2 = 0.999;
    if (o.eps == 0) o.eps = 1e-8;
    if (!in_range(ctx, who, "beta1", o.beta1, 0, 1) ||
        !in_range(ctx, who, "beta2", o.beta2, 0, 1) ||
        !in_range(ctx, who, "eps", o.eps, 0, INFINITY) ||
        !in_range(ctx, who, "weight_decay", o.weight_decay, 0, INFINITY)) {
        return NULL;
    }
    gd_optimizer *optimizer =
        create_optimizer(params, OPTIMIZER_ADAMW, (const char *[]){"m", "v"}, 2, who);
    if (optimizer) optimizer->adamw = o;
    return optimizer;
}

void gd_optimizer_free(gd_optimizer *optimizer)
{
    if (!optimizer) return;
    gd_context *ctx = optimizer->params->ctx;
    for (int i = 0; i < MAX_STATES; i++) {
        if (optimizer->state[i]) gd_tensor_destroy(optimizer->state[i]);
    }
    gd_host_release(ctx, optimizer, sizeof *optimizer);
}

/* Element `start` of a block; NULL for a block that the optimizer does not have. */
static void *block_at(const gd_tensor *block, int64_t start)
{
    if (!block) return NULL;
    return (char *)gd_tensor_data(block) + (size_t)start * gd_dtype_size(block->dtype);
}

/* Updates elements [start, end) of the block, which decay or do not. */
static void update_range(const gd_optimizer *optimizer, double lr, int64_t start, int64_t end,
                         int decay)
{
    if (start == end) return;
    const gd_params *params = optimizer->params;
    gd_context *ctx = params->ctx;
    const gd_dtype dtype = state_dtype(params);
    gd_rounded rounded = {NULL, params->dtype};
    if (optimizer->master) rounded.data = block_at(params->values, start);
    void *w = block_at(optimizer->master ? optimizer->master : params->values, start);
    void *g = block_at(params->grads, start), *first = block_at(optimizer->state[0], start);
    if (optimizer->kind == OPTIMIZER_SGD) {
        const gd_sgd_options *o = &optimizer->sgd;
        gd_sgd_step step = {.lr = lr,
                            .momentum = o->momentum,
                            .dampening = o->dampening,
                            .weight_decay = decay ? o->weight_decay : 0,
                            .nesterov = o->nesterov,
                            .first = optimizer->steps == 0};
        void *v = o->momentum != 0 ? first : NULL;
        ctx->services->sgd(w, v, g, dtype, rounded, end - start, &step, ctx);
    } else {
        const gd_adamw_options *o = &optimizer->adamw;
        gd_adamw_step step = {.lr = lr,
                              .beta1 = o->beta1,
                              .beta2 = o->beta2,
                              .eps = o->eps,
                              .weight_decay = decay ? o->weight_decay : 0,
                              .step = optimizer->steps + 1};
        ctx->services->adamw(w, first, block_at(optimizer->state[1], start), g, dtype, rounded,
                             end - start, &step, ctx);
    }
}

/* Updates the parameters that decay, or the others, in as few ranges as those allow that shall not
 * be trained. */
static void update(const gd_optimizer *optimizer, double lr, int decay)
{
    const gd_params *params = optimizer->params;
    int64_t start = 0, end = 0;
    for (int64_t i = 0; i < params->count; i++) {
        const gd_tensor *t = params->list[i].tensor;
        if (!t->requires_grad || decays(&params->list[i]) != decay) continue;
        if (t->offset != end) {
            update_range(optimizer, lr, start, end, decay);
            start = t->offset;
        }
        end = t->offset + room_for(t);
    }
    update_range(optimizer, lr, start, end, decay);
}

gd_status gd_optimizer_step(gd_optimizer *optimizer, double lr)
{
    if (!optimizer) return GD_ERROR_ARGUMENT;
    gd_params *params = optimizer->params;
    gd_context *ctx = params->ctx;
    if (gd_failed(ctx)) return ctx->status;
    if (!in_range(ctx, "optimizer_step", "lr", lr, 0, INFINITY)) return ctx->status;
    zero_missing_grads(params);
    update(optimizer, lr, 1);
    update(optimizer, lr, 0);
    params->values->storage->version++; /* a backward that still needs the old values will notice */
    optimizer->steps++;
    return gd_error_status(ctx);
}

int64_t gd_optimizer_steps(const gd_optimizer *optimizer)
{
    return optimizer ? optimizer->steps : 0;
}

gd_status gd_optimizer_set_steps(gd_optimizer *optimizer, int64_t steps)
{
    if (!optimizer) return GD_ERROR_ARGUMENT;
    gd_context *ctx = optimizer->params->ctx;
    if (gd_failed(ctx)) return ctx->status;
    if (steps < 0) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "optimizer_set_steps: steps is %lld, wanted at least 0", (long long)steps);
    }
    optimizer->steps = steps;
    return GD_OK;
}

gd_tensor *gd_optimizer_state(const gd_optimizer *optimizer, int index)
{
    return optimizer && index >= 0 && index < MAX_STATES ? optimizer->state[index] : NULL;
}
