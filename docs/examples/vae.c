/* vae.c - a variational autoencoder (Kingma & Welling 2013, arXiv:1312.6114) learns how digits are
 * drawn, and draws new ones, vae.png: above six rows of new digits, one that it was given and one of
 * what it made of it. */
#include "gallery.h"

enum { TRAIN = 4000, BATCH = 100, EPOCHS = 40, HIDDEN = 256, CODE = 12, ROW = 12, ROWS = 8 };

typedef struct net {
    gd_params *params;
    gd_mlp encoder,
        decoder; /* 784 -> hidden -> mean and log variance of the code -> hidden -> 784 */
} net;

/* x [B, PIXELS] -> the mean of the code and the logarithm of its variance, [B, CODE] each */
static gd_tensor *encode(const net *n, gd_tensor *x, gd_tensor **log_var)
{
    gd_tensor *both = gd_run_mlp(&n->encoder, x, gd_relu);
    *log_var = gd_slice(both, -1, CODE, 2 * CODE);
    return gd_slice(both, -1, 0, CODE);
}

/* code [B, CODE] -> the logits of pixels [B, PIXELS] */
static gd_tensor *decode(const net *n, gd_tensor *code)
{
    return gd_run_mlp(&n->decoder, code, gd_relu);
}

/* The bound on -log p(x) of a digit: what a pixel costs, -x log s - (1 - x) log(1 - s) with s =
 * sigmoid(logit), and what the code costs, its divergence from a standard normal. `noise` [B, CODE]
 * is standard normal: the code is drawn as a function of it, through which gradients pass. */
static gd_tensor *bound(const net *n, gd_tensor *x, gd_tensor *noise)
{
    gd_tensor *log_var, *mean = encode(n, x, &log_var);
    gd_tensor *code = gd_add(mean, gd_mul(gd_exp(gd_scale(log_var, 0.5)), noise));
    gd_tensor *logits = decode(n, code);
    gd_tensor *pixels = gd_sum_all(gd_sub(gd_softplus(logits), gd_mul(logits, x)));
    gd_tensor *spread = gd_sub(gd_add(gd_mul(mean, mean), gd_exp(log_var)), log_var);
    gd_tensor *divergence = gd_scale(gd_sum_all(gd_add_scalar(spread, -1)), 0.5);
    return gd_scale(gd_add(pixels, divergence), 1.0 / BATCH);
}

/* A row of digits, a row of what becomes of them, and rows of new ones from standard normal codes. */
static bool draw(const net *n, gd_tensor *x, const digits *test, gd_tensor *noise)
{
    static float images[ROWS * ROW * PIXELS], made[BATCH * PIXELS];
    const size_t row = (size_t)ROW * PIXELS;
    gd_tensor *log_var;
    gd_no_grad_begin(gd_tensor_context(x));
    x = gd_narrow(x, 0, 0, BATCH);
    memcpy(images, test->images, row * sizeof *images);
    gd_tensor_read(gd_sigmoid(decode(n, encode(n, x, &log_var))), made, sizeof made);
    memcpy(images + row, made, row * sizeof *images);
    gd_random_normal(noise, 0, 1);
    gd_tensor_read(gd_sigmoid(decode(n, noise)), made, sizeof made);
    memcpy(images + 2 * row, made, (ROWS - 2) * row * sizeof *images);
    gd_no_grad_end(gd_tensor_context(x));
    gd_step_end(gd_tensor_context(x));
    return gallery_grid("vae.png", images, ROWS * ROW, SIDE, SIDE, ROW, 2);
}

/* The bound of digits x [count, PIXELS] that were not seen, by one pass; with updates if adamw is given. */
static double pass(const net *n, gd_tensor *x, gd_optimizer *adamw, double rate, gd_tensor *noise,
                   uint64_t seed)
{
    gd_context *ctx = gd_tensor_context(x);
    const gd_batches_options options = {.size = BATCH, .seed = seed, .drop_last = true};
    gd_batches *batches = gd_batches_create(ctx, gd_tensor_dim(x, 0), &options);
    double sum = 0;
    if (!adamw) gd_no_grad_begin(ctx);
    const int64_t count = gd_batches_per_epoch(batches);
    for (int64_t i = 0; i < count && !gd_error(ctx); i++) {
        gd_tensor *batch = gd_index_select(x, 0, gd_batches_next(batches));
        gd_random_normal(noise, 0, 1);
        gd_tensor *loss = gd_keep(bound(n, batch, noise));
        if (adamw) {
            gd_backward(loss);
            gd_optimizer_step(adamw, rate);
            gd_params_clear_grads(n->params);
        }
        sum += gd_item(loss) / (double)count;
        gd_step_end(ctx);
    }
    if (!adamw) gd_no_grad_end(ctx);
    gd_batches_free(batches);
    return sum;
}

int main(int argc, char **argv)
{
    (void)argv;
    if (!gallery_arguments(argc, "")) return 2;
    digits train = draw_digits(TRAIN, 1), test = draw_digits(1000, 2);
    if (!train.count || !test.count) return free_digits(train), free_digits(test), 1;
    for (int i = 0; i < TRAIN * PIXELS; i++) train.images[i] = train.images[i] > 0.5f;
    for (int i = 0; i < 1000 * PIXELS; i++) test.images[i] = test.images[i] > 0.5f;
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1});
    net n = {.params = gd_params_create(ctx, GD_FLOAT32)};
    n.encoder = gd_make_mlp(n.params, 0, 2, (int64_t[]){PIXELS, HIDDEN, 2 * CODE}, "encoder");
    n.decoder = gd_make_mlp(n.params, 0, 2, (int64_t[]){CODE, HIDDEN, PIXELS}, "decoder");
    gd_params_finish(n.params);
    gd_optimizer *adamw = gd_adamw_create(n.params, &(gd_adamw_options){.weight_decay = 1e-4});
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(TRAIN, PIXELS), train.images);
    gd_tensor *unseen = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(1000, PIXELS), test.images);
    gd_tensor *noise = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(BATCH, CODE));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        const double rate = epoch < 32 ? 2e-3 : 5e-4;
        const double nats = pass(&n, x, adamw, rate, noise, (uint64_t)epoch);
        if (epoch % 8 == 7) printf("epoch %2d  %.1f nats a digit\n", epoch + 1, nats);
    }
    const double nats = pass(&n, unseen, NULL, 0, noise, 0);
    printf("%.1f nats for each of 1000 new digits\n", nats);
    const bool drawn = draw(&n, unseen, &test, noise);
    free_digits(train), free_digits(test);
    return gallery_end(adamw, n.params, ctx, drawn, nats > 0 && nats < 140);
}
