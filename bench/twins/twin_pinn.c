/* twin_pinn.c - a net for Burgers' equation, u_t + u u_x = u_xx / 100: its loss has its own
 * derivatives (Raissi et al. 2019). */
#include "twin.h"

enum { POINTS = 512, STEPS = 40 };

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_mlp net = gd_make_mlp(p, 0, 4, (int64_t[]){2, 64, 64, 64, 1}, "");
    gd_optimizer *adamw = twin_adamw(p);
    const gd_gradients_options again = {.differentiable = true};
    gd_tensor *x = twin_floats(ctx, 1, 1, GD_SHAPE(POINTS, 2)); /* t and x of each point */
    gd_tensor_set_requires_grad(x, true);
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *u = gd_run_mlp(&net, x, gd_tanh), *slope = NULL, *second = NULL;
        gd_gradients(&u, 1, &again, &x, 1, &slope);
        gd_tensor *u_x = gd_narrow(slope, 1, 1, 1);
        gd_gradients(&u_x, 1, &again, &x, 1, &second);
        gd_tensor *left = gd_add(gd_narrow(slope, 1, 0, 1), gd_mul(u, u_x));
        gd_tensor *residual = gd_sub(left, gd_scale(gd_narrow(second, 1, 1, 1), 0.01));
        twin_update(adamw, 0.001, p, gd_mean_all(gd_mul(residual, residual)));
    }
    return twin_end(p, adamw);
}
