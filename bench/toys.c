/* toys.c - a step of small models of other kinds than a transformer: forward, backward and AdamW, on a
 * GPU as one graph. compare_toys.py has the same models. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 16, SIDE = 28, CLASSES = 10, STEPS = 8 };
enum { LETTERS = 64, UNITS = 128, TIME = 50, ROWS = 32 }; /* of gru */

/* A model while it is timed. */
typedef struct toy {
    gd_context *ctx;
    gd_params *params;
    gd_tensor *w[MOST]; /* its parameters, in the order in which they were added */
    int count;
    gd_tensor *x, *targets, *mean[2], *var[2];
    gd_optimizer *adamw;
    gd_tensor *(*logits)(const struct toy *toy);
} toy;

static void add(toy *t, int ndim, const int64_t *shape)
{
    char name[16];
    snprintf(name, sizeof name, "w%d", t->count);
    t->w[t->count++] = gd_params_add(t->params, name, ndim, shape, ndim > 1 ? GD_DECAY : 0);
}

static void add_images(toy *t, int64_t batch)
{
    t->x = gd_tensor_create(t->ctx, GD_FLOAT32, GD_SHAPE(batch, 1, SIDE, SIDE));
    t->targets = gd_tensor_create(t->ctx, GD_INT32, GD_SHAPE(batch));
    gd_random_normal(t->x, 0, 1);
    gd_random_integers(t->targets, 0, CLASSES);
}

static gd_tensor *flat(gd_tensor *x)
{
    return x ? gd_reshape(x, 2, (int64_t[]){gd_tensor_dim(x, 0), -1}) : NULL;
}

/* ---- cnn: two convolutions of 32 channels and 3 x 3, max pooling, 128 hidden units --------------- */

static void make_cnn(toy *t)
{
    add(t, GD_SHAPE(32, 1, 3, 3));
    add(t, GD_SHAPE(32));
    add(t, GD_SHAPE(32, 32, 3, 3));
    add(t, GD_SHAPE(32));
    add(t, GD_SHAPE(128, 32 * 12 * 12));
    add(t, GD_SHAPE(128));
    add(t, GD_SHAPE(CLASSES, 128));
    add(t, GD_SHAPE(CLASSES));
    add_images(t, 64);
}

static gd_tensor *cnn_logits(const toy *t)
{
    gd_tensor *h = gd_relu(gd_conv2d(t->x, t->w[0], t->w[1], NULL));
    h = gd_relu(gd_conv2d(h, t->w[2], t->w[3], NULL));
    h = flat(gd_max_pool2d(h, &(gd_pool_options){.kernel = {2, 2}}));
    return gd_linear(gd_relu(gd_linear(h, t->w[4], t->w[5])), t->w[6], t->w[7]);
}

/* ---- digits: the net of docs/examples/digits.c ------------------------------------------------ */

static void make_digits(toy *t)
{
    static const int64_t channels[] = {1, 16, 32};
    for (int i = 0; i < 2; i++) {
        const int64_t C = channels[i], O = channels[i + 1];
        add(t, GD_SHAPE(O, C, 5, 5));
        add(t, GD_SHAPE(O));
        add(t, GD_SHAPE(O));
        t->mean[i] =
            gd_params_add_buffer(t->params, i ? "mean2" : "mean1", GD_FLOAT32, GD_SHAPE(O));
        t->var[i] = gd_params_add_buffer(t->params, i ? "var2" : "var1", GD_FLOAT32, GD_SHAPE(O));
    }
    add(t, GD_SHAPE(CLASSES, 32 * 7 * 7));
    add(t, GD_SHAPE(CLASSES));
    add_images(t, 128);
}

static gd_tensor *digits_logits(const toy *t)
{
    gd_tensor *h = t->x;
    for (int i = 0; i < 2; i++) {
        gd_tensor *const *w = t->w + 3 * i;
        h = gd_conv2d(h, w[0], NULL, &(gd_conv_options){.padding = {2, 2}});
        h = gd_batch_norm(h, w[1], w[2],
                          &(gd_batch_norm_options){.mean = t->mean[i], .var = t->var[i]});
        h = gd_max_pool2d(gd_relu(h), &(gd_pool_options){.kernel = {2, 2}});
    }
    return gd_linear(flat(h), t->w[6], t->w[7]);
}

