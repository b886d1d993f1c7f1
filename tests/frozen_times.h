/* frozen_times.h - parameters that are frozen in some updates, beside groups of their own that are
 * updated in the others only: each parameter has states, and a count of updates, of its own. */
#ifndef GRADUS_TEST_FROZEN_TIMES_H
#define GRADUS_TEST_FROZEN_TIMES_H

#include "param_group.h"
#include "optimizer_kinds.h"

enum { FROZEN_UPDATES = 12 };

/* Whether update s changes parameter i: from the first, from the fifth, on and off, between, at
 * both ends. */
static inline bool trained_in(int i, int s)
{
    static const unsigned updates[PARAMETERS] = {0xfff, 0xff0, 0xa5c, 0x0f8, 0x801};
    return updates[i] >> s & 1;
}

/* The gradients of update s, and the update. */
static inline void frozen_update(gd_params *params, gd_optimizer *optimizer, const double *grads)
{
    gd_params_clear_grads(params);
    for (int i = 0; i < gd_params_count(params); i++) {
        gd_tensor *t = gd_params_at(params, i);
        if (gd_tensor_requires_grad(t)) give_grad(t, grads);
        grads += gd_tensor_count(t);
    }
    gd_optimizer_step(optimizer, 0.01);
}

static inline void ck_assert_frozen_as_alone(gd_context *ctx, gd_dtype dtype, int kind)
{
    double start[TOTAL], grads[TOTAL], got[TOTAL], want[TOTAL];
    gd_params *together = group(ctx, dtype);
    gd_optimizer *optimizer = optimizer_of_kind(together, kind);
    some_numbers(start, TOTAL, 3);
    write_all(together, start);
    for (int s = 0; s < FROZEN_UPDATES; s++) {
        for (int i = 0; i < PARAMETERS; i++)
            gd_tensor_set_requires_grad(gd_params_at(together, i), trained_in(i, s));
        some_numbers(grads, TOTAL, s);
        frozen_update(together, optimizer, grads);
    }
    read_all(together, got);
    for (int i = 0, at = 0; i < PARAMETERS; i++) {
        gd_params *alone = gd_params_create(ctx, dtype);
        gd_tensor *t = gd_params_add(alone, parameter[i].name, parameter[i].ndim,
                                     parameter[i].shape, parameter[i].flags);
        gd_params_finish(alone);
        gd_optimizer *own = optimizer_of_kind(alone, kind);
        write_all(alone, start + at);
        for (int s = 0; s < FROZEN_UPDATES; s++) {
            some_numbers(grads, TOTAL, s);
            if (trained_in(i, s)) frozen_update(alone, own, grads + at);
        }
        read_all(alone, want);
        for (int64_t k = 0; k < gd_tensor_count(t); k++)
            ck_assert_msg(got[at + k] == want[k], "%s[%lld] is %.9g, alone %.9g", parameter[i].name,
                          (long long)k, got[at + k], want[k]);
        at += (int)gd_tensor_count(t);
        gd_optimizer_free(own);
        gd_params_free(alone);
    }
    ck_assert_no_error(ctx);
    gd_optimizer_free(optimizer);
    gd_params_free(together);
}

#endif
