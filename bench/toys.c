/* toys.c - a step of small models of other kinds than a transformer: forward, backward and an update, on a
 * GPU as one graph. Two have gradients in their loss, and one step is a product with a Hessian.
 * compare_toys.py has the same models. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 16, SIDE = 28, CLASSES = 10, STEPS = 8 };
enum {
    POINTS = 2048,
    REAL = 256,
    VOCAB = 11,
    CONTEXT = 8,
    DIM = 16,
    HEADS = 4
};                                                        /* of the last three */
enum { PAIRS = 512, OTHERS = 6, WIDTH = 64 };             /* of word2vec */
enum { LETTERS = 64, UNITS = 128, TIME = 50, ROWS = 32 }; /* of gru */

/* A model while it is timed. */
typedef struct toy {
    gd_context *ctx;
    gd_params *params;
    gd_conv_layer conv[2];
    gd_norm_layer norm[2];
    gd_linear_layer wide, out;
    gd_rnn_layers gru;
    gd_mlp mlp;
    gd_tensor *w[MOST]; /* parameters without a layer, in the order in which they were added */
    int count;
    gd_tensor *x, *targets;
    gd_tensor *v[MOST]; /* the direction of a product with a Hessian */
    gd_optimizer *optimizer;
    gd_tensor *(*loss)(const struct toy *toy);
} toy;

/* A matrix, or the weight of a norm. */
static void add(toy *t, int ndim, const int64_t *shape)
{
    const gd_init init = {ndim > 1 ? GD_INIT_KAIMING_NORMAL : GD_INIT_CONSTANT, 1, 0};
    t->w[t->count] =
        gd_params_addf(t->params, ndim > 1 ? GD_DECAY : 0, ndim, shape, init, "w%d", t->count);
    t->count++;
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
    for (int i = 0; i < 2; i++)
        t->conv[i] =
            gd_make_conv(t->params, 0, gd_conv2d, i ? 32 : 1, 32, 3, 3, NULL, i ? "1" : "0");
    t->wide = gd_make_linear(t->params, 0, 32 * 12 * 12, 128, "wide");
    t->out = gd_make_linear(t->params, 0, 128, CLASSES, "out");
    add_images(t, 64);
}

static gd_tensor *cnn_loss(const toy *t)
{
    gd_tensor *h = gd_relu(gd_run_conv(&t->conv[0], t->x));
    h = gd_relu(gd_run_conv(&t->conv[1], h));
    h = flat(gd_max_pool2d(h, &(gd_pool_options){.kernel = {2, 2}}));
    h = gd_run_linear(&t->out, gd_relu(gd_run_linear(&t->wide, h)));
    return gd_cross_entropy(h, t->targets);
}

/* ---- digits: the net of docs/examples/digits.c ------------------------------------------------ */

static void make_digits(toy *t)
{
    const gd_conv_options same = {.padding = {2, 2}};
    for (int i = 0; i < 2; i++) {
        t->conv[i] = gd_make_conv(t->params, GD_NO_BIAS, gd_conv2d, i ? 16 : 1, i ? 32 : 16, 5, 5,
                                  &same, i ? "conv1" : "conv0");
        t->norm[i] = gd_make_norm(t->params, GD_BATCH_NORM, 0, i ? 32 : 16, i ? "norm1" : "norm0");
    }
    t->out = gd_make_linear(t->params, 0, 32 * 7 * 7, CLASSES, "out");
    add_images(t, 128);
}

static gd_tensor *digits_loss(const toy *t)
{
    gd_tensor *h = t->x;
    for (int i = 0; i < 2; i++) {
        h = gd_run_norm(&t->norm[i], gd_run_conv(&t->conv[i], h), false);
        h = gd_max_pool2d(gd_relu(h), &(gd_pool_options){.kernel = {2, 2}});
    }
    return gd_cross_entropy(gd_run_linear(&t->out, flat(h)), t->targets);
}

/* ---- gru: letters, each a vector with a single 1, and what comes next ------------------------------ */

static void make_gru(toy *t)
{
    t->gru = gd_make_rnn(t->params, 0, 3, LETTERS, UNITS, 1, "gru");
    t->out = gd_make_linear(t->params, 0, UNITS, LETTERS, "out");
    t->x = gd_tensor_create(t->ctx, GD_FLOAT32, GD_SHAPE(ROWS, TIME, LETTERS));
    t->targets = gd_tensor_create(t->ctx, GD_INT32, GD_SHAPE(ROWS, TIME));
    gd_random_integers(t->targets, 0, LETTERS);
    static float x[ROWS * TIME][LETTERS];
    for (int i = 0; i < ROWS * TIME; i++) x[i][i * i % LETTERS] = 1;
    gd_tensor_write(t->x, x, sizeof x);
}

static gd_tensor *gru_loss(const toy *t)
{
    gd_tensor *h = gd_run_gru(&t->gru, t->x, NULL, NULL);
    return gd_cross_entropy(gd_run_linear(&t->out, h), t->targets);
}

