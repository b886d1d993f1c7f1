/* sines.c - weights from which a step or two lead to any of many functions: MAML (Finn et al. 2017,
 * arXiv:1703.03400). A task is a sine of some amplitude and phase, of which five points are known. The
 * weights are moved by the gradients of these points, and judged at other points: so the loss has been
 * made with gradients, and its own gradient has second derivatives in it. Without them, which FOMAML
 * leaves out, it learns less. The picture, sines.svg: a new sine, five points, and the network. */
#include "gallery.h"

enum { LAYERS = 3, HIDDEN = 40, SHOTS = 5, TASKS = 25, INNER = 2, STEPS = 4000, TESTS = 500 };
enum { DRAWN = 121 };
static const double rate = 0.05; /* of the steps from five points */

/* Weights of `tasks` networks, [tasks, ...]: at first all the same. */
typedef struct copies {
    gd_tensor *w[2 * LAYERS];
} copies;

static copies copy_net(const gallery_net *n, int64_t tasks)
{
    copies c;
    for (int i = 0; i < 2 * LAYERS; i++) {
        gd_tensor *one = i % 2 ? n->mlp.layers[i / 2].bias : n->mlp.layers[i / 2].weight;
        const int64_t rows = i % 2 ? 1 : gd_tensor_dim(one, 0);
        c.w[i] = gd_expand(one, GD_SHAPE(tasks, rows, gd_tensor_dim(one, -1)));
    }
    return c;
}

/* x [tasks, points, 1] -> y of the same shape */
static gd_tensor *run(const copies *c, gd_tensor *x)
{
    for (int i = 0; i < LAYERS; i++) {
        x = gd_add(gd_matmul_with(x, c->w[2 * i], false, true), c->w[2 * i + 1]);
        if (i + 1 < LAYERS) x = gd_tanh(x);
    }
    return x;
}

/* The sum over the tasks of the mean squared errors. */
static gd_tensor *loss_of(const copies *c, gd_tensor *x, gd_tensor *y)
{
    const double points = (double)gd_tensor_dim(x, 1);
    return gd_scale(gd_mse_loss(run(c, x), y, GD_SUM), 1 / points);
}

/* Each network takes INNER steps towards its own five points. */
static copies adapt(const gallery_net *n, gd_tensor *x, gd_tensor *y, bool differentiable)
{
    const gd_gradients_options options = {.differentiable = differentiable, .keep_tape = true};
    copies c = copy_net(n, gd_tensor_dim(x, 0));
    for (int step = 0; step < INNER; step++) {
        gd_tensor *loss = loss_of(&c, x, y), *slope[2 * LAYERS];
        gd_gradients(&loss, 1, &options, c.w, 2 * LAYERS, slope);
        for (int i = 0; i < 2 * LAYERS; i++) {
            gd_tensor *g = differentiable ? slope[i] : gd_detach(slope[i]);
            c.w[i] = gd_sub(c.w[i], gd_scale(g, rate));
        }
    }
    return c;
}

/* Points of `tasks` sines, x[0] and x[1] of the same: at random from -5 to 5, or DRAWN of them evenly. */
static void draw_sines(gd_tensor **x, gd_tensor **y, int tasks, uint64_t *seed)
{
    static float at[TESTS * DRAWN], to[TESTS * DRAWN];
    static double size[TESTS], phase[TESTS];
    for (int i = 0; i < tasks; i++) {
        size[i] = 0.5 + 1.5 * gallery_uniform(seed);
        phase[i] = 3.14159 * gallery_uniform(seed);
    }
    for (int k = 0; k < 2; k++) {
        const int points = (int)gd_tensor_dim(x[k], 1);
        for (int i = 0; i < tasks * points; i++) {
            const double even = (double)(i % points) / (points - 1);
            const double u = 10 * (points == DRAWN ? even : gallery_uniform(seed)) - 5;
            at[i] = (float)u;
            to[i] = (float)(size[i / points] * sin(u - phase[i / points]));
        }
        gd_tensor_write(x[k], at, (size_t)(tasks * points) * sizeof *at);
        gd_tensor_write(y[k], to, (size_t)(tasks * points) * sizeof *to);
    }
}

