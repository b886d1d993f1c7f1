/* twin_resnet.c - a residual network of 78,000 parameters on images of 8 x 8 (He et al. 2015). */
#include "twin.h"

enum { B = 50, STEPS = 60, BLOCKS = 3 };

typedef struct block {
    gd_conv_layer first, second, skip;
    gd_norm_layer norm1, norm2, norm_skip;
} block;

static gd_conv_layer conv(gd_params *p, int64_t in, int64_t out, int64_t side, int64_t stride,
                          const char *name)
{
    const gd_conv_options o = {.stride = {stride, stride}, .padding = {side / 2, side / 2}};
    return gd_make_conv(p, GD_NO_BIAS, gd_conv2d, in, out, side, side, &o, name);
}

static block make(gd_params *p, int64_t in, int64_t out, const char *name)
{
    block b = {.first = conv(p, in, out, 3, in < out ? 2 : 1, gd_format("%s.first", name).text)};
    b.norm1 = gd_make_norm(p, GD_BATCH_NORM, 0, out, gd_format("%s.norm1", name).text);
    b.second = conv(p, out, out, 3, 1, gd_format("%s.second", name).text);
    b.norm2 = gd_make_norm(p, GD_BATCH_NORM, 0, out, gd_format("%s.norm2", name).text);
    if (in == out) return b;
    b.skip = conv(p, in, out, 1, 2, gd_format("%s.skip", name).text);
    b.norm_skip = gd_make_norm(p, GD_BATCH_NORM, 0, out, gd_format("%s.norm_skip", name).text);
    return b;
}

static gd_tensor *run(const block *b, gd_tensor *x)
{
    gd_tensor *y = gd_relu(gd_run_norm(&b->norm1, gd_run_conv(&b->first, x), false));
    y = gd_run_norm(&b->norm2, gd_run_conv(&b->second, y), false);
    if (b->skip.weight) x = gd_run_norm(&b->norm_skip, gd_run_conv(&b->skip, x), false);
    return gd_relu(gd_add(y, x));
}

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_conv_layer stem = conv(p, 1, 16, 3, 1, "stem");
    const gd_norm_layer norm = gd_make_norm(p, GD_BATCH_NORM, 0, 16, "norm");
    block blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = make(p, i ? 8 << i : 16, 16 << i, gd_format("blocks.%d", i).text);
    const gd_linear_layer out = gd_make_linear(p, 0, 64, 10, "out");
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *images = twin_floats(ctx, 1, 1, GD_SHAPE(STEPS * B, 1, 8, 8));
    gd_tensor *labels = twin_ints(ctx, 2, 10, GD_SHAPE(STEPS * B));
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *x = gd_run_conv(&stem, gd_narrow(images, 0, step * B, B));
        x = gd_relu(gd_run_norm(&norm, x, false));
        for (int i = 0; i < BLOCKS; i++) x = run(&blocks[i], x);
        x = gd_mean(x, (int[]){2, 3}, 2, false);
        gd_tensor *loss =
            gd_cross_entropy(gd_run_linear(&out, x), gd_narrow(labels, 0, step * B, B));
        twin_update(adamw, 0.001, p, loss);
    }
    return twin_end(p, adamw);
}
