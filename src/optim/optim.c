/* optim.c - optimizers: which kernel updates which range of the parameters' block (params.c), with
 * what numbers. kernels/optim has the rules themselves. */
#include "optim/optimizer.h"

#include <math.h>

/* `state_names` [states], to which the master of 16-bit parameters is added. */
static gd_optimizer *create_optimizer(gd_params *params, gd_optimizer_kind kind,
                                      const char *const *state_names, int states, const char *who)
{
    gd_context *ctx = params->ctx;
    const bool narrow = params->dtype != gd_params_state_dtype(params);
    gd_optimizer *optimizer = gd_host_allocate(ctx, sizeof *optimizer, who);
    if (!optimizer) return NULL;
    *optimizer = (gd_optimizer){.ctx = ctx, .params = params, .kind = kind};
    gd_context_hold(ctx);
    for (int i = 0; i < states + narrow; i++) {
        const int64_t length = params->replica ? params->replica->owned : params->values->count;
        gd_tensor *state =
            gd_params_block(ctx, gd_params_state_dtype(params), length, GD_MEMORY_OPTIMIZER, who);
        if (!state) {
            gd_optimizer_free(optimizer);
            return NULL;
        }
        gd_tensor_set_name(state, i < states ? state_names[i] : "master");
        optimizer->state[i] = state;
        if (i == states) optimizer->master = state;
    }
    params->has_optimizer = true;
    if (!gd_update_create(optimizer)) {
        gd_optimizer_free(optimizer);
        return NULL;
    }
    return optimizer;
}

bool gd_option_in_range(gd_context *ctx, const char *who, const char *option, double value,
                        double low, double high)
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
    if (!gd_params_ready(params, who)) return NULL;
    gd_context *ctx = params->ctx;
    gd_sgd_options o = options ? *options : (gd_sgd_options){0};
    o.momentum = gd_option(o.momentum, 0);
    o.dampening = gd_option(o.dampening, 0);
    o.weight_decay = gd_option(o.weight_decay, 0);
    if (!gd_option_in_range(ctx, who, "momentum", o.momentum, 0, INFINITY) ||
        !gd_option_in_range(ctx, who, "dampening", o.dampening, 0, INFINITY) ||
        !gd_option_in_range(ctx, who, "weight_decay", o.weight_decay, 0, INFINITY)) {
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
        create_optimizer(params, GD_OPTIMIZER_SGD, (const char *[]){"v"}, states, who);
    if (optimizer) optimizer->sgd = o;
    return optimizer;
}

gd_optimizer *gd_adamw_create(gd_params *params, const gd_adamw_options *options)
{
    const char *who = "adamw_create";
    if (!gd_params_ready(params, who)) return NULL;
    gd_context *ctx = params->ctx;
    gd_adamw_options o = options ? *options : (gd_adamw_options){0};
    o.beta1 = gd_option(o.beta1, 0.9);
    o.beta2 = gd_option(o.beta2, 0.999);
    o.eps = gd_option(o.eps, 1e-8);
    o.weight_decay = gd_option(o.weight_decay, 0);
    if (!gd_option_in_range(ctx, who, "beta1", o.beta1, 0, 1) ||
        !gd_option_in_range(ctx, who, "beta2", o.beta2, 0, 1) ||
        !gd_option_in_range(ctx, who, "eps", o.eps, 0, INFINITY) ||
        !gd_option_in_range(ctx, who, "weight_decay", o.weight_decay, 0, INFINITY)) {
        return NULL;
    }
    gd_optimizer *optimizer =
        create_optimizer(params, GD_OPTIMIZER_ADAMW, (const char *[]){"m", "v"}, 2, who);
    if (optimizer) optimizer->adamw = o;
    return optimizer;
}

void gd_optimizer_free(gd_optimizer *optimizer)
{
    if (!optimizer) return;
    gd_context *ctx = optimizer->ctx;
    for (int i = 0; i < GD_MAX_STATES; i++) {
        if (optimizer->state[i]) gd_tensor_destroy(optimizer->state[i]);
    }
    gd_update_free(optimizer);
    gd_host_release(ctx, optimizer, sizeof *optimizer);
    gd_context_drop(ctx);
}

/* Element `start` of a block; NULL for a block that the optimizer does not have. */
static void *block_at(const gd_tensor *block, int64_t start)
{
    if (!block) return NULL;
    return (char *)gd_tensor_data(block) + (size_t)start * gd_dtype_size(block->dtype);
}

/* Updates elements [start, end) of the block, as far as they are in the slice, with or without
 * decay. */
static void update_range(const gd_optimizer *optimizer, const gd_params_slice *slice, int64_t start,
                         int64_t end, int decay)
{
    if (start < slice->begin) start = slice->begin;
    if (end > slice->end) end = slice->end;
    if (start >= end) return;
    const gd_params *params = optimizer->params;
    gd_context *ctx = params->ctx;
    const gd_dtype dtype = gd_params_state_dtype(params);
    const int64_t at = slice->at + start - slice->begin; /* in the state */
    gd_rounded rounded = {NULL, params->dtype};
    void *w = block_at(params->values, start), *g = block_at(params->grads, start);
    if (optimizer->master) {
        rounded.data = w;
        w = block_at(optimizer->master, at);
    }
    void *first = block_at(optimizer->state[0], at);
    if (optimizer->kind == GD_OPTIMIZER_SGD) {
        const gd_sgd_options *o = &optimizer->sgd;
        const gd_sgd_rule rule = {.momentum = o->momentum,
                                  .dampening = o->dampening,
                                  .weight_decay = decay ? o->weight_decay : 0,
                                  .nesterov = o->nesterov};
        void *v = o->momentum != 0 ? first : NULL;
        ctx->services->sgd(w, v, g, dtype, rounded, end - start, &rule, optimizer->update, ctx);
    } else {
        const gd_adamw_options *o = &optimizer->adamw;
        const gd_adamw_rule rule = {.beta1 = o->beta1,
                                    .beta2 = o->beta2,
                                    .eps = o->eps,
                                    .weight_decay = decay ? o->weight_decay : 0};
        ctx->services->adamw(w, first, block_at(optimizer->state[1], at), g, dtype, rounded,
                             end - start, &rule, optimizer->update, ctx);
    }
}

/* Updates the parameters that decay, or the others, in as few ranges as frozen parameters allow. */
static void update(const gd_optimizer *optimizer, const gd_params_slice *slice, int decay)
{
    const gd_params *params = optimizer->params;
    int64_t start = 0, end = 0;
    for (int64_t i = 0; i < params->count; i++) {
        const gd_tensor *t = params->list[i].tensor;
        if (!t->requires_grad || gd_param_decays(&params->list[i]) != decay) continue;
        if (t->offset != end) {
            update_range(optimizer, slice, start, end, decay);
            start = t->offset;
        }
        end = t->offset + gd_params_room(t);
    }
    update_range(optimizer, slice, start, end, decay);
}

/* Each slice is sent to the other ranks while the next one is updated. */
void gd_optimizer_apply(const gd_optimizer *optimizer)
{
    const gd_params *params = optimizer->params;
    gd_params_slice slice;
    for (int64_t i = 0; gd_params_slice_at(params, i, &slice); i++) {
        update(optimizer, &slice, 1);
        update(optimizer, &slice, 0);
        if (params->replica && params->replica->calls->gather(params->replica, i)) return;
    }
}

gd_tensor *gd_optimizer_state(const gd_optimizer *optimizer, int index)
{
    return optimizer && index >= 0 && index < GD_MAX_STATES ? optimizer->state[index] : NULL;
}
