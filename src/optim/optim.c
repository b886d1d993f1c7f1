/* optim.c - optimizers: their states and numbers. */
#include "optim/optimizer.h"

bool gd_optimizer_add_state(gd_optimizer *optimizer, const char *name, gd_tensor **state,
                            const char *who)
{
    const gd_params *params = optimizer->params;
    const int64_t length = params->replica ? params->replica->owned : params->values->count;
    *state = gd_params_block(optimizer->ctx, gd_params_state_dtype(params), length,
                             GD_MEMORY_OPTIMIZER, who);
    if (!*state) return false;
    snprintf((*state)->name, sizeof(*state)->name, "%s", name);
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
    *optimizer =
        (gd_optimizer){.ctx = ctx, .params = params, .number = ++params->optimizers, .rule = *rule};
    gd_context_hold(ctx);
    if (add_states(optimizer, state_names, who) && gd_update_create(optimizer) &&
        !gd_buffers_commit(params))
        return optimizer;
    gd_optimizer_destroy(optimizer);
    return NULL;
}

void gd_optimizer_free(gd_optimizer *optimizer)
{
    if (optimizer && gd_outside_calls(optimizer->ctx, "optimizer_free", true))
        gd_optimizer_destroy(optimizer);
}

void gd_optimizer_destroy(gd_optimizer *optimizer)
{
    gd_context *ctx = optimizer->ctx;
    for (int i = 0; i < optimizer->states; i++) gd_tensor_destroy(optimizer->state[i]);
    gd_update_free(optimizer);
    gd_host_release(ctx, optimizer, sizeof *optimizer);
    gd_context_drop(ctx);
}

gd_tensor *gd_optimizer_state(const gd_optimizer *optimizer, int index)
{
    return optimizer && index >= 0 && index < optimizer->states ? optimizer->state[index] : NULL;
}
