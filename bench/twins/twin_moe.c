/* twin_moe.c - a mixture of experts: two of eight for each point, in parts that a gate says
 * (Shazeer et al. 2017). */
#include "twin.h"

enum { B = 128, IN = 32, OUT = 10, EXPERTS = 8, CHOSEN = 2, STEPS = 100 };

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_linear_layer gate = gd_make_linear(p, 0, IN, EXPERTS, "gate");
    gd_mlp experts[EXPERTS];
    for (int i = 0; i < EXPERTS; i++)
        experts[i] =
            gd_make_mlp(p, 0, 2, (int64_t[]){IN, 64, OUT}, gd_format("experts.%d", i).text);
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *points = twin_floats(ctx, 1, 1, GD_SHAPE(STEPS * B, IN));
    gd_tensor *labels = twin_ints(ctx, 2, OUT, GD_SHAPE(STEPS * B));
    gd_tensor *zeros = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(B, EXPERTS));
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *x = gd_narrow(points, 0, step * B, B), *y[EXPERTS], *which;
        gd_tensor *score = gd_topk(gd_run_linear(&gate, x), CHOSEN, -1, true, &which);
        gd_tensor *part = gd_scatter_add(zeros, 1, which, gd_softmax(score, -1)); /* [B, EXPERTS] */
        for (int i = 0; i < EXPERTS; i++) y[i] = gd_run_mlp(&experts[i], x, gd_relu);
        gd_tensor *all = gd_stack(y, EXPERTS, 1); /* [B, EXPERTS, OUT] */
        gd_tensor *logits = gd_squeeze(gd_matmul(gd_unsqueeze(part, 1), all), 1);
        gd_tensor *loss = gd_cross_entropy(logits, gd_narrow(labels, 0, step * B, B));
        twin_update(adamw, 0.003, p, loss);
    }
    return twin_end(p, adamw);
}