/* ---- pinn: Burgers' equation, u_t + u u_x = u_xx / 100, at points (t, x) ------------------------- */

static const gd_gradients_options again = {.differentiable = true};

static gd_tensor *column(gd_tensor *x, int64_t k)
{
    return gd_narrow(x, 1, k, 1);
}

static void make_pinn(toy *t)
{
    t->mlp = gd_make_mlp(t->params, 0, 4, (int64_t[]){2, 64, 64, 64, 1}, "");
    t->x = gd_tensor_create(t->ctx, GD_FLOAT32, GD_SHAPE(POINTS, 2));
    gd_random_uniform(t->x, -1, 1);
    gd_tensor_set_requires_grad(t->x, true);
}

static gd_tensor *pinn_loss(const toy *t)
{
    gd_tensor *x = t->x, *u = gd_run_mlp(&t->mlp, x, gd_tanh), *slope = NULL, *second = NULL, *u_x;
    gd_gradients(&u, 1, &again, &x, 1, &slope);
    u_x = column(slope, 1);
    gd_gradients(&u_x, 1, &again, &x, 1, &second);
    gd_tensor *left = gd_add(column(slope, 0), gd_mul(u, u_x));
    gd_tensor *residual = gd_sub(left, gd_scale(column(second, 1), 0.01));
    return gd_mean_all(gd_mul(residual, residual));
}

/* ---- wgan: a critic of points and a penalty for gradients of another norm than 1 ------------------ */

static void make_wgan(toy *t)
{
    t->mlp = gd_make_mlp(t->params, 0, 4, (int64_t[]){2, 512, 512, 512, 1}, "");
    t->x = gd_tensor_create(t->ctx, GD_FLOAT32, GD_SHAPE(3 * REAL, 2)); /* real, made, between */
    gd_random_normal(t->x, 0, 1);
    gd_tensor_set_requires_grad(t->x, true);
}

static gd_tensor *wgan_loss(const toy *t)
{
    const int last = 1;
    gd_tensor *real = gd_narrow(t->x, 0, 0, REAL), *made = gd_narrow(t->x, 0, REAL, REAL),
              *between = gd_narrow(t->x, 0, 2 * REAL, REAL), *slope = NULL;
    gd_tensor *score = gd_run_mlp(&t->mlp, between, gd_softplus);
    gd_gradients(&score, 1, &again, &between, 1, &slope);
    gd_tensor *off = gd_add_scalar(gd_norm(slope, 2, &last, 1, false), -1);
    gd_tensor *difference = gd_sub(gd_mean_all(gd_run_mlp(&t->mlp, made, gd_softplus)),
                                   gd_mean_all(gd_run_mlp(&t->mlp, real, gd_softplus)));
    return gd_add(difference, gd_scale(gd_mean_all(gd_mul(off, off)), 10));
}

/* ---- hvp: the block of docs/examples/transformer_block.c, one head of keys for each two ----------- */

static void make_hvp(toy *t)
{
    const int64_t heads = HEADS * 4, keys = heads / 2;
    const int64_t size[][2] = {{VOCAB, DIM}, {heads, DIM}, {keys, DIM}, {keys, DIM},
                               {DIM, heads}, {40, DIM},    {40, DIM},   {DIM, 40}};
    for (int i = 0; i < 8; i++) add(t, GD_SHAPE(size[i][0], size[i][1]));
    for (int i = 0; i < 3; i++) add(t, GD_SHAPE(DIM));
    t->x = gd_tensor_create(t->ctx, GD_INT32, GD_SHAPE(2, CONTEXT));
    t->targets = gd_tensor_create(t->ctx, GD_INT32, GD_SHAPE(2, CONTEXT));
    gd_random_integers(t->x, 0, VOCAB);
    gd_random_integers(t->targets, 0, VOCAB);
    for (int i = 0; i < 11; i++) {
        t->v[i] = i < 8 ? gd_tensor_create(t->ctx, GD_FLOAT32, GD_SHAPE(size[i][0], size[i][1]))
                        : gd_tensor_create(t->ctx, GD_FLOAT32, GD_SHAPE(DIM));
        gd_random_normal(t->v[i], 0, 1);
    }
}

static gd_tensor *heads_of(gd_tensor *x, gd_tensor *w, int64_t count)
{
    return gd_reshape(gd_linear(x, w, NULL), GD_SHAPE(2, CONTEXT, count, 4));
}

