/* twin_wgan.c - a critic of points, with a penalty for gradients of another norm than 1 (Gulrajani
 * et al. 2017). */
#include "twin.h"

enum { B = 128, STEPS = 30 };

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_mlp critic = gd_make_mlp(p, 0, 4, (int64_t[]){2, 256, 256, 256, 1}, "");
    gd_optimizer *adamw = twin_adamw(p);
    const gd_gradients_options again = {.differentiable = true};
    gd_tensor *real = twin_floats(ctx, 1, 1, GD_SHAPE(B, 2));
    gd_tensor *made = twin_floats(ctx, 2, 2, GD_SHAPE(B, 2));
    gd_tensor *between = twin_floats(ctx, 3, 1.5, GD_SHAPE(B, 2));
    gd_tensor_set_requires_grad(between, true);
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *score = gd_run_mlp(&critic, between, gd_softplus), *slope = NULL;
        gd_gradients(&score, 1, &again, &between, 1, &slope);
        gd_tensor *off = gd_add_scalar(gd_norm(slope, 2, (int[]){1}, 1, false), -1);
        gd_tensor *penalty = gd_scale(gd_mean_all(gd_mul(off, off)), 10);
        gd_tensor *loss = gd_sub(gd_mean_all(gd_run_mlp(&critic, made, gd_softplus)),
                                 gd_mean_all(gd_run_mlp(&critic, real, gd_softplus)));
        twin_update(adamw, 0.001, p, gd_add(loss, penalty));
    }
    return twin_end(p, adamw);
}
