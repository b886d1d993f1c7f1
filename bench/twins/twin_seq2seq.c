/* twin_seq2seq.c - a GRU reads letters, another writes, and looks at all that was read (Bahdanau et
 * al. 2014). */
#include "twin.h"

enum { B = 64, IN = 20, OUT = 10, H = 64, LETTERS = 128, STEPS = 60 };

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_linear_layer letters = gd_make_embedding(p, LETTERS, H, "letters");
    const gd_rnn_layers reader = gd_make_rnn(p, 0, 3, H, H, 1, "reader");
    const gd_rnn_layers writer = gd_make_rnn(p, 0, 3, H, H, 1, "writer");
    const gd_linear_layer key = gd_make_linear(p, GD_NO_BIAS, H, H, "key");
    const gd_linear_layer mix = gd_make_linear(p, 0, 2 * H, H, "mix");
    const gd_linear_layer out = gd_make_linear(p, 0, H, LETTERS, "out");
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *texts = twin_ints(ctx, 1, LETTERS, GD_SHAPE(STEPS * B, IN));
    gd_tensor *wanted = twin_ints(ctx, 2, LETTERS, GD_SHAPE(STEPS * B, OUT + 1));
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *text = gd_narrow(texts, 0, step * B, B), *last;
        gd_tensor *old = gd_narrow(gd_narrow(wanted, 0, step * B, B), 1, 0, OUT);
        gd_tensor *next = gd_narrow(gd_narrow(wanted, 0, step * B, B), 1, 1, OUT);
        gd_tensor *read = gd_run_gru(&reader, gd_run_embedding(&letters, text), NULL, &last);
        gd_tensor *h = gd_run_gru(&writer, gd_run_embedding(&letters, old), last, NULL);
        gd_tensor *at = gd_matmul_with(gd_run_linear(&key, h), read, false, true);
        gd_tensor *both[] = {h, gd_matmul(gd_softmax(at, -1), read)};
        h = gd_tanh(gd_run_linear(&mix, gd_concat(both, 2, -1)));
        gd_tensor *loss = gd_cross_entropy(gd_run_linear(&out, h), next);
        twin_update(adamw, 0.005, p, loss);
    }
    return twin_end(p, adamw);
}
