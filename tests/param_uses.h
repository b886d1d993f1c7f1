/* param_uses.h - the ways in which an op can use a parameter, for tests of its gradient. */
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

#endif
