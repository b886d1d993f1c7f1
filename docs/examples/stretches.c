/* stretches.c - backpropagation through time, truncated: a GRU follows streams without an end, a
 * stretch at a time. Its state goes on from stretch to stretch, its gradient does not. A stream is mostly
 * 0; now and then comes a 1 or a -1, and what is wanted at each step is the sign of the last of these,
 * however long ago it came. */
#include <gradus/gradus.h>
#include <stdio.h>
#include <stdlib.h>

enum { STREAMS = 16, STRETCH = 8, HIDDEN = 16, STEPS = 1000 };

typedef struct learner {
    gd_params *params;
    gd_optimizer *adamw;
    gd_rnn_layers gru;
    gd_linear_layer out;
    gd_tensor *x, *wanted; /* [STREAMS, STRETCH, 1] */
    gd_tensor *state;      /* [1, STREAMS, HIDDEN], after the stretch before */
    bool carries;          /* otherwise every stretch begins with zeros */
    float sign[STREAMS];   /* of the last that was not 0 */
    unsigned seed;
} learner;

static gd_status step(void *user)
{
    learner *l = user;
    gd_tensor *last;
    gd_tensor *h = gd_run_gru(&l->gru, l->x, l->state, &last);
    gd_keep(last);
    gd_tensor *loss = gd_bce_with_logits(gd_run_linear(&l->out, h), l->wanted, NULL, GD_MEAN);
    gd_optimizer_backward(l->adamw, loss, 1);
    if (l->carries) gd_tensor_copy(l->state, last); /* values only: no gradient goes back */
    gd_optimizer_update(l->adamw, 1.0);
    return gd_params_clear_grads(l->params);
}

/* The next stretch of every stream. */
static void read_on(learner *l)
{
    float x[STREAMS][STRETCH], wanted[STREAMS][STRETCH];
    for (int s = 0; s < STREAMS; s++) {
        for (int t = 0; t < STRETCH; t++) {
            l->seed = l->seed * 1664525u + 1013904223u;
            const unsigned r = l->seed >> 16;
            x[s][t] = r % 12 ? 0 : r / 12 % 2 ? 1 : -1;
            if (x[s][t] != 0) l->sign[s] = x[s][t];
            wanted[s][t] = l->sign[s] > 0;
        }
    }
    gd_tensor_write(l->x, x, sizeof x);
    gd_tensor_write(l->wanted, wanted, sizeof wanted);
}

static void create(learner *l, gd_context *ctx)
{
    gd_params *p = l->params = gd_params_create(ctx, GD_FLOAT32);
    l->gru = gd_make_rnn(p, 0, 3, 1, HIDDEN, 1, "gru");
    l->out = gd_make_linear(p, 0, HIDDEN, 1, "out");
    gd_params_finish(p);
    l->x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(STREAMS, STRETCH, 1));
    l->wanted = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(STREAMS, STRETCH, 1));
    l->state = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, STREAMS, HIDDEN));
    l->adamw = gd_adamw_create(p, NULL);
    gd_optimizer_set_rate(l->adamw, 0.01);
}

/* The mean loss of the last hundred steps. */
static double train(gd_context *ctx, bool carries)
{
    learner l = {.carries = carries, .seed = 1};
    create(&l, ctx);
    gd_graph *graph = gd_graph_create(ctx, NULL);
    gd_update_report report = {0};
    double sum = 0;
    for (int i = 0; i < STEPS && !gd_error(ctx); i++) {
        read_on(&l);
        gd_graph_run(graph, step, &l);
        while (gd_optimizer_report(l.adamw, i == STEPS - 1, &report))
            if (report.number >= STEPS - 100) sum += report.loss / 100;
    }
    gd_graph_free(graph);
    gd_optimizer_free(l.adamw);
    gd_params_free(l.params);
    gd_tensor_free(l.x), gd_tensor_free(l.wanted), gd_tensor_free(l.state);
    return sum;
}

int main(void)
{
    gd_context *ctx =
        gd_context_create(&(gd_context_options){.device = GD_DEVICE_AUTO, .seed = 1, .threads = 1});
    const double carried = train(ctx, true), forgotten = train(ctx, false);
    printf("loss %.4f with the state carried on, %.4f without\n", carried, forgotten);
    if (gd_error(ctx)) printf("%s\n", gd_error(ctx));
    const bool good = !gd_error(ctx) && carried < 0.02 && forgotten > 0.1;
    gd_context_free(ctx);
    return good && fflush(stdout) == 0 ? 0 : 1;
}
