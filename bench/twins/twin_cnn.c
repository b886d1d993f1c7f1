/* twin_cnn.c - a convolutional net finds which of ten patterns is in the noise; after three
 * epochs it is saved, and another goes on from the file, to the same bits. twin_cnn.py is the
 * same in PyTorch. */
#include <gradus/gradus.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TRAIN = 1000, TEST = 500, ALL = TRAIN + TEST, BATCH = 50 };

typedef struct net {
    gd_params *params;
    gd_conv_layer conv[2];
    gd_norm_layer norm[2];
    gd_linear_layer out;
    gd_optimizer *adamw;
} net;

static net make(gd_context *ctx)
{
    const gd_conv_options same = {.padding = {1, 1}};
    net n = {.params = gd_params_create(ctx, GD_FLOAT32)};
    for (int i = 0; i < 2; i++) {
        n.conv[i] = gd_make_conv(n.params, GD_NO_BIAS, gd_conv2d, i ? 16 : 1, i ? 32 : 16, 3, 3,
                                 &same, i ? "conv1" : "conv0");
        n.norm[i] = gd_make_norm(n.params, GD_BATCH_NORM, 0, i ? 32 : 16, i ? "norm1" : "norm0");
    }
    n.out = gd_make_linear(n.params, 0, 128, 10, "out");
    gd_params_finish(n.params);
    n.adamw = gd_adamw_create(n.params, NULL);
    return n;
}

/* x [B, 1, 8, 8] -> logits [B, 10] */
static gd_tensor *forward(const net *n, gd_tensor *x, bool evaluate)
{
    for (int i = 0; i < 2; i++) {
        x = gd_run_norm(&n->norm[i], gd_run_conv(&n->conv[i], x), evaluate);
        x = gd_max_pool2d(gd_relu(x), &(gd_pool_options){.kernel = {2, 2}});
    }
    return gd_run_linear(&n->out, gd_reshape(x, GD_SHAPE(gd_tensor_dim(x, 0), -1)));
}

static void train(const net *n, gd_tensor *x, gd_tensor *y, int epochs)
{
    gd_context *ctx = gd_params_context(n->params);
    gd_batches *batches = gd_batches_create(ctx, TRAIN, &(gd_batches_options){.size = BATCH});
    for (int i = 0; i < epochs * TRAIN && !gd_error(ctx); i += BATCH) {
        gd_tensor *batch = gd_batches_next(batches);
        gd_tensor *labels = gd_index_select(y, 0, batch);
        gd_backward(gd_cross_entropy(forward(n, gd_index_select(x, 0, batch), false), labels));
        gd_optimizer_step(n->adamw, 0.003);
        gd_params_clear_grads(n->params);
        gd_step_end(ctx);
    }
    gd_batches_free(batches);
}

int main(void)
{
    static const char path[] = "twin_cnn.safetensors";
    FILE *file = fopen(path, "wx"); /* not where a file of yours lies */
    if (!file) return printf("%s cannot be made, or is here already\n", path), 1;
    fclose(file);
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1, .threads = 1});
    const net one = make(ctx), two = make(ctx);
    int32_t classes[ALL];
    float weights[2][1280];
    for (int i = 0; i < ALL; i++) classes[i] = i % 10;
    gd_tensor *y = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(ALL), classes);
    gd_tensor *patterns = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(10, 1, 8, 8));
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(ALL, 1, 8, 8));
    gd_random_normal(patterns, 0, 1), gd_random_normal(x, 0, 1.5);
    gd_tensor_copy(x, gd_add(x, gd_index_select(patterns, 0, y)));
    const clock_t start = clock();
    train(&one, x, y, 3);
    const double ms = 1000. * (double)(clock() - start) / CLOCKS_PER_SEC / 60;
    gd_optimizer_save(one.adamw, path, NULL, 0);
    train(&one, x, y, 3);
    gd_optimizer_load(two.adamw, path, NULL);
    train(&two, x, y, 3);
    gd_tensor_read(one.out.weight, weights[0], sizeof weights[0]);
    gd_tensor_read(two.out.weight, weights[1], sizeof weights[1]);
    gd_no_grad_begin(ctx);
    gd_tensor *class = gd_argmax(forward(&two, gd_narrow(x, 0, TRAIN, TEST), true), -1, false);
    gd_tensor *hit = gd_eq(class, gd_narrow(y, 0, TRAIN, TEST));
    const double right = gd_item(gd_mean_all(gd_cast(hit, GD_FLOAT32)));
    gd_no_grad_end(ctx);
    const bool same = !memcmp(weights[0], weights[1], sizeof weights[0]);
    printf("%.1f%% right, %s weights, %.2f ms a step\n", 100 * right, same ? "the same" : "other",
           ms);
    const bool good = same && right > 0.9;
    if (gd_error(ctx)) printf("%s\n", gd_error(ctx));
    gd_optimizer_free(one.adamw), gd_params_free(one.params);
    gd_optimizer_free(two.adamw), gd_params_free(two.params);
    gd_context_free(ctx);
    remove(path);
    return good ? 0 : 1;
}