/* ---- gru: letters, each a vector with a single 1, and what comes next ------------------------------ */

static void make_gru(toy *t)
{
    add(t, GD_SHAPE(3 * UNITS, LETTERS));
    add(t, GD_SHAPE(3 * UNITS, UNITS));
    add(t, GD_SHAPE(3 * UNITS));
    add(t, GD_SHAPE(3 * UNITS));
    add(t, GD_SHAPE(LETTERS, UNITS));
    add(t, GD_SHAPE(LETTERS));
    t->x = gd_tensor_create(t->ctx, GD_FLOAT32, GD_SHAPE(ROWS, TIME, LETTERS));
    t->targets = gd_tensor_create(t->ctx, GD_INT32, GD_SHAPE(ROWS, TIME));
    gd_random_integers(t->targets, 0, LETTERS);
    static float x[ROWS * TIME][LETTERS];
    for (int i = 0; i < ROWS * TIME; i++) x[i][i * i % LETTERS] = 1;
    gd_tensor_write(t->x, x, sizeof x);
}

static gd_tensor *gru_logits(const toy *t)
{
    const gd_rnn_weights weights = {t->w[0], t->w[1], t->w[2], t->w[3]};
    return gd_linear(gd_gru(t->x, &weights, 1, NULL, NULL), t->w[4], t->w[5]);
}

/* ---- Timing ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*make)(toy *t);
    gd_tensor *(*logits)(const toy *t);
} toys[] = {{"cnn", make_cnn, cnn_logits},
            {"digits", make_digits, digits_logits},
            {"gru", make_gru, gru_logits}};

static gd_status train_step(void *user)
{
    toy *t = user;
    gd_optimizer_backward(t->adamw, gd_cross_entropy(t->logits(t), t->targets), 1);
    gd_optimizer_update(t->adamw, 0);
    return gd_params_clear_grads(t->params);
}

static void begin_weights(const toy *t)
{
    for (int i = 0; i < t->count && !gd_error(t->ctx); i++) {
        const int64_t rows = gd_tensor_dim(t->w[i], 0);
        const double terms = (double)(gd_tensor_count(t->w[i]) / rows);
        if (gd_tensor_ndim(t->w[i]) > 1) gd_random_normal(t->w[i], 0, sqrt(1 / terms));
    }
}

static gd_status time_toy(gd_context *ctx, const bench_options *o, int which, double *seconds)
{
    toy t = {.ctx = ctx, .params = gd_params_create(ctx, GD_FLOAT32)};
    toys[which].make(&t);
    t.logits = toys[which].logits;
    gd_params_finish(t.params);
    begin_weights(&t);
    t.adamw = gd_adamw_create(t.params, NULL);
    gd_optimizer_set_rate(t.adamw, 1e-3);
    gd_graph *graph = gd_graph_create(ctx, NULL);
    for (int i = -2; i < o->repeats && !gd_error(ctx); i++) {
        const double start = bench_now();
        for (int k = 0; k < STEPS; k++) gd_graph_run(graph, train_step, &t);
        gd_synchronize(ctx);
        seconds[i < 0 ? 0 : i] = (bench_now() - start) / STEPS;
    }
    gd_graph_free(graph);
    gd_optimizer_free(t.adamw);
    gd_params_free(t.params);
    gd_tensor_free(t.x), gd_tensor_free(t.targets);
    if (gd_error(ctx)) return gd_error_status(ctx);
    printf(o->json ? "{\"name\": \"%s\", \"us\": %.6g}\n" : "%-8s %10.1f us a step\n",
           toys[which].name, bench_median(seconds, o->repeats) * 1e6);
    return GD_OK;
}

int bench_toys(const bench_options *o)
{
    gd_context *ctx = bench_context(o);
    double *seconds = calloc((size_t)o->repeats, sizeof *seconds);
    gd_status status = seconds ? gd_error_status(ctx) : GD_ERROR_MEMORY;
    for (int i = 0; !status && i < (int)(sizeof toys / sizeof *toys); i++)
        status = time_toy(ctx, o, i, seconds);
    free(seconds);
    if (status) return bench_fail(ctx);
    gd_context_free(ctx);
    return EXIT_SUCCESS;
}
