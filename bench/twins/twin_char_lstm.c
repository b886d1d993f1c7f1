/* twin_char_lstm.c - an LSTM reads sums, letter by letter, in stretches, and writes some.
 * twin_char_lstm.py is the same in PyTorch. */
#include <gradus/gradus.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { B = 16, T = 64, H = 128, STEPS = 150, ROW = STEPS * T + 1, MADE = 60 };

typedef struct net {
    gd_linear_layer table, out;
    gd_rnn_layers lstm;
} net;

/* ids [B, T], state and cell [2, B, H] or NULL -> logits [B, T, 128]; what they are
 * then, in last */
static gd_tensor *forward(const net *n, gd_tensor *ids, gd_tensor *state[2], gd_tensor *last[2])
{
    gd_tensor *x = gd_run_embedding(&n->table, ids);
    return gd_run_linear(&n->out, gd_run_lstm(&n->lstm, x, state[0], state[1], &last[0], &last[1]));
}

int main(void)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1, .threads = 1});
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const net n = {gd_make_embedding(p, 128, H, "table"), gd_make_linear(p, 0, H, 128, "out"),
                   gd_make_rnn(p, 0, 4, H, H, 2, "lstm")};
    gd_params_finish(p);
    gd_optimizer *adamw = gd_adamw_create(p, NULL);
    static int32_t letters[B * ROW + 32];
    for (int at = 0, length; at < B * ROW; at += length) {
        char sum[32];
        const int a = rand() % 20, b = rand() % 20;
        length = snprintf(sum, sizeof sum, "%d+%d=%d\n", a, b, a + b);
        for (int i = 0; i < length; i++) letters[at + i] = sum[i];
    }
    gd_tensor *rows = gd_tensor_wrap(ctx, GD_INT32, GD_SHAPE(B, ROW), letters);
    gd_tensor *state[2], *last[2], *one[2];
    for (int i = 0; i < 2; i++) {
        state[i] = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, B, H));
        one[i] = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 1, H));
    }
    double nats = 0;
    const clock_t start = clock();
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *logits = forward(&n, gd_narrow(rows, 1, step * T, T), state, last);
        for (int i = 0; i < 2; i++) gd_keep(last[i]);
        gd_tensor *loss = gd_cross_entropy(logits, gd_narrow(rows, 1, step * T + 1, T));
        gd_backward(loss);
        nats = gd_item(loss);
        for (int i = 0; i < 2; i++) gd_tensor_copy(state[i], last[i]);
        gd_clip_grad_norm(p, 1, NULL);
        gd_optimizer_step(adamw, 0.005);
        gd_params_clear_grads(p);
        gd_step_end(ctx);
    }
    const double ms = 1000. * (double)(clock() - start) / CLOCKS_PER_SEC / STEPS;
    int32_t made[MADE];
    gd_tensor *id = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(1, 1), (int32_t[]){'\n'});
    gd_no_grad_begin(ctx);
    for (int i = 0; i < MADE && !gd_error(ctx); i++) {
        gd_tensor_copy(id, gd_multinomial(gd_softmax(forward(&n, id, one, last), -1)));
        gd_tensor_read(id, &made[i], sizeof made[i]);
        for (int k = 0; k < 2; k++) gd_tensor_copy(one[k], last[k]);
        gd_step_end(ctx);
    }
    gd_no_grad_end(ctx);
    for (int i = 0; i < MADE; i++) putchar(made[i]);
    printf("\n%.3f nats a letter, %.2f ms a step\n", nats, ms);
    if (gd_error(ctx)) printf("%s\n", gd_error(ctx));
    gd_optimizer_free(adamw), gd_params_free(p), gd_context_free(ctx);
    return nats > 0 && nats < 1.3 ? 0 : 1;
}