static gd_tensor *block_loss(const toy *t)
{
    gd_tensor *const *w = t->w, *stream = gd_embedding(w[0], t->x);
    gd_tensor *x = gd_rms_norm(stream, w[8], 1e-5);
    gd_tensor *q = gd_rope(heads_of(x, w[1], HEADS), NULL);
    gd_tensor *k = gd_rope(heads_of(x, w[2], HEADS / 2), NULL), *v = heads_of(x, w[3], HEADS / 2);
    gd_tensor *y = gd_attention(q, k, v, &(gd_attention_options){.causal = true});
    y = gd_linear(gd_reshape(y, GD_SHAPE(2, CONTEXT, HEADS * 4)), w[4], NULL);
    x = gd_add_rms_norm(y, stream, w[9], NULL, NULL, &stream);
    y = gd_linear(gd_swiglu(gd_linear(x, w[5], NULL), gd_linear(x, w[6], NULL)), w[7], NULL);
    x = gd_add_rms_norm(y, stream, w[10], NULL, NULL, NULL);
    return gd_cross_entropy(gd_linear(x, w[0], NULL), t->targets);
}

/* ---- word2vec: pairs of words, each with five words that are drawn, by Adagrad -------------------- */

static void make_words(toy *t, int64_t words)
{
    add(t, GD_SHAPE(words, WIDTH)), add(t, GD_SHAPE(words, WIDTH));
    t->x = gd_tensor_create(t->ctx, GD_INT32, GD_SHAPE(PAIRS, 1));
    t->targets = gd_tensor_create(t->ctx, GD_INT32, GD_SHAPE(PAIRS, OTHERS));
    t->v[0] = gd_tensor_create(t->ctx, GD_FLOAT32, GD_SHAPE(OTHERS));
    gd_tensor_write(t->v[0], (float[OTHERS]){-1, 1, 1, 1, 1, 1}, OTHERS * sizeof(float));
}

static void make_few_words(toy *t)
{
    make_words(t, 20000);
}

static void make_many_words(toy *t)
{
    make_words(t, 100000);
}

/* Other words in each step. */
static gd_tensor *words_loss(const toy *t)
{
    const int last = 2;
    gd_random_integers(t->x, 0, gd_tensor_dim(t->w[0], 0));
    gd_random_integers(t->targets, 0, gd_tensor_dim(t->w[0], 0));
    gd_tensor *h = gd_mul(gd_embedding(t->w[0], t->x), gd_embedding(t->w[1], t->targets));
    return gd_mean_all(gd_softplus(gd_mul(gd_sum(h, &last, 1, false), t->v[0])));
}

/* ---- Timing ----------------------------------------------------------------------------------- */

static gd_status train_step(void *user)
{
    toy *t = user;
    gd_optimizer_backward(t->optimizer, t->loss(t), 1);
    gd_optimizer_update(t->optimizer, 0);
    if (gd_tensor_requires_grad(t->x)) gd_grad_clear(t->x);
    return gd_params_clear_grads(t->params);
}

static gd_status hessian_step(void *user)
{
    toy *t = user;
    gd_tensor *products[MOST];
    return gd_hvp(t->loss(t), t->w, t->v, t->count, NULL, products);
}

static const struct {
    const char *name;
    void (*make)(toy *t);
    gd_tensor *(*loss)(const toy *t);
    gd_status (*step)(void *user);
} toys[] = {{"cnn", make_cnn, cnn_loss, train_step},
            {"digits", make_digits, digits_loss, train_step},
            {"gru", make_gru, gru_loss, train_step},
            {"pinn", make_pinn, pinn_loss, train_step},
            {"wgan", make_wgan, wgan_loss, train_step},
            {"hvp", make_hvp, block_loss, hessian_step},
            {"words20k", make_few_words, words_loss, train_step},
            {"words100k", make_many_words, words_loss, train_step}};

static gd_status time_toy(gd_context *ctx, const bench_options *o, int which, double *seconds)
{
    toy t = {.ctx = ctx, .params = gd_params_create(ctx, GD_FLOAT32)};
    toys[which].make(&t);
    t.loss = toys[which].loss;
    gd_params_finish(t.params);
    t.optimizer =
        t.loss == words_loss ? gd_adagrad_create(t.params, NULL) : gd_adamw_create(t.params, NULL);
    gd_optimizer_set_rate(t.optimizer, 1e-3);
    gd_graph *graph = gd_graph_create(ctx, NULL);
    for (int i = -2; i < o->repeats && !gd_error(ctx); i++) {
        const double start = bench_now();
        for (int k = 0; k < STEPS; k++) gd_graph_run(graph, toys[which].step, &t);
        gd_synchronize(ctx);
        seconds[i < 0 ? 0 : i] = (bench_now() - start) / STEPS;
    }
    gd_graph_free(graph);
    gd_optimizer_free(t.optimizer);
    gd_params_free(t.params);
    gd_tensor_free(t.x), gd_tensor_free(t.targets);
    for (int i = 0; i < MOST; i++) gd_tensor_free(t.v[i]);
    if (gd_error(ctx)) return gd_error_status(ctx);
    printf(o->json ? "{\"name\": \"%s\", \"us\": %.6g}\n" : "%-9s %10.1f us a step\n",
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
