/* graph.c - a step captured once and replayed: a network learns a wave from batches of points that
 * change from step to step, and the host waits for none of them. On the CPU the same code runs. */
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>

enum { BATCH = 64, HIDDEN = 32, STEPS = 2000 };

typedef struct learner {
    gd_params *params;
    gd_mlp net;
    gd_tensor *x, *y;
    gd_optimizer *adamw;
} learner;

static gd_status step(void *user)
{
    learner *l = user;
    gd_tensor *error = gd_sub(gd_run_mlp(&l->net, l->x, gd_tanh), l->y);
    gd_optimizer_backward(l->adamw, gd_mean(gd_mul(error, error), NULL, 0, false), 1);
    gd_optimizer_update(l->adamw, 1.0);
    return gd_params_clear_grads(l->params);
}

/* Points on y = sin(3 x), other ones for each step. */
static void draw_batch(const learner *l, int number)
{
    float x[BATCH], y[BATCH];
    for (int i = 0; i < BATCH; i++) {
        x[i] = 2 * (float)fmod(0.618 * (BATCH * number + i), 1) - 1;
        y[i] = sinf(3 * x[i]);
    }
    gd_tensor_write(l->x, x, sizeof x);
    gd_tensor_write(l->y, y, sizeof y);
}

static void create(learner *l, gd_context *ctx)
{
    l->params = gd_params_create(ctx, GD_FLOAT32);
    l->net = gd_make_mlp(l->params, 0, 2, (int64_t[]){1, HIDDEN, 1}, "");
    gd_params_finish(l->params);
    l->x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(BATCH, 1));
    l->y = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(BATCH, 1));
    l->adamw = gd_adamw_create(l->params, NULL);
}

int main(void)
{
    gd_context *ctx =
        gd_context_create(&(gd_context_options){.device = GD_DEVICE_AUTO, .seed = 1, .threads = 1});
    const gd_schedule schedule = {.kind = GD_SCHEDULE_COSINE, .rate = 0.01, .steps = STEPS};
    learner l = {0};
    create(&l, ctx);

    gd_update_report report = {0};
    gd_graph *graph = gd_graph_create(ctx, NULL);
    for (int i = 0; i < STEPS && !gd_error(ctx); i++) {
        draw_batch(&l, i);
        gd_optimizer_set_rate(l.adamw, gd_schedule_rate(&schedule, i));
        gd_graph_run(graph, step, &l);
        while (gd_optimizer_report(l.adamw, i == STEPS - 1, &report)) {
            if (report.number % 400 == 0) printf("%4d  %.5f\n", (int)report.number, report.loss);
        }
    }

    const gd_graph_counts counts = gd_graph_count(graph);
    printf("on %s: loss %.5f, %d of %d steps replayed\n", gd_context_device_name(ctx), report.loss,
           (int)counts.replays, STEPS);
    if (gd_error(ctx)) printf("%s\n", gd_error(ctx));
    const bool learned = !gd_error(ctx) && report.number == STEPS - 1 && report.loss < 1e-3;
    gd_graph_free(graph);
    gd_optimizer_free(l.adamw);
    gd_params_free(l.params);
    gd_context_free(ctx);
    return learned && fflush(stdout) == 0 ? 0 : 1;
}
