/* optim.c - the updates of parameters (src/optim/services.h). */
#include "kernel.h"

#include "copy/convert.h"
#include "optim/decide.h"
#include "optim/optim.h"
#include "platform/clock.h"

#include <string.h>

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
    if (slots) gd_decide(state, slots, rule, false, gd_os_now());
    for (int i = 0; i < GD_UPDATE_COUNTS && rule->trained >> i; i++)
        gd_count_update(state, rule, i);
}

void gd_optimize_cpu(const gd_update_arrays *arrays, const gd_rule *rule,
                     const gd_update_state *state, gd_context *ctx)
{
    if (state && !state->apply) return;
    if (arrays->dtype == GD_FLOAT64)
        gd_optimize_f64(arrays, rule, state, gd_context_threads(ctx));
    else
        gd_optimize_f32(arrays, rule, state, gd_context_threads(ctx));
}

void gd_settle_cpu(void *current, void *committed, int64_t bytes, const gd_update_state *state,
                   gd_context *ctx)
{
    (void)ctx;
    memcpy(state->apply ? committed : current, state->apply ? current : committed, (size_t)bytes);
}

/* Muon is no op, but its products take memory, and fail, as those of ops do. */
static const gd_op muon_messages = {.name = "muon"};

void gd_muon_cpu(const gd_update_arrays *arrays, int64_t rows, int64_t columns,
                 const gd_muon_rule *rule, const gd_update_state *state, gd_context *ctx)
{
    if (!state->apply) return;
    const gd_call call = {.context = ctx,
                          .op = &muon_messages,
                          .dtype = arrays->dtype,
                          .kernel_dtype = arrays->dtype,
                          .threads = gd_context_threads(ctx)};
    if (arrays->dtype == GD_FLOAT64)
        gd_muon_f64(&call, arrays, rows, columns, rule, state);
    else
        gd_muon_f32(&call, arrays, rows, columns, rule, state);
}
