/* twin_unet.c - a U-Net marks what is bright in noisy images of 16 x 16 (Ronneberger et
 * al. 2015). */
#include "twin.h"

enum { B = 16, STEPS = 60, SIDE = 16, LEVELS = 3 };

static gd_conv_layer conv(gd_params *p, int64_t in, int64_t out, const char *name)
{
    const gd_conv_options same = {.padding = {1, 1}};
    return gd_make_conv(p, 0, gd_conv2d, in, out, 3, 3, &same, name);
}

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_conv_options twice = {.stride = {2, 2}};
    gd_conv_layer down[LEVELS], up[LEVELS], join[LEVELS];
    for (int i = 0; i < LEVELS; i++)
        down[i] = conv(p, i ? 8 << i : 1, 16 << i, gd_format("down.%d", i).text);
    for (int i = 0; i < LEVELS - 1; i++)
        up[i] = gd_make_conv(p, 0, gd_conv_transpose2d, 32 << i, 16 << i, 2, 2, &twice,
                             gd_format("up.%d", i).text);
    for (int i = 0; i < LEVELS - 1; i++)
        join[i] = conv(p, 32 << i, 16 << i, gd_format("join.%d", i).text);
    const gd_conv_layer out = conv(p, 16, 1, "out");
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *images = twin_floats(ctx, 1, 1, GD_SHAPE(STEPS * B, 1, SIDE, SIDE));
    gd_tensor *zero = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1));
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *image = gd_narrow(images, 0, step * B, B), *x = image, *skip[LEVELS];
        for (int i = 0; i < LEVELS; i++) {
            if (i) x = gd_max_pool2d(x, &(gd_pool_options){.kernel = {2, 2}});
            skip[i] = x = gd_relu(gd_run_conv(&down[i], x));
        }
        for (int i = LEVELS - 1; i-- > 0;) {
            gd_tensor *both[] = {gd_run_conv(&up[i], x), skip[i]};
            x = gd_relu(gd_run_conv(&join[i], gd_concat(both, 2, 1)));
        }
        gd_tensor *bright = gd_cast(gd_gt(image, zero), GD_FLOAT32);
        gd_tensor *loss = gd_bce_with_logits(gd_run_conv(&out, x), bright, NULL, GD_MEAN);
        twin_update(adamw, 0.002, p, loss);
    }
    return twin_end(p, adamw);
}
