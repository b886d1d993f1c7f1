/* twin_dqn.c - a network learns what a push of a cart is worth, from what it has seen (Mnih et
 * al. 2013). */
#include "twin.h"

#include <string.h>

enum { B = 64, SEEN = 500, STEPS = 200 };

static float before[SEEN][4], after[SEEN][4], alive[SEEN];
static int32_t pushes[SEEN][1], batch[B];

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p[2] = {gd_params_create(ctx, GD_FLOAT32), gd_params_create(ctx, GD_FLOAT32)};
    gd_mlp net[2]; /* the one that learns, and as it was a while ago */
    for (int i = 0; i < 2; i++) {
        net[i] = gd_make_mlp(p[i], 0, 3, (int64_t[]){4, 64, 64, 2}, "");
        twin_init(p[i]);
    }
    gd_optimizer *adamw = gd_adamw_create(p[0], NULL);
    gd_tensor *x = gd_tensor_wrap(ctx, GD_FLOAT32, GD_SHAPE(SEEN, 4), before);
    gd_tensor *next = gd_tensor_wrap(ctx, GD_FLOAT32, GD_SHAPE(SEEN, 4), after);
    gd_tensor *goes_on = gd_tensor_wrap(ctx, GD_FLOAT32, GD_SHAPE(SEEN, 1), alive);
    gd_tensor *push = gd_tensor_wrap(ctx, GD_INT32, GD_SHAPE(SEEN, 1), pushes);
    gd_tensor *at = gd_tensor_wrap(ctx, GD_INT32, GD_SHAPE(B), batch);
    float cart[4] = {0}, value[2] = {0};
    for (int step = -B; step < STEPS && !gd_error(ctx); step++) {
        const int k = step + B;
        memcpy(before[k], cart, sizeof cart);
        gd_no_grad_begin(ctx);
        gd_tensor_read(gd_run_mlp(&net[0], gd_narrow(x, 0, k, 1), gd_relu), value, sizeof value);
        gd_no_grad_end(ctx), gd_step_end(ctx);
        const bool guess = twin_number(1, (uint32_t)k) < 0.2;
        pushes[k][0] = guess ? twin_number(2, (uint32_t)k) < 0.5 : value[1] > value[0];
        alive[k] = !twin_push(cart, pushes[k][0], 3 + (uint32_t)k);
        memcpy(after[k], cart, sizeof cart);
        if (step < 0) continue;
        for (int i = 0; i < B; i++)
            batch[i] = (int32_t)(twin_number(1000 + (uint32_t)k, (uint32_t)i) * (k + 1));
        if (step % 20 == 0)
            for (int i = 0; i < gd_params_count(p[0]); i++)
                gd_tensor_copy(gd_params_at(p[1], i), gd_params_at(p[0], i));
        gd_no_grad_begin(ctx);
        gd_tensor *most = gd_run_mlp(&net[1], gd_index_select(next, 0, at), gd_relu);
        most = gd_mul(gd_max(most, (int[]){1}, 1, true), gd_index_select(goes_on, 0, at));
        gd_tensor *worth = gd_add_scalar(gd_scale(most, 0.99), 1);
        gd_no_grad_end(ctx);
        gd_tensor *q = gd_run_mlp(&net[0], gd_index_select(x, 0, at), gd_relu);
        q = gd_gather(q, 1, gd_index_select(push, 0, at));
        gd_tensor *loss = gd_huber_loss(q, worth, 1, GD_MEAN);
        twin_update(adamw, 0.002, p[0], loss);
    }
    gd_params_free(p[1]);
    return twin_end(p[0], adamw);
}
