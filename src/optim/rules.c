/* rules.c - an optimizer of each kind: its options, checked, and the states that it needs. */
#include "optim/optimizer.h"

#include <math.h>

/* What all rules have; a number that a rule does not use is 0. */
static bool check_rule(gd_context *ctx, const gd_rule *r, const char *who)
{
    const bool good = gd_option_in_range(ctx, who, "momentum", r->momentum, 0, INFINITY) &&
                      gd_option_in_range(ctx, who, "dampening", r->dampening, 0, INFINITY) &&
                      gd_option_in_range(ctx, who, "beta1", r->beta1, 0, 1) &&
                      gd_option_in_range(ctx, who, r->kind == GD_RULE_RMSPROP ? "alpha" : "beta2",
                                         r->beta2, 0, 1) &&
                      gd_option_in_range(ctx, who, "eps", r->eps, 0, INFINITY) &&
                      gd_option_in_range(ctx, who, "weight_decay", r->weight_decay, 0, INFINITY) &&
                      gd_option_in_range(ctx, who, "rate_decay", r->rate_decay, 0, INFINITY);
    if (good && r->nesterov && (r->momentum == 0 || r->dampening != 0))
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "%s: nesterov with momentum %g and dampening %g, wanted some momentum and no "
                "dampening",
                who, r->momentum, r->dampening);
    return !gd_failed(ctx);
}

/* Whether a parameter has these flags among `mask`. */
static bool has(const gd_params *params, unsigned mask, unsigned flags)
{
    int64_t i = 0;
    while (i < params->count && (params->list[i].flags & mask) != flags) i++;
    return i < params->count;
}

/* A decay that no parameter takes. */
static void watch_decay(const gd_params *params, double decay, unsigned mask, unsigned flags,
                        const char *who)
{
    if (decay == 0 || has(params, mask, flags) || params->count == 0) return;
    gd_notice(params->ctx, GD_NOTICE_DECAY,
              "%s: no parameter takes weight_decay %g: set GD_DECAY in gd_params_add of those that "
              "decay%s (matrices, as a rule)",
              who, decay,
              flags & GD_MUON  ? " and have GD_MUON"
              : mask & GD_MUON ? " and do not have GD_MUON"
                               : "");
}

static gd_optimizer *create(gd_params *params, const gd_rule *rule,
                            const char *const state_names[GD_RULE_STATES], const char *who)
{
    if (!gd_params_ready(params, who) || !check_rule(params->ctx, rule, who)) return NULL;
    watch_decay(params, rule->weight_decay, GD_DECAY, GD_DECAY, who);
    return gd_optimizer_create(params, rule, state_names, who);
}

gd_optimizer *gd_sgd_create(gd_params *params, const gd_sgd_options *options)
{
    const gd_sgd_options o = options ? *options : (gd_sgd_options){0};
    const gd_rule rule = {.kind = GD_RULE_SGD,
                          .rate = 1,
                          .momentum = gd_option(o.momentum, 0),
                          .dampening = gd_option(o.dampening, 0),
                          .weight_decay = gd_option(o.weight_decay, 0),
                          .nesterov = o.nesterov};
    return create(params, &rule, (const char *[]){rule.momentum != 0 ? "v" : NULL, NULL, NULL},
                  "sgd_create");
}

static gd_rule adam_rule(gd_rule_kind kind, const gd_adamw_options *options)
{
    const gd_adamw_options o = options ? *options : (gd_adamw_options){0};
    return (gd_rule){.kind = kind,
                     .rate = 1,
                     .beta1 = gd_option(o.beta1, 0.9),
                     .beta2 = gd_option(o.beta2, 0.999),
                     .eps = gd_option(o.eps, 1e-8),
                     .weight_decay = gd_option(o.weight_decay, 0),
                     .lazy = o.lazy};
}

static const char *const adam_states[GD_RULE_STATES] = {"m", "v", NULL};

gd_optimizer *gd_adamw_create(gd_params *params, const gd_adamw_options *options)
{
    const gd_rule rule = adam_rule(GD_RULE_ADAMW, options);
    return create(params, &rule, adam_states, "adamw_create");
}

gd_optimizer *gd_adam_create(gd_params *params, const gd_adam_options *options)
{
    const gd_rule rule = adam_rule(GD_RULE_ADAM, options);
    return create(params, &rule, adam_states, "adam_create");
}

