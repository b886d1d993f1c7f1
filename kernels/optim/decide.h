/* decide.h - whether an update is made, and with what numbers: on the CPU by optim.c, on a GPU by
 * one thread of optim.cu. */
#ifndef GRADUS_KERNELS_DECIDE_H
#define GRADUS_KERNELS_DECIDE_H

#include <math.h>

#include "optim/services.h"

#ifdef __CUDACC__
#define GD_DECIDE __device__ static inline
#else
#define GD_DECIDE static inline
#endif

/* The loss scale after an update that was made, or one that overflowed. */
GD_DECIDE void gd_adapt_scale(gd_loss_scale *scale, bool overflowed)
{
    const int64_t most = 16777216, patience = 2000;
    if (!scale->adapts) return;
    if (overflowed) {
        scale->factor /= 2;
        scale->good = 0;
    } else if (++scale->good >= patience) {
        if (scale->factor < most) scale->factor *= 2;
        scale->good = 0;
    }
}

/* If the loss is finite and its gradient is not, the scale may be too large. `fault`: an op found
 * an index out of range, and its output is invalid. */
GD_DECIDE gd_update_outcome gd_outcome_of(const gd_update_state *s, bool measured, double norm,
                                          bool fault)
{
    if (!measured) return GD_UPDATE_MADE;
    if (s->halted) return GD_UPDATE_WITHHELD;
    if (fault || !isfinite(s->loss)) return GD_UPDATE_NOT_FINITE;
    if (isfinite(norm)) return GD_UPDATE_MADE;
    return s->scale.factor > 1 ? GD_UPDATE_OVERFLOWED : GD_UPDATE_NOT_FINITE;
}

/* Decides on update s->decided, at `time` (gd_update_report). The norm is that of the gradients
 * without the loss scale; both factors, one a power of two, are one product for the update
 * kernels. */
GD_DECIDE void gd_decide(gd_update_state *s, gd_update_slot *slots, const gd_update_rule *rule,
                         bool fault, double time)
{
    gd_update_slot *slot = &slots[s->decided % GD_UPDATE_SLOTS];
    const double scale = rule->measured ? (double)s->scale.factor : 1;
    const double norm = rule->measured ? sqrt(s->squares) / scale : (double)NAN;
    const double clip = rule->max_norm / (norm + 1e-6);
    const gd_update_outcome outcome = gd_outcome_of(s, rule->measured, norm, fault);
    const double rate = *(const volatile double *)&slot->rate;
    const gd_update_report report = {s->decided, outcome, s->loss, norm, rate, scale, time};
    slot->report = report;

    s->apply = outcome == GD_UPDATE_MADE;
    s->halted = s->halted || outcome == GD_UPDATE_NOT_FINITE;
    s->factor = rule->max_norm > 0 && clip < 1 ? clip / scale : 1 / scale;
    s->rate = rate;
    s->decided++;
    s->made += s->apply;
    s->loss = 0;
    if (s->apply || outcome == GD_UPDATE_OVERFLOWED) gd_adapt_scale(&s->scale, !s->apply);
}

/* Counts the update among those of counts[i], if it is made and is one of theirs. */
GD_DECIDE void gd_count_update(const gd_update_state *s, const gd_update_rule *rule, int i)
{
    if (!s->apply || !(rule->trained >> i & 1)) return;
    gd_update_count *count = &rule->counts[i];
    const double t = (double)++count->made;
    count->rate_by_bias1 = s->rate / (1 - pow(rule->beta1, t));
    count->root_by_bias2 = 1 / sqrt(1 - pow(rule->beta2, t));
}

#endif
