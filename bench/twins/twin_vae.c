/* twin_vae.c - a variational autoencoder (Kingma & Welling 2013). */
#include "twin.h"

enum { B = 64, IN = 64, HIDDEN = 128, CODE = 8, STEPS = 100 };

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_mlp encoder = gd_make_mlp(p, 0, 2, (int64_t[]){IN, HIDDEN, 2 * CODE}, "encoder");
    const gd_mlp decoder = gd_make_mlp(p, 0, 2, (int64_t[]){CODE, HIDDEN, IN}, "decoder");
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *images = twin_ints(ctx, 1, 2, GD_SHAPE(STEPS * B, IN));
    gd_tensor *noise = twin_floats(ctx, 2, 1.7, GD_SHAPE(STEPS * B, CODE));
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *x = gd_cast(gd_narrow(images, 0, step * B, B), GD_FLOAT32);
        gd_tensor *both = gd_run_mlp(&encoder, x, gd_relu);
        gd_tensor *mean = gd_narrow(both, 1, 0, CODE), *log_var = gd_narrow(both, 1, CODE, CODE);
        gd_tensor *wide = gd_exp(gd_scale(log_var, 0.5));
        gd_tensor *code = gd_add(mean, gd_mul(wide, gd_narrow(noise, 0, step * B, B)));
        gd_tensor *pixels =
            gd_bce_with_logits(gd_run_mlp(&decoder, code, gd_relu), x, NULL, GD_SUM);
        gd_tensor *spread = gd_sub(gd_add(gd_mul(mean, mean), gd_exp(log_var)), log_var);
        gd_tensor *off = gd_scale(gd_sum_all(gd_add_scalar(spread, -1)), 0.5);
        gd_tensor *loss = gd_scale(gd_add(pixels, off), 1. / B);
        twin_update(adamw, 0.002, p, loss);
    }
    return twin_end(p, adamw);
}
