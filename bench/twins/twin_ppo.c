/* twin_ppo.c - a policy that pushes carts takes small steps to what went better than its critic
 * expected (Schulman et al. 2017). */
#include "twin.h"

#include <string.h>

enum { CARTS = 8, TIMES = 64, ALL = 512, B = 64, EPOCHS = 4, ROUNDS = 5 };

static float carts[CARTS][4], seen[ALL][4], logs[ALL], gain[ALL], worth[ALL], value[ALL + CARTS];
static int32_t pushes[ALL];

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_mlp policy = gd_make_mlp(p, 0, 3, (int64_t[]){4, 64, 64, 2}, "policy");
    const gd_mlp critic = gd_make_mlp(p, 0, 3, (int64_t[]){4, 64, 64, 1}, "critic");
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *now = gd_tensor_wrap(ctx, GD_FLOAT32, GD_SHAPE(CARTS, 4), carts);
    gd_tensor *states = gd_tensor_wrap(ctx, GD_FLOAT32, GD_SHAPE(ALL, 4), seen);
    gd_tensor *push = gd_tensor_wrap(ctx, GD_INT32, GD_SHAPE(ALL), pushes);
    gd_tensor *logp = gd_tensor_wrap(ctx, GD_FLOAT32, GD_SHAPE(ALL), logs);
    gd_tensor *gains = gd_tensor_wrap(ctx, GD_FLOAT32, GD_SHAPE(ALL), gain);
    gd_tensor *returns = gd_tensor_wrap(ctx, GD_FLOAT32, GD_SHAPE(ALL, 1), worth);
    for (int round = 0; round < ROUNDS && !gd_error(ctx); round++) {
        bool over[ALL];
        for (int t = 0; t <= TIMES; t++) {
            float chance[CARTS][2];
            gd_no_grad_begin(ctx);
            gd_tensor_read(gd_softmax(gd_run_mlp(&policy, now, gd_tanh), -1), chance,
                           sizeof chance);
            gd_tensor_read(gd_run_mlp(&critic, now, gd_tanh), value + t * CARTS,
                           sizeof(float[CARTS]));
            gd_no_grad_end(ctx), gd_step_end(ctx);
            for (int i = 0; i < CARTS && t < TIMES; i++) {
                const int k = t * CARTS + i;
                const uint32_t at = (uint32_t)(round * ALL + k);
                pushes[k] = twin_number(1, at) < (double)chance[i][1];
                logs[k] = logf(chance[i][pushes[k]]);
                memcpy(seen[k], carts[i], sizeof carts[i]);
                over[k] = twin_push(carts[i], pushes[k], 3 + at);
            }
        }
        for (int k = ALL - 1; k >= 0; k--) { /* generalized advantages */
            const float next = over[k] ? 0 : 0.99f, later = k + CARTS < ALL ? gain[k + CARTS] : 0;
            gain[k] = 1 + next * value[k + CARTS] - value[k] + next * 0.95f * later;
            worth[k] = gain[k] + value[k];
        }
        for (int i = 0; i < EPOCHS * ALL && !gd_error(ctx); i += B) {
            const int first = i % ALL;
            gd_tensor *x = gd_narrow(states, 0, first, B), *better = gd_narrow(gains, 0, first, B);
            const gd_cross_entropy_options each = {.reduction = GD_NONE};
            gd_tensor *less = gd_cross_entropy_with(gd_run_mlp(&policy, x, gd_tanh),
                                                    gd_narrow(push, 0, first, B), &each);
            gd_tensor *ratio = gd_exp(gd_neg(gd_add(less, gd_narrow(logp, 0, first, B))));
            gd_tensor *held = gd_mul(gd_clamp(ratio, 0.8, 1.2), better);
            gd_tensor *moved = gd_mean_all(gd_minimum(gd_mul(ratio, better), held));
            gd_tensor *off = gd_mse_loss(gd_run_mlp(&critic, x, gd_tanh),
                                         gd_narrow(returns, 0, first, B), GD_MEAN);
            gd_tensor *loss = gd_sub(gd_scale(off, 0.001), moved);
            twin_update(adamw, 0.002, p, loss);
        }
    }
    return twin_end(p, adamw);
}
