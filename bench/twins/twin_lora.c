/* twin_lora.c - a network learns by a few numbers more: its weights W are frozen, and W + B A is
 * learned, where A and B are thin (Hu et al. 2021). */
#include "twin.h"

enum { B = 128, RANK = 8, LAYERS = 3, STEPS = 100 };
static const int64_t widths[] = {64, 128, 128, 10};

typedef struct layer {
    gd_linear_layer base, a, b;
} layer;

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    layer l[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        const int64_t in = widths[i], out = widths[i + 1];
        l[i].base = gd_make_linear(p, 0, in, out, gd_format("%d", i).text);
        l[i].a = gd_make_linear(p, GD_NO_BIAS, in, RANK, gd_format("%d.a", i).text);
        l[i].b = gd_make_linear(p, GD_NO_BIAS, RANK, out, gd_format("%d.b", i).text);
    }
    twin_init(p);
    for (int i = 0; i < LAYERS; i++) {
        gd_tensor_set_requires_grad(l[i].base.weight, false);
        gd_tensor_set_requires_grad(l[i].base.bias, false);
        gd_tensor_fill(l[i].b.weight, 0);
    }
    gd_optimizer *adamw = gd_adamw_create(p, NULL);
    gd_tensor *points = twin_floats(ctx, 1, 1, GD_SHAPE(STEPS * B, widths[0]));
    gd_tensor *labels = twin_ints(ctx, 2, 10, GD_SHAPE(STEPS * B));
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *x = gd_narrow(points, 0, step * B, B);
        for (int i = 0; i < LAYERS; i++) {
            gd_tensor *y = gd_run_linear(&l[i].b, gd_run_linear(&l[i].a, x));
            y = gd_add(gd_run_linear(&l[i].base, x), y);
            x = i + 1 < LAYERS ? gd_relu(y) : y;
        }
        gd_tensor *loss = gd_cross_entropy(x, gd_narrow(labels, 0, step * B, B));
        twin_update(adamw, 0.004, p, loss);
    }
    return twin_end(p, adamw);
}
