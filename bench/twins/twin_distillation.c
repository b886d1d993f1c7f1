/* twin_distillation.c - a small network learns from labels and from what a large one thinks (Hinton
 * et al. 2015). */
#include "twin.h"

enum { B = 128, IN = 64, OUT = 10, STEPS = 100 };

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p[2] = {gd_params_create(ctx, GD_FLOAT32), gd_params_create(ctx, GD_FLOAT32)};
    const gd_mlp teacher = gd_make_mlp(p[0], 0, 3, (int64_t[]){IN, 256, 256, OUT}, "");
    const gd_mlp student = gd_make_mlp(p[1], 0, 2, (int64_t[]){IN, 32, OUT}, "");
    twin_init(p[0]);
    gd_optimizer *adamw = twin_adamw(p[1]);
    gd_tensor *points = twin_floats(ctx, 1, 1, GD_SHAPE(STEPS * B, IN));
    gd_tensor *labels = twin_ints(ctx, 2, OUT, GD_SHAPE(STEPS * B));
    const double warm = 4; /* the temperature */
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *x = gd_narrow(points, 0, step * B, B);
        gd_no_grad_begin(ctx);
        gd_tensor *wanted = gd_softmax(gd_scale(gd_run_mlp(&teacher, x, gd_relu), 1 / warm), -1);
        gd_no_grad_end(ctx);
        gd_tensor *y = gd_run_mlp(&student, x, gd_relu);
        gd_tensor *soft = gd_log_softmax(gd_scale(y, 1 / warm), -1);
        gd_tensor *off = gd_scale(gd_kl_div(soft, wanted, false, GD_BATCHMEAN), warm * warm);
        gd_tensor *loss = gd_add(off, gd_cross_entropy(y, gd_narrow(labels, 0, step * B, B)));
        twin_update(adamw, 0.003, p[1], loss);
    }
    gd_params_free(p[0]);
    return twin_end(p[1], adamw);
}