/* The first of the test's sines, what the network makes of five of its points, and these points. */
static bool draw(const copies *c, gd_tensor **x, gd_tensor **y)
{
    static float all[3][TESTS * DRAWN], at[2 * DRAWN + SHOTS][2];
    static int32_t label[2 * DRAWN + SHOTS];
    gd_tensor *const values[] = {x[1], y[1], run(c, x[1])};
    for (int i = 0; i < 3; i++) gd_tensor_read(values[i], all[i], sizeof all[i]);
    for (int i = 0; i < 2 * DRAWN; i++) {
        at[i][0] = all[0][i % DRAWN], at[i][1] = all[1 + i / DRAWN][i % DRAWN];
        label[i] = i / DRAWN;
    }
    gd_tensor_read(x[0], all[0], sizeof(float[TESTS * SHOTS]));
    gd_tensor_read(y[0], all[1], sizeof(float[TESTS * SHOTS]));
    for (int i = 0; i < SHOTS; i++) {
        at[2 * DRAWN + i][0] = all[0][i], at[2 * DRAWN + i][1] = all[1][i];
        label[2 * DRAWN + i] = 2;
    }
    return gallery_scatter("sines.svg", at[0], label, 2 * DRAWN + SHOTS, 5.5, NULL, 0);
}

/* Trains a net; its mean squared error at points of new sines, five of whose points it knows. */
static double train(gd_context *ctx, bool second_order, bool *drawn)
{
    uint64_t seed = 1;
    gd_tensor *x[4], *y[4];
    const int64_t tasks[] = {TASKS, TASKS, TESTS, TESTS}, points[] = {SHOTS, 10, SHOTS, DRAWN};
    for (int i = 0; i < 4; i++) {
        x[i] = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(tasks[i], points[i], 1));
        y[i] = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(tasks[i], points[i], 1));
    }
    gd_random_set(ctx, (gd_random_state){.seed = 1});
    const gallery_net n =
        gallery_net_create(ctx, LAYERS, (const int64_t[]){1, HIDDEN, HIDDEN, 1}, 5. / 3);
    gd_optimizer *adam = gd_adamw_create(n.params, NULL);
    const gd_schedule schedule = {.kind = GD_SCHEDULE_COSINE, .rate = 3e-3, .steps = STEPS};
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        draw_sines(x, y, TASKS, &seed);
        const copies c = adapt(&n, x[0], y[0], second_order);
        gd_tensor *loss = gd_scale(loss_of(&c, x[1], y[1]), 1. / TASKS);
        gd_backward(loss);
        if (step % 1000 == 0) printf("step %4d  loss %.3f\n", step, gd_item(loss));
        gd_optimizer_step(adam, gd_schedule_rate(&schedule, step));
        gd_params_clear_grads(n.params);
        gd_step_end(ctx);
    }
    draw_sines(x + 2, y + 2, TESTS, &seed);
    const copies c = adapt(&n, x[2], y[2], false);
    const double error = gd_item(loss_of(&c, x[3], y[3])) / TESTS;
    *drawn = draw(&c, x + 2, y + 2);
    gd_step_end(ctx);
    gd_optimizer_free(adam);
    gd_params_free(n.params);
    for (int i = 0; i < 4; i++) gd_tensor_free(x[i]), gd_tensor_free(y[i]);
    return error;
}

int main(int argc, char **argv)
{
    (void)argv;
    if (!gallery_arguments(argc, "")) return 2;
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1});
    bool drawn = false;
    const double first = train(ctx, false, &drawn), second = train(ctx, true, &drawn);
    printf("five-shot error %.3f, without second derivatives %.3f\n", second, first);
    return gallery_end(NULL, NULL, ctx, drawn, second < first);
}
