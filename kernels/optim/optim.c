/* optim.c - the optimizer updates of the core (src/core/services.h). */
#include "kernel.h"

#include "copy/convert.h"
#include "optim/decide.h"
#include "optim/optim.h"
#include "platform/clock.h"

void gd_add_loss_cpu(gd_update_state *state, void *dloss, const void *loss, gd_dtype dtype,
                     double fraction, gd_context *ctx)
{
    (void)ctx;
    double value;
    const double seed = fraction * (double)state->scale.factor;
    gd_find_converter(GD_FLOAT64, dtype)(&value, 1, loss, 1, 1);
    gd_find_converter(dtype, GD_FLOAT64)(dloss, 1, &seed, 1, 1);
    state->loss += fraction * value;
}

void gd_decide_cpu(gd_update_state *state, gd_update_slot *slots, const gd_update_rule *rule,
                   gd_context *ctx)
{
    (void)ctx;
    gd_decide(state, slots, rule, false, gd_os_now());
}

void gd_sgd_cpu(void *w, void *v, const void *g, gd_dtype dtype, gd_rounded rounded, int64_t n,
                const gd_sgd_rule *rule, const gd_update_state *state, gd_context *ctx)
{
    if (!state->apply) return;
    if (dtype == GD_FLOAT64)
        gd_sgd_f64(w, v, g, rounded, n, rule, state, gd_context_threads(ctx));
    else
        gd_sgd_f32(w, v, g, rounded, n, rule, state, gd_context_threads(ctx));
}

void gd_adamw_cpu(void *w, void *m, void *v, const void *g, gd_dtype dtype, gd_rounded rounded,
                  int64_t n, const gd_adamw_rule *rule, const gd_update_state *state,
                  gd_context *ctx)
{
    if (!state->apply) return;
    if (dtype == GD_FLOAT64)
        gd_adamw_f64(w, m, v, g, rounded, n, rule, state, gd_context_threads(ctx));
    else
        gd_adamw_f32(w, m, v, g, rounded, n, rule, state, gd_context_threads(ctx));
}
