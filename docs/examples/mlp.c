/* mlp.c - a network of three layers separates two spirals, and is evaluated on new points. */
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>

enum { TRAIN = 512, TEST = 512, HIDDEN = 48, STEPS = 600 };

/* Points (x, y) [n, 2] on two arms that wind around each other one and a quarter times; target:
 * the arm. The noise comes from the context's random stream, so every call makes new points. */
static gd_status make_spirals(gd_tensor *points, gd_tensor *targets, int n)
{
    float xy[2 * TRAIN], noise[2 * TRAIN];
    int32_t arm[TRAIN];
    gd_random_normal(points, 0, 0.04);
    gd_tensor_read(points, noise, (size_t)n * 2 * sizeof *noise);
    for (int i = 0; i < n; i++) {
        arm[i] = i % 2;
        double turn = 0.25 + 1.25 * i / n, angle = 6.283185307 * (turn + 0.5 * arm[i]);
        xy[2 * i] = (float)(turn * cos(angle)) + noise[2 * i];
        xy[2 * i + 1] = (float)(turn * sin(angle)) + noise[2 * i + 1];
    }
    gd_tensor_write(points, xy, (size_t)n * 2 * sizeof *xy);
    return gd_tensor_write(targets, arm, (size_t)n * sizeof *arm);
}

typedef struct layer {
    gd_tensor *weight, *bias; /* [out, in], [out] */
} layer;

static layer add_layer(gd_params *params, const char *weight, const char *bias, int64_t in,
                       int64_t out)
{
    return (layer){gd_params_add(params, weight, GD_SHAPE(out, in), GD_DECAY),
                   gd_params_add(params, bias, GD_SHAPE(out), 0)};
}

/* x [n, 2] -> logits [n, 2] */
static gd_tensor *forward(const layer layers[3], gd_tensor *x)
{
    for (int i = 0; i < 3; i++) {
        x = gd_linear(x, layers[i].weight, layers[i].bias);
        if (i < 2) x = gd_tanh(x);
    }
    return x;
}

/* The share of points whose own arm has the larger logit. */
static double accuracy(const layer layers[3], gd_tensor *points, gd_tensor *targets)
{
    gd_context *ctx = gd_tensor_context(points);
    float logits[2 * TEST];
    int32_t arm[TEST];
    gd_no_grad_begin(ctx);
    gd_status status = gd_tensor_read(forward(layers, points), logits, sizeof logits);
    gd_no_grad_end(ctx);
    gd_step_end(ctx);
    if (status || gd_tensor_read(targets, arm, sizeof arm)) return 0;
    int right = 0;
    for (int i = 0; i < TEST; i++) right += logits[2 * i + arm[i]] > logits[2 * i + 1 - arm[i]];
    return (double)right / TEST;
}

int main(void)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1, .threads = 1});
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    const layer layers[3] = {add_layer(params, "w1", "b1", 2, HIDDEN),
                             add_layer(params, "w2", "b2", HIDDEN, HIDDEN),
                             add_layer(params, "w3", "b3", HIDDEN, 2)};
    gd_params_finish(params);
    for (int i = 0; i < 3; i++) {
        double inputs = (double)gd_tensor_dim(layers[i].weight, 1);
        gd_random_normal(layers[i].weight, 0, 1 / sqrt(inputs));
    }

    gd_tensor *points = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(TRAIN, 2));
    gd_tensor *targets = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(TRAIN));
    gd_tensor *test_points = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(TEST, 2));
    gd_tensor *test_targets = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(TEST));
    if (!gd_error(ctx)) make_spirals(points, targets, TRAIN);
    if (!gd_error(ctx)) make_spirals(test_points, test_targets, TEST);

    gd_optimizer *adamw = gd_adamw_create(params, &(gd_adamw_options){.weight_decay = 0.01});
    const gd_schedule schedule = {
        .kind = GD_SCHEDULE_COSINE, .rate = 0.02, .final_rate = 0.0005, .steps = STEPS};
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *loss = gd_cross_entropy(forward(layers, points), targets);
        gd_backward(loss);
        if (step % 100 == 0) printf("step %3d  loss %.4f\n", step, gd_item(loss));
        gd_optimizer_step(adamw, gd_schedule_rate(&schedule, step));
        gd_params_clear_grads(params);
        gd_step_end(ctx);
    }
    double share = accuracy(layers, test_points, test_targets);
    printf("%.1f%% of %d new points are classified correctly\n", 100 * share, TEST);
    if (gd_error(ctx)) printf("%s\n", gd_error(ctx));
    gd_optimizer_free(adamw);
    gd_params_free(params);
    gd_context_free(ctx);
    return share > 0.95 && fflush(stdout) == 0 ? 0 : 1;
}
