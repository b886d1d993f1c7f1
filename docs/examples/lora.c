/* lora.c - a net that reads digits learns to read them in a mirror by a few numbers more (Hu et al. 2021,
 * arXiv:2106.09685): its weights W are loaded from a file and frozen, and W + B A is learned, where A and B
 * are thin. In the end B A is added to W, so that the net is no larger than before. The picture, lora.png:
 * above what some rows of W look for in a digit, below what they look for in its mirror image. */
#include "gallery.h"

enum {
    TRAIN = 4000,
    TEST = 1000,
    BATCH = 100,
    EPOCHS = 6,
    HIDDEN = 128,
    RANK = 8,
    LAYERS = 3,
    SHOWN = 12
};
static const int64_t widths[] = {PIXELS, HIDDEN, HIDDEN, 10};

typedef struct net {
    gd_params *params;
    gd_mlp base;
    gd_linear_layer a[LAYERS], b[LAYERS]; /* zeros in the net that is not adapted */
} net;

static net make_net(gd_context *ctx, bool adapted)
{
    net n = {.params = gd_params_create(ctx, GD_FLOAT32)};
    n.base = gd_make_mlp(n.params, 0, LAYERS, widths, "base");
    for (int i = 0; i < LAYERS && adapted; i++) {
        n.a[i] = gd_make_linear(n.params, GD_NO_BIAS, widths[i], RANK, gd_format("a.%d", i).text);
        n.b[i] =
            gd_make_linear(n.params, GD_NO_BIAS, RANK, widths[i + 1], gd_format("b.%d", i).text);
        gd_params_set_init(n.params, n.b[i].weight, (gd_init){0}); /* so B A is 0 at first */
    }
    gd_params_finish(n.params);
    return n;
}

/* x [B, PIXELS] -> logits [B, 10] */
static gd_tensor *forward(const net *n, gd_tensor *x, bool adapted)
{
    for (int i = 0; i < LAYERS; i++) {
        gd_tensor *y = gd_run_linear(&n->base.layers[i], x);
        if (adapted) y = gd_add(y, gd_run_linear(&n->b[i], gd_run_linear(&n->a[i], x)));
        x = i + 1 < LAYERS ? gd_relu(y) : y;
    }
    return x;
}

/* One pass through the digits, with updates unless adam is NULL. Returns the fraction that was right. */
static double pass(const net *n, const digits *d, gd_optimizer *adam, bool mirrored, bool adapted)
{
    static uint64_t seed = 3;
    gd_context *ctx = gd_params_context(n->params);
    gd_tensor *images = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(d->count, SIDE, SIDE), d->images);
    gd_tensor *labels = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(d->count), d->labels);
    gd_batches *batches =
        gd_batches_create(ctx, d->count, &(gd_batches_options){.size = BATCH, .seed = seed++});
    double right = 0;
    if (!adam) gd_no_grad_begin(ctx);
    for (int64_t i = 0; i < gd_batches_per_epoch(batches) && !gd_error(ctx); i++) {
        gd_tensor *at = gd_batches_next(batches), *x = gd_index_select(images, 0, at);
        gd_tensor *targets = gd_index_select(labels, 0, at);
        if (mirrored) x = gd_flip(x, (int[]){2}, 1);
        gd_tensor *logits = gd_keep(forward(n, gd_reshape(x, GD_SHAPE(-1, PIXELS)), adapted));
        right += gallery_right(logits, targets);
        if (adam) {
            gd_backward(gd_cross_entropy(logits, targets));
            gd_optimizer_step(adam, 4e-3);
            gd_params_clear_grads(n->params);
        }
        gd_step_end(ctx);
    }
    if (!adam) gd_no_grad_end(ctx);
    gd_batches_free(batches);
    gd_tensor_free(images), gd_tensor_free(labels);
    return right / d->count;
}

int main(int argc, char **argv)
{
    static float rows[2 * SHOWN * PIXELS];
    (void)argv;
    static const char path[] = "lora.safetensors";
    if (!gallery_arguments(argc, "") || !gallery_new(path)) return 2;
    digits train = draw_digits(TRAIN, 1), test = draw_digits(TEST, 2);
    if (!train.count || !test.count) return free_digits(train), free_digits(test), remove(path), 1;
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1, .threads = 1});
    const net first = make_net(ctx, false), second = make_net(ctx, true);
    gd_optimizer *adam = gd_adam_create(first.params, NULL);
    for (int epoch = 0; epoch < EPOCHS; epoch++) pass(&first, &train, adam, false, false);
    printf("%.1f%% of new digits are right\n", 100 * pass(&first, &test, NULL, false, false));
    gd_params_save(first.params, path, NULL, 0);
    const gd_load_options some = {.matching = true};
    gd_params_load_with(second.params, path, &some);
    for (int i = 0; i < gd_params_count(first.params); i++) /* the base comes first */
        gd_tensor_set_requires_grad(gd_params_at(second.params, i), false);
    const double before = pass(&second, &test, NULL, true, true);
    gd_optimizer_free(adam), adam = gd_adam_create(second.params, NULL);
    for (int epoch = 0; epoch < EPOCHS; epoch++) pass(&second, &train, adam, true, true);
    const double adapted = pass(&second, &test, NULL, true, true);
    gd_no_grad_begin(ctx);
    for (int i = 0; i < LAYERS; i++) { /* W = W + B A */
        gd_tensor *w = second.base.layers[i].weight;
        gd_tensor_copy(w, gd_add(w, gd_matmul(second.b[i].weight, second.a[i].weight)));
    }
    gd_no_grad_end(ctx);
    gd_step_end(ctx);
    const double merged = pass(&second, &test, NULL, true, false);
    printf("in a mirror %.1f%%, adapted %.1f%%, merged %.1f%%\n", 100 * before, 100 * adapted,
           100 * merged);
    const gd_tensor *weights[] = {first.base.layers[0].weight, second.base.layers[0].weight};
    for (int i = 0; i < 2; i++)
        gd_tensor_read(gd_slice((gd_tensor *)weights[i], 0, 0, SHOWN), rows + i * SHOWN * PIXELS,
                       sizeof rows / 2);
    const bool drawn = gallery_grid("lora.png", rows, 2 * SHOWN, SIDE, SIDE, SHOWN, 2);
    free_digits(train), free_digits(test), remove(path);
    gd_params_free(first.params);
    return gallery_end(adam, second.params, ctx, drawn, merged >= 0.93);
}
