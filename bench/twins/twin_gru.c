/* twin_gru.c - a GRU reads letters, each a vector with a single 1, and says what comes next. */
#include "twin.h"

enum { B = 32, T = 50, H = 128, LETTERS = 64, STEPS = 20 };

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_rnn_layers gru = gd_make_rnn(p, 0, 3, LETTERS, H, 1, "gru");
    const gd_linear_layer out = gd_make_linear(p, 0, H, LETTERS, "out");
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *letters = twin_ints(ctx, 1, LETTERS, GD_SHAPE(STEPS * B, T));
    gd_tensor *next = twin_ints(ctx, 2, LETTERS, GD_SHAPE(STEPS * B, T));
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *x = gd_one_hot(gd_narrow(letters, 0, step * B, B), LETTERS, GD_FLOAT32);
        gd_tensor *h = gd_run_gru(&gru, x, NULL, NULL);
        gd_tensor *wanted = gd_narrow(next, 0, step * B, B);
        twin_update(adamw, 0.005, p, gd_cross_entropy(gd_run_linear(&out, h), wanted));
    }
    return twin_end(p, adamw);
}
