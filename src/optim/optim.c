/* optim.c - optimizers: which kernel updates which range of the parameters' block (params.c), with
 * what numbers. kernels/optim has the rules themselves. */
#include "optim/optimizer.h"

#include <math.h>

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

bool gd_optimizer_add_state(gd_optimizer *optimizer, const char *name, gd_tensor **state,
                            const char *who)
{
    const gd_params *params = optimizer->params;
    const int64_t length = params->replica ? params->replica->owned : params->values->count;
    *state = gd_params_block(optimizer->ctx, gd_params_state_dtype(params), length,
                             GD_MEMORY_OPTIMIZER, who);
    if (!*state) return false;
    gd_tensor_set_name(*state, name);
    optimizer->state[optimizer->states++] = *state;
    return true;
}

static bool add_states(gd_optimizer *optimizer, const char *const state_names[GD_RULE_STATES],
                       const char *who)
{
    const gd_params *params = optimizer->params;
    for (int i = 0; i < GD_RULE_STATES; i++) {
        if (state_names[i] &&
            !gd_optimizer_add_state(optimizer, state_names[i], &optimizer->of_rule[i], who))
            return false;
    }
    return params->dtype == gd_params_state_dtype(params) ||
           gd_optimizer_add_state(optimizer, "master", &optimizer->master, who);
}

gd_optimizer *gd_optimizer_create(gd_params *params, const gd_rule *rule,
                                  const char *const state_names[GD_RULE_STATES], const char *who)
{
    gd_context *ctx = params->ctx;
    gd_optimizer *optimizer = gd_host_allocate(ctx, sizeof *optimizer, who);
    if (!optimizer) return NULL;
    *optimizer = (gd_optimizer){.ctx = ctx, .params = params, .rule = *rule};
    gd_context_hold(ctx);
    if (!add_states(optimizer, state_names, who)) {
        gd_optimizer_free(optimizer);
        return NULL;
    }
    params->has_optimizer = true;
    if (!gd_update_create(optimizer)) {
        gd_optimizer_free(optimizer);
        return NULL;
    }
    return optimizer;
}

void gd_optimizer_free(gd_optimizer *optimizer)
{
    if (!optimizer) return;
    gd_context *ctx = optimizer->ctx;
    for (int i = 0; i < optimizer->states; i++) gd_tensor_destroy(optimizer->state[i]);
    gd_update_free(optimizer);
    gd_host_release(ctx, optimizer, sizeof *optimizer);
    gd_context_drop(ctx);
}

void *gd_block_at(const gd_tensor *block, int64_t start)
{
    if (!block) return NULL;
    return (char *)gd_tensor_data(block) + (size_t)start * gd_dtype_size(block->dtype);
}

/* Elements [start, end) of the block, of which the state begins at `at`. */
static gd_update_arrays arrays_of(const gd_optimizer *optimizer, int64_t start, int64_t end,
                                  int64_t at)
{
    const gd_params *params = optimizer->params;
    void *values = gd_block_at(params->values, start);
    gd_update_arrays arrays = {.w = values,
                               .g = gd_block_at(params->grads, start),
                               .dtype = gd_params_state_dtype(params),
                               .rounded = {NULL, params->dtype},
                               .n = end - start};
    if (optimizer->master) {
        arrays.w = gd_block_at(optimizer->master, at);
        arrays.rounded.data = values;
    }
    for (int i = 0; i < GD_RULE_STATES; i++)
        arrays.state[i] = gd_block_at(optimizer->of_rule[i], at);
    return arrays;
}

/* Updates elements [start, end) of the block, as far as they are in the slice. All of them belong to
 * parameters that are updated as `p` is. */
static void update_range(const gd_optimizer *optimizer, const gd_params_slice *slice, int64_t start,
                         int64_t end, const gd_param *p)
{
    if (start < slice->begin) start = slice->begin;
    if (end > slice->end) end = slice->end;
    if (start >= end) return;
    gd_context *ctx = optimizer->ctx;
    const gd_update_arrays arrays =
        arrays_of(optimizer, start, end, slice->at + start - slice->begin);
    gd_rule rule = optimizer->rule;
    rule.rate *= p->rate;
    rule.weight_decay *= gd_param_decay(p);
    ctx->services->optimize(&arrays, &rule, optimizer->update, ctx);
}

/* A matrix, which is not divided: there is one slice. */
static void update_matrix(const gd_optimizer *optimizer, const gd_param *p)
{
    const gd_tensor *t = p->tensor;
    gd_context *ctx = optimizer->ctx;
    const gd_update_arrays arrays =
        arrays_of(optimizer, t->offset, t->offset + t->count, t->offset);
    gd_muon_rule rule = optimizer->muon;
    rule.rate *= p->rate;
    rule.weight_decay *= gd_param_decay(p);
    gd_call_frame frame;
    gd_frame_begin(ctx, &frame);
    ctx->services->muon(&arrays, t->shape[0], t->shape[1], &rule, optimizer->update, ctx);
    gd_frame_end(ctx, &frame);
}

/* Updates the parameters in as few ranges as their differences and frozen ones allow. */
static void update_slice(const gd_optimizer *optimizer, const gd_params_slice *slice)
{
    const gd_params *params = optimizer->params;
    const gd_param *first = NULL; /* of the range [start, end), which is not yet updated */
    int64_t start = 0, end = 0;
    for (int64_t i = 0; i < params->count; i++) {
        const gd_param *p = &params->list[params->order[i]];
        const gd_tensor *t = p->tensor;
        if (!t->requires_grad) continue;
        if (optimizer->has_muon && p->flags & GD_MUON) {
            update_matrix(optimizer, p);
            continue;
        }
        if (!first || t->offset != end || !gd_param_alike(first, p)) {
            if (first) update_range(optimizer, slice, start, end, first);
            first = p;
            start = t->offset;
        }
        end = t->offset + gd_params_room(t);
    }
    if (first) update_range(optimizer, slice, start, end, first);
}

void *gd_precise_values(const gd_optimizer *optimizer, const gd_params_slice *slice)
{
    return optimizer->master ? gd_block_at(optimizer->master, slice->at)
                             : gd_block_at(optimizer->params->values, slice->begin);
}

/* Moves the average of these parameters, after their update. */
static void update_average(const gd_optimizer *optimizer, const gd_params_slice *slice)
{
    gd_context *ctx = optimizer->ctx;
    const gd_update_arrays arrays = {.w = gd_block_at(optimizer->average, slice->at),
                                     .g = gd_precise_values(optimizer, slice),
                                     .dtype = optimizer->average->dtype,
                                     .n = slice->end - slice->begin};
    const gd_rule rule = {.kind = GD_RULE_AVERAGE, .rate = 1, .beta1 = optimizer->average_decay};
    ctx->services->optimize(&arrays, &rule, optimizer->update, ctx);
}

/* Each slice is sent to the other ranks while the next one is updated; then rank 0's buffers are,
 * which the forwards of this step have changed. */
void gd_optimizer_apply(const gd_optimizer *optimizer)
{
    const gd_params *params = optimizer->params;
    gd_params_slice slice;
    for (int64_t i = 0; gd_params_slice_at(params, i, &slice); i++) {
        update_slice(optimizer, &slice);
        if (optimizer->average) update_average(optimizer, &slice);
        if (params->replica && params->replica->calls->gather(params->replica, i)) return;
    }
    if (params->replica) params->replica->calls->send_buffers(params->replica);
}

gd_tensor *gd_optimizer_state(const gd_optimizer *optimizer, int index)
{
    return optimizer && index >= 0 && index < optimizer->states ? optimizer->state[index] : NULL;
}
