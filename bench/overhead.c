/* overhead.c - what an op costs beside its arithmetic: chains of ops on four numbers, and the step
 * of a small network.
 *
 * Each figure is the least of many repetitions: a time can only be too long. On a GPU it is what
 * the host spends on queueing; that the device works at the same time costs it nothing. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHAIN = 64, NUMBERS = 4, CHAINS = 200 }; /* ops of a chain, chains of a repeat */

/* ---- Chains of ops -------------------------------------------------------------------------- */

typedef struct chain {
    gd_context *ctx;
    gd_tensor *x, *w;
    bool two_inputs; /* y = y w; otherwise y = tanh(y) */
} chain;

static gd_tensor *run_chain(const chain *c)
{
    gd_tensor *y = c->x;
    for (int i = 0; i < CHAIN; i++) y = c->two_inputs ? gd_mul(y, c->w) : gd_tanh(y);
    return y;
}

/* The parts of an op. */
enum { UNRECORDED, FORWARD, BACKWARD, STEP_END, PARTS };
static const char *const part_names[PARTS] = {"not recorded", "forward", "backward", "step_end"};

static void keep_least(double *least, double seconds)
{
    if (seconds < *least) *least = seconds;
}

static void time_chain(const chain *c, double least[PARTS])
{
    gd_no_grad_begin(c->ctx);
    double start = bench_now();
    run_chain(c);
    keep_least(&least[UNRECORDED], (bench_now() - start) / CHAIN);
    gd_no_grad_end(c->ctx);
    gd_step_end(c->ctx);
    gd_synchronize(c->ctx);

    start = bench_now();
    gd_tensor *y = run_chain(c);
    double forward = bench_now();
    gd_backward_from(&y, 1, NULL);
    double backward = bench_now();
    gd_step_end(c->ctx);
    double end = bench_now();
    gd_synchronize(c->ctx);
    keep_least(&least[FORWARD], (forward - start) / CHAIN);
    keep_least(&least[BACKWARD], (backward - forward) / CHAIN);
    keep_least(&least[STEP_END], (end - backward) / CHAIN);
    gd_grad_clear(c->x);
    gd_grad_clear(c->w);
}

/* ---- The step of a network ------------------------------------------------------------------ */

/* 2-16-16-2 with tanh, a batch of 32, cross-entropy and AdamW. */
enum { BATCH = 32 };

typedef struct network {
    gd_params *params;
    gd_optimizer *adamw;
    gd_mlp mlp;
    gd_tensor *points, *targets;
} network;

static network make_network(gd_context *ctx)
{
    network n = {.params = gd_params_create(ctx, GD_FLOAT32)};
    n.mlp = gd_make_mlp(n.params, 0, 3, (int64_t[]){2, 16, 16, 2}, "");
    gd_params_finish(n.params);
    n.points = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(BATCH, 2));
    n.targets = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(BATCH));
    gd_random_normal(n.points, 0, 1);
    gd_random_integers(n.targets, 0, 2);
    n.adamw = gd_adamw_create(n.params, NULL);
    return n;
}

static void train_step(gd_context *ctx, network *n)
{
    gd_backward(gd_cross_entropy(gd_run_mlp(&n->mlp, n->points, gd_tanh), n->targets));
    gd_optimizer_step(n->adamw, 1e-3);
    gd_params_clear_grads(n->params);
    gd_step_end(ctx);
}

/* Without waiting: a GPU may be some updates behind. */
static double time_steps(gd_context *ctx, network *n)
{
    const double start = bench_now();
    for (int i = 0; i < CHAIN; i++) train_step(ctx, n);
    return (bench_now() - start) / CHAIN;
}

/* ---- The benchmark -------------------------------------------------------------------------- */

static void print_ns(const char *name, double seconds, bool json)
{
    printf(json ? "{\"name\": \"%s\", \"ns\": %.1f}\n" : "%-28s %8.0f ns\n", name, seconds * 1e9);
}

int bench_overhead(const bench_options *o)
{
    static const char *const names[] = {"tanh", "mul"};
    gd_context *ctx = bench_context(o);
    if (gd_error(ctx)) return bench_fail(ctx);
    chain c = {.ctx = ctx,
               .x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(NUMBERS)),
               .w = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(NUMBERS))};
    gd_tensor_set_requires_grad(c.x, true);
    gd_tensor_set_requires_grad(c.w, true);
    gd_tensor_fill(c.x, 0.5);
    gd_tensor_fill(c.w, 1);
    network n = make_network(ctx);
    double least[2][PARTS] = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    double step = 1;
    for (int i = 0; i < o->repeats * CHAINS && !gd_error(ctx); i++) {
        c.two_inputs = i % 2;
        time_chain(&c, least[i % 2]);
        if (i % 4 == 0) keep_least(&step, time_steps(ctx, &n));
    }
    gd_synchronize(ctx);
    if (gd_error(ctx)) return bench_fail(ctx);
    for (int i = 0; i < 2 * PARTS; i++)
        print_ns(gd_format("%s %s", names[i / PARTS], part_names[i % PARTS]).text,
                 least[i / PARTS][i % PARTS], o->json);
    print_ns("mlp 2-16-16-2 step", step, o->json);
    gd_optimizer_free(n.adamw);
    gd_params_free(n.params);
    gd_context_free(ctx);
    return EXIT_SUCCESS;
}
