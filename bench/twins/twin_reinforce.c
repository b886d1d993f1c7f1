/* twin_reinforce.c - pushes of a cart become likelier as what came after them was better
 * (Williams 1992). */
#include "twin.h"

#include <string.h>

enum { N = 200, STEPS = 20 };

static float carts[N][4], gain[N];
static int32_t pushes[N];

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_mlp net = gd_make_mlp(p, 0, 2, (int64_t[]){4, 64, 2}, "");
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *x = gd_tensor_wrap(ctx, GD_FLOAT32, GD_SHAPE(N, 4), carts);
    gd_tensor *push = gd_tensor_wrap(ctx, GD_INT32, GD_SHAPE(N), pushes);
    gd_tensor *worth = gd_tensor_wrap(ctx, GD_FLOAT32, GD_SHAPE(N), gain);
    float cart[4] = {0}, chance[2] = {0};
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        bool over[N];
        for (int t = 0; t < N; t++) {
            memcpy(carts[t], cart, sizeof cart);
            gd_no_grad_begin(ctx);
            gd_tensor *logits = gd_run_mlp(&net, gd_narrow(x, 0, t, 1), gd_tanh);
            gd_tensor_read(gd_softmax(logits, -1), chance, sizeof chance);
            gd_no_grad_end(ctx), gd_step_end(ctx);
            const uint32_t at = (uint32_t)(step * N + t);
            pushes[t] = twin_number(1, at) < (double)chance[1];
            over[t] = twin_push(cart, pushes[t], 3 + at);
        }
        double after = 0;
        for (int t = N; t-- > 0;) gain[t] = (float)(after = 1 + (over[t] ? 0 : 0.97 * after));
        gd_tensor *logits = gd_run_mlp(&net, x, gd_tanh);
        const gd_cross_entropy_options each = {.reduction = GD_NONE};
        gd_tensor *unlikely = gd_cross_entropy_with(logits, push, &each);
        gd_tensor *better = gd_sub(worth, gd_mean_all(worth));
        gd_tensor *loss = gd_mean_all(gd_mul(unlikely, better));
        twin_update(adamw, 0.01, p, loss);
    }
    return twin_end(p, adamw);
}
