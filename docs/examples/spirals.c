/* spirals.c - mlp.c grown: three spirals, batches, and a picture of what the network decides where,
 * spirals.svg. */
#include "gallery.h"

enum { ARMS = 3, TRAIN = 1536, TEST = 768, BATCH = 128, EPOCHS = 60, HIDDEN = 64, GRID = 72 };

/* Points (x, y) [n, 2] on arms that wind around each other, with noise; labels: the arm. */
static void make_spirals(float *points, int32_t *labels, int n, uint64_t *seed)
{
    for (int i = 0; i < n; i++) {
        labels[i] = i % ARMS;
        const double turn = 0.1 + 1.1 * gallery_uniform(seed);
        const double angle = 6.283185307 * (turn + (double)labels[i] / ARMS);
        points[2 * i] = (float)(turn * cos(angle) + 0.03 * gallery_normal(seed));
        points[2 * i + 1] = (float)(turn * sin(angle) + 0.03 * gallery_normal(seed));
    }
}

/* The arm that each point is taken for. */
static void classify(const gd_mlp *net, gd_context *ctx, const float *points, int32_t *arms,
                     int count)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(count, 2), points);
    gd_no_grad_begin(ctx);
    gd_tensor_read(gd_argmax(gd_run_mlp(net, x, gd_relu), -1, false), arms,
                   (size_t)count * sizeof *arms);
    gd_no_grad_end(ctx);
    gd_step_end(ctx);
    gd_tensor_free(x);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (!gallery_arguments(argc, "")) return 2;
    static float points[2 * TRAIN], test[2 * TEST], cells[2 * GRID * GRID];
    static int32_t labels[TRAIN], wanted[TEST], arms[TEST], ground[GRID * GRID];
    const double extent = 1.4;
    uint64_t seed = 1;
    make_spirals(points, labels, TRAIN, &seed);
    make_spirals(test, wanted, TEST, &seed);
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1, .threads = 1});
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    const gd_mlp net = gd_make_mlp(params, 0, 3, (int64_t[]){2, HIDDEN, HIDDEN, ARMS}, "");
    gd_params_finish(params);
    gd_optimizer *adamw = gd_adamw_create(params, &(gd_adamw_options){.weight_decay = 0.01});
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(TRAIN, 2), points);
    gd_tensor *arm = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(TRAIN), labels);
    gd_batches *batches =
        gd_batches_create(ctx, TRAIN, &(gd_batches_options){.size = BATCH, .seed = 1});
    const gd_schedule schedule = {
        .kind = GD_SCHEDULE_COSINE, .rate = 0.01, .final_rate = 1e-4, .steps = EPOCHS};
    for (int epoch = 0; epoch < EPOCHS && !gd_error(ctx); epoch++) {
        for (int i = 0; i < TRAIN / BATCH; i++) {
            gd_tensor *at = gd_batches_next(batches);
            gd_tensor *logits = gd_run_mlp(&net, gd_index_select(x, 0, at), gd_relu);
            gd_tensor *loss = gd_cross_entropy(logits, gd_index_select(arm, 0, at));
            gd_backward(loss);
            if (epoch % 10 == 0 && i == 0) printf("epoch %2d  loss %.4f\n", epoch, gd_item(loss));
            gd_optimizer_step(adamw, gd_schedule_rate(&schedule, epoch));
            gd_params_clear_grads(params);
            gd_step_end(ctx);
        }
    }
    for (int i = 0; i < GRID * GRID; i++) { /* the middle of each cell, from the top left */
        cells[2 * i] = (float)(((i % GRID + 0.5) / GRID * 2 - 1) * extent);
        cells[2 * i + 1] = (float)((1 - (i / GRID + 0.5) / GRID * 2) * extent);
    }
    classify(&net, ctx, cells, ground, GRID * GRID);
    classify(&net, ctx, test, arms, TEST);
    int right = 0;
    for (int i = 0; i < TEST; i++) right += arms[i] == wanted[i];
    printf("%.1f%% of %d new points are classified correctly\n", 100.0 * right / TEST, TEST);
    gd_batches_free(batches);
    const bool drawn = gallery_scatter("spirals.svg", test, wanted, TEST, extent, ground, GRID);
    return gallery_end(adamw, params, ctx, drawn, right >= 0.97 * TEST);
}
