/* param_uses.h - the ways in which an op can use a parameter, for tests of its gradient, and the
 * optimizers that can move it. */
#ifndef GRADUS_TEST_PARAM_USES_H
#define GRADUS_TEST_PARAM_USES_H

#include "gradus/gradus.h"

enum { PARAM_USES = 9, PARAM_ROWS = 6, PARAM_WIDTH = 8 };

static inline gd_tensor *param_segment(void *user, gd_tensor *const *inputs, int count)
{
    (void)count;
    return gd_linear(inputs[0], user, NULL);
}

/* w [WIDTH, WIDTH] and v [WIDTH] are parameters; x [ROWS, WIDTH] and ids [ROWS] are not. */
static inline gd_tensor *param_use(gd_context *ctx, int use, gd_tensor *w, gd_tensor *v,
                                   gd_tensor *x, gd_tensor *ids)
{
    const gd_rms_norm_options norm = {.eps = 1e-5};
    gd_tensor *sum;
    switch (use) {
    case 0:
        return gd_linear(x, w, v);
    case 1:
        return gd_embedding(w, ids);
    case 2:
        return gd_linear(gd_embedding(w, ids), w, NULL); /* tied: two gradients are added */
    case 3:
        return gd_rms_norm_with(x, v, v, &norm);
    case 4:
        return gd_add_rms_norm(x, x, v, NULL, &norm, &sum);
    case 5:
        return gd_layer_norm(x, v, v, 1e-5);
    case 6:
        return gd_matmul(x, gd_mul(w, w));
    case 7:
        return gd_add(gd_cast(gd_matmul(x, w), GD_FLOAT32), gd_cast(v, GD_FLOAT32));
    default:
        return gd_recompute(ctx, param_segment, w, &x, 1);
    }
}

/* Whether several gradients are added up, or one passes through another op. */
static inline bool param_use_is_long(int use)
{
    return use == 2 || use == 3 || use == 5 || use == 6;
}

enum { OPTIMIZER_KINDS = 10 };

static inline gd_optimizer *optimizer_of_kind(gd_params *params, int kind)
{
    switch (kind) {
    case 0:
        return gd_sgd_create(params, NULL);
    case 1:
        return gd_sgd_create(
            params, &(gd_sgd_options){.momentum = 0.9, .nesterov = true, .weight_decay = 0.1});
    case 2:
        return gd_adamw_create(params, NULL);
    case 3:
        return gd_adamw_create(params, &(gd_adamw_options){.beta2 = 0.99, .weight_decay = 0.1});
    case 4:
        return gd_adam_create(params, &(gd_adam_options){.weight_decay = 0.1});
    case 5:
        return gd_rmsprop_create(params, NULL);
    case 6:
        return gd_rmsprop_create(
            params, &(gd_rmsprop_options){
                        .momentum = 0.9, .weight_decay = 0.1, .centered = true, .eps = 1e-3});
    case 7:
        return gd_adagrad_create(
            params, &(gd_adagrad_options){.rate_decay = 0.01, .initial = 0.1, .weight_decay = 0.1});
    case 8:
        return gd_lion_create(params, &(gd_lion_options){.weight_decay = 0.1});
    default: /* AdamW where there is no matrix */
        return gd_muon_create(params, &(gd_muon_options){.weight_decay = 0.1, .adamw_rate = 0.5});
    }
}

#endif
