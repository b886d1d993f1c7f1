/* twin_gan.c - a generator makes points of a ring, and a critic tells them from true ones. */
#include "twin.h"

enum { B = 64, STEPS = 200 };

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p[2] = {gd_params_create(ctx, GD_FLOAT32), gd_params_create(ctx, GD_FLOAT32)};
    const gd_mlp generator = gd_make_mlp(p[0], 0, 3, (int64_t[]){8, 64, 64, 2}, "");
    const gd_mlp critic = gd_make_mlp(p[1], 0, 3, (int64_t[]){2, 64, 64, 1}, "");
    gd_optimizer *adamw[2] = {twin_adamw(p[0]), twin_adamw(p[1])};
    gd_tensor *noise = twin_floats(ctx, 1, 1, GD_SHAPE(STEPS * B, 8));
    gd_tensor *at = twin_floats(ctx, 2, 3.14159, GD_SHAPE(STEPS * B, 1));
    gd_tensor *zero = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(B, 1));
    gd_tensor *one = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(B, 1));
    gd_tensor_fill(one, 1);
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *turn = gd_narrow(at, 0, step * B, B);
        gd_tensor *real = gd_concat((gd_tensor *[]){gd_cos(turn), gd_sin(turn)}, 2, 1);
        gd_tensor *fake = gd_run_mlp(&generator, gd_narrow(noise, 0, step * B, B), gd_relu);
        gd_tensor *seen = gd_run_mlp(&critic, real, gd_relu);
        gd_tensor *made = gd_run_mlp(&critic, gd_keep(gd_detach(fake)), gd_relu);
        gd_tensor *loss = gd_add(gd_bce_with_logits(seen, one, NULL, GD_MEAN),
                                 gd_bce_with_logits(made, zero, NULL, GD_MEAN));
        gd_backward(loss);
        gd_optimizer_step(adamw[1], 0.002);
        made = gd_run_mlp(&critic, fake, gd_relu);
        gd_backward(gd_bce_with_logits(made, one, NULL, GD_MEAN));
        gd_optimizer_step(adamw[0], 0.002);
        for (int i = 0; i < 2; i++) gd_params_clear_grads(p[i]);
        twin_step(loss);
        gd_step_end(ctx);
    }
    gd_optimizer_free(adamw[0]), gd_params_free(p[0]);
    return twin_end(p[1], adamw[1]);
}