gd_optimizer *gd_rmsprop_create(gd_params *params, const gd_rmsprop_options *options)
{
    const gd_rmsprop_options o = options ? *options : (gd_rmsprop_options){0};
    const gd_rule rule = {.kind = GD_RULE_RMSPROP,
                          .rate = 1,
                          .beta2 = gd_option(o.alpha, 0.99),
                          .eps = gd_option(o.eps, 1e-8),
                          .momentum = gd_option(o.momentum, 0),
                          .weight_decay = gd_option(o.weight_decay, 0)};
    const char *velocity = rule.momentum != 0 ? "velocity" : NULL;
    return create(params, &rule, (const char *[]){"v", velocity, o.centered ? "mean" : NULL},
                  "rmsprop_create");
}

gd_optimizer *gd_adagrad_create(gd_params *params, const gd_adagrad_options *options)
{
    const char *who = "adagrad_create";
    const gd_adagrad_options o = options ? *options : (gd_adagrad_options){0};
    const gd_rule rule = {.kind = GD_RULE_ADAGRAD,
                          .rate = 1,
                          .eps = gd_option(o.eps, 1e-10),
                          .rate_decay = gd_option(o.rate_decay, 0),
                          .weight_decay = gd_option(o.weight_decay, 0)};
    const double initial = gd_option(o.initial, 0);
    if (!gd_params_ready(params, who) ||
        !gd_option_in_range(params->ctx, who, "initial", initial, 0, INFINITY))
        return NULL;
    gd_optimizer *optimizer = create(params, &rule, (const char *[]){"v", NULL, NULL}, who);
    if (optimizer && gd_tensor_fill(optimizer->of_rule[0], initial)) {
        gd_optimizer_destroy(optimizer);
        return NULL;
    }
    return optimizer;
}

gd_optimizer *gd_lion_create(gd_params *params, const gd_lion_options *options)
{
    const gd_lion_options o = options ? *options : (gd_lion_options){0};
    const gd_rule rule = {.kind = GD_RULE_LION,
                          .rate = 1,
                          .beta1 = gd_option(o.beta1, 0.9),
                          .beta2 = gd_option(o.beta2, 0.99),
                          .weight_decay = gd_option(o.weight_decay, 0)};
    return create(params, &rule, (const char *[]){"m", NULL, NULL}, "lion_create");
}

gd_optimizer *gd_muon_create(gd_params *params, const gd_muon_options *options)
{
    const char *who = "muon_create";
    if (!gd_params_ready(params, who)) return NULL;
    gd_context *ctx = params->ctx;
    const gd_muon_options o = options ? *options : (gd_muon_options){0};
    const gd_muon_rule muon = {.rate = 1,
                               .momentum = gd_option(o.momentum, 0.95),
                               .weight_decay = gd_option(o.weight_decay, 0),
                               .nesterov = !o.plain,
                               .match_adamw = o.match_adamw};
    gd_rule rule = adam_rule(GD_RULE_ADAMW, &o.adamw);
    rule.rate = gd_option(o.adamw_rate, 1);
    if (!gd_option_in_range(ctx, who, "momentum", muon.momentum, 0, 1) ||
        !gd_option_in_range(ctx, who, "weight_decay", muon.weight_decay, 0, INFINITY) ||
        !gd_option_in_range(ctx, who, "adamw_rate", rule.rate, 0, INFINITY)) {
        return NULL;
    }
    if (params->replica) {
        gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                "%s: the parameters are replicated over %d ranks, each of which updates a slice of "
                "them, and Muon needs whole matrices: wanted one rank, or another optimizer",
                who, params->replica->ranks);
        return NULL;
    }
    gd_optimizer *optimizer = create(params, &rule, adam_states, who);
    if (!optimizer) return NULL;
    const unsigned both = GD_DECAY | GD_MUON;
    watch_decay(params, muon.weight_decay, both, both, who);
    watch_decay(params, rule.weight_decay, both, GD_DECAY, who);
    if (!has(params, GD_MUON, GD_MUON) && params->count)
        gd_notice(ctx, GD_NOTICE_MUON, "%s: no parameter has GD_MUON: AdamW updates all", who);
    optimizer->has_muon = true;
    optimizer->muon = muon;
    return optimizer;
}
