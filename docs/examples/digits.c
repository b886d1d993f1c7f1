/* digits.c - a small convolutional net reads digits; its first filters become a picture, digits.png.
 *   digits                                 digits that the program draws itself
 *   digits IMAGES LABELS IMAGES LABELS     MNIST's files (IDX, unpacked), to train and to test */
#include "gallery.h"

enum { BATCH = 128, EPOCHS = 4, FILTERS = 16, KERNEL = 5, WIDE = 32 };

/* Twice a convolution without a bias, batch norm, relu, and the larger of each 2 x 2. */
typedef struct net {
    gd_params *params;
    gd_conv_layer conv[2];
    gd_norm_layer norm[2];
    gd_linear_layer out;
} net;

/* x [B, 1, 28, 28] -> logits [B, 10] */
static gd_tensor *forward(const net *n, gd_tensor *x, bool evaluate)
{
    for (int i = 0; i < 2; i++) {
        x = gd_run_norm(&n->norm[i], gd_run_conv(&n->conv[i], x), evaluate);
        x = gd_max_pool2d(gd_relu(x), &(gd_pool_options){.kernel = {2, 2}});
    }
    return gd_run_linear(&n->out, gd_reshape(x, GD_SHAPE(BATCH, -1)));
}

/* One pass through the digits in a new order, with updates unless adamw is NULL. Returns the fraction
 * that was read correctly, of whole batches. */
static double pass(const net *n, const digits *d, gd_optimizer *adamw, double rate, uint64_t seed)
{
    gd_context *ctx = gd_params_context(n->params);
    gd_tensor *images =
        gd_tensor_wrap(ctx, GD_FLOAT32, GD_SHAPE(d->count, 1, SIDE, SIDE), d->images);
    gd_tensor *labels = gd_tensor_wrap(ctx, GD_INT32, GD_SHAPE(d->count), d->labels);
    const gd_batches_options options = {.size = BATCH, .seed = seed, .drop_last = true};
    gd_batches *batches = gd_batches_create(ctx, d->count, &options);
    const int64_t count = gd_batches_per_epoch(batches);
    double right = 0;
    if (!adamw) gd_no_grad_begin(ctx);
    for (int64_t i = 0; i < count && !gd_error(ctx); i++) {
        gd_tensor *at = gd_batches_next(batches), *targets = gd_index_select(labels, 0, at);
        gd_tensor *logits = gd_keep(forward(n, gd_index_select(images, 0, at), !adamw));
        right += gallery_right(logits, targets);
        if (adamw) {
            gd_backward(gd_cross_entropy(logits, targets));
            gd_optimizer_step(adamw, rate);
            gd_params_clear_grads(n->params);
        }
        gd_step_end(ctx);
    }
    if (!adamw) gd_no_grad_end(ctx);
    gd_batches_free(batches);
    gd_tensor_free(images), gd_tensor_free(labels);
    return right / (double)(count * BATCH);
}

int main(int argc, char **argv)
{
    if (!gallery_arguments(argc, "IMAGES LABELS IMAGES LABELS")) return 2;
    const bool files = argc > 1;
    digits train = files ? read_digits(argv[1], argv[2], BATCH) : draw_digits(4096, 1);
    digits test = files ? read_digits(argv[3], argv[4], BATCH) : draw_digits(1024, 2);
    if (!train.count || !test.count) return free_digits(train), free_digits(test), 1;
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1});
    const gd_conv_options same = {.padding = {KERNEL / 2, KERNEL / 2}};
    net n = {.params = gd_params_create(ctx, GD_FLOAT32)};
    for (int i = 0; i < 2; i++) {
        n.conv[i] =
            gd_make_conv(n.params, GD_NO_BIAS, gd_conv2d, i ? FILTERS : 1, i ? WIDE : FILTERS,
                         KERNEL, KERNEL, &same, gd_format("conv%d", i).text);
        n.norm[i] = gd_make_norm(n.params, GD_BATCH_NORM, 0, i ? WIDE : FILTERS,
                                 gd_format("norm%d", i).text);
    }
    n.out = gd_make_linear(n.params, 0, WIDE * PIXELS / 16, 10, "out");
    gd_params_finish(n.params);
    /* Small: the norm behind it makes any size right, and what is learned shows in the picture. */
    gd_init_kaiming_normal(n.conv[0].weight, GD_FAN_IN, 0.1);

    gd_optimizer *adamw = gd_adamw_create(n.params, &(gd_adamw_options){.weight_decay = 0.01});
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        const double rate = epoch + 1 < EPOCHS ? 3e-3 : 5e-4;
        printf("epoch %d: %.2f%%\n", epoch + 1,
               100 * pass(&n, &train, adamw, rate, (uint64_t)epoch));
    }
    const double right = pass(&n, &test, NULL, 0, 0);
    printf("%.2f%% of %d new digits are read correctly\n", 100 * right, test.count / BATCH * BATCH);
    float filters[FILTERS * KERNEL * KERNEL] = {0};
    gd_tensor_read(n.conv[0].weight, filters, sizeof filters);
    const bool drawn = gallery_grid("digits.png", filters, FILTERS, KERNEL, KERNEL, 8, 12);
    free_digits(train);
    free_digits(test);
    return gallery_end(adamw, n.params, ctx, drawn, right >= 0.98);
}
