/* twin_diffusion.c - a network tells how much noise is in the points of a spiral (Ho et al. 2020);
 * its weights are averaged. */
#include "twin.h"

enum { B = 256, WIDE = 128, STEPS = 100 };
static const double pi = 3.141592653589793;

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_mlp net = gd_make_mlp(p, 0, 4, (int64_t[]){10, WIDE, WIDE, WIDE, 2}, "");
    gd_optimizer *adamw = twin_adamw(p);
    gd_optimizer_average(adamw, 0.995);
    gd_tensor *places = twin_floats(ctx, 1, 1, GD_SHAPE(STEPS * B, 1));
    gd_tensor *noises = twin_floats(ctx, 2, 1.7, GD_SHAPE(STEPS * B, 2));
    gd_tensor *times = twin_ints(ctx, 3, 100, GD_SHAPE(STEPS * B, 1));
    gd_tensor *octaves = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4), (float[]){1, 2, 4, 8});
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *u = gd_add_scalar(gd_scale(gd_narrow(places, 0, step * B, B), 0.5), 0.5);
        gd_tensor *angle = gd_scale(u, 3 * pi), *radius = gd_add_scalar(gd_scale(u, 1.5), 0.3);
        gd_tensor *way = gd_concat((gd_tensor *[]){gd_cos(angle), gd_sin(angle)}, 2, 1);
        gd_tensor *noise = gd_narrow(noises, 0, step * B, B);
        gd_tensor *t = gd_cast(gd_narrow(times, 0, step * B, B), GD_FLOAT32);
        t = gd_scale(gd_add_scalar(t, 1), pi / 200);
        gd_tensor *kept = gd_mul(gd_cos(t), gd_mul(radius, way)), *fast = gd_mul(t, octaves);
        gd_tensor *in[] = {gd_add(kept, gd_mul(gd_sin(t), noise)), gd_sin(fast), gd_cos(fast)};
        gd_tensor *made = gd_run_mlp(&net, gd_concat(in, 3, 1), gd_relu);
        gd_tensor *loss = gd_mse_loss(made, noise, GD_MEAN);
        twin_update(adamw, 0.003, p, loss);
    }
    return twin_end(p, adamw);
}
