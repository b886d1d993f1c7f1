/* twin_word2vec.c - vectors of words from their neighbours, beside five that are none (Mikolov et
 * al. 2013). */
#include "twin.h"

enum { V = 5000, C = 64, B = 512, OTHERS = 6, STEPS = 50 };

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_linear_layer word = gd_make_embedding(p, V, C, "word");
    const gd_linear_layer context = gd_make_embedding(p, V, C, "context");
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *words = twin_ints(ctx, 1, V, GD_SHAPE(STEPS * B, 1));
    gd_tensor *others = twin_ints(ctx, 2, V, GD_SHAPE(STEPS * B, OTHERS)); /* the first is near */
    gd_tensor *near = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(B, 1, OTHERS));
    gd_tensor_fill(gd_narrow(near, 2, 0, 1), 1);
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *u = gd_run_embedding(&word, gd_narrow(words, 0, step * B, B));
        gd_tensor *v = gd_run_embedding(&context, gd_narrow(others, 0, step * B, B));
        gd_tensor *score = gd_matmul_with(u, v, false, true); /* [B, 1, OTHERS] */
        gd_tensor *loss = gd_bce_with_logits(score, near, NULL, GD_MEAN);
        twin_update(adamw, 0.01, p, loss);
    }
    return twin_end(p, adamw);
}
