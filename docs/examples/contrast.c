/* contrast.c - digits find their places in a plane without anyone naming them: two drawings of one
 * digit belong together, and those of different digits do not (InfoNCE, van den Oord et al. 2018,
 * arXiv:1807.03748). The places are a picture, contrast.svg. */
#include "gallery.h"

enum { EACH = 400, SETS = 12, HIDDEN = 128, STEPS = 400, TEST = 1000 };

/* a, b [SETS, 10, 2]: two places of each digit. The logit of the pair (i, j) is -|a_i - b_j|^2, and
 * that of (i, i) should be the largest of row i. |a_i|^2 is the same for all of a row. */
static gd_tensor *info_nce(gd_tensor *a, gd_tensor *b, gd_tensor *own)
{
    gd_tensor *far = gd_transpose(gd_sum(gd_mul(b, b), (const int[]){2}, 1, true), 1, 2);
    gd_tensor *logits = gd_sub(gd_scale(gd_matmul_with(a, b, false, true), 2), far);
    return gd_cross_entropy(logits, own);
}

/* The fraction of places [n, 2] that are nearest to the mean of their own digit. */
static double nearest_mean(const float *at, const int32_t *labels, int n)
{
    double mean[10][3] = {{0}};
    int right = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++) mean[labels[i]][k] += (double)at[2 * i + k];
        mean[labels[i]][2] += 1;
    }
    for (int i = 0; i < n; i++) {
        int best = 0;
        double least = INFINITY;
        for (int c = 0; c < 10; c++) {
            const double dx = (double)at[2 * i] - mean[c][0] / mean[c][2];
            const double dy = (double)at[2 * i + 1] - mean[c][1] / mean[c][2];
            if (dx * dx + dy * dy < least) least = dx * dx + dy * dy, best = c;
        }
        right += best == labels[i];
    }
    return (double)right / n;
}

int main(int argc, char **argv)
{
    (void)argv;
    if (!gallery_arguments(argc, "")) return 2;
    digits train = draw_digits(10 * EACH, 1), test = draw_digits(TEST, 2);
    static int32_t order[SETS * 10], own[SETS * 10];
    static float places[2 * TEST];
    uint64_t seed = 3;
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1});
    const gallery_net n =
        gallery_net_create(ctx, 3, (const int64_t[]){PIXELS, HIDDEN, HIDDEN, 2}, sqrt(2));
    for (int i = 0; i < SETS * 10; i++) own[i] = i % 10;
    gd_tensor *targets = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(SETS, 10), own);
    gd_tensor *all = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(train.count, PIXELS), train.images);
    gd_tensor *at = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(SETS * 10)), *x[2];
    gd_optimizer *adamw = gd_adamw_create(n.params, &(gd_adamw_options){.weight_decay = 0.01});
    const gd_schedule schedule = {.kind = GD_SCHEDULE_COSINE, .rate = 2e-3, .steps = STEPS};
    for (int step = 0; step < STEPS && train.count && !gd_error(ctx); step++) {
        for (int k = 0; k < 2; k++) { /* digit c is at c, c + 10, c + 20 ... */
            for (int i = 0; i < SETS * 10; i++)
                order[i] = i % 10 + 10 * (int32_t)(EACH * gallery_uniform(&seed));
            gd_tensor_write(at, order, sizeof order);
            x[k] = gd_index_select(all, 0, at);
        }
        gd_tensor *a =
            gd_reshape(gd_run_mlp(&n.mlp, x[0], gd_relu), 3, (const int64_t[]){SETS, 10, 2});
        gd_tensor *b =
            gd_reshape(gd_run_mlp(&n.mlp, x[1], gd_relu), 3, (const int64_t[]){SETS, 10, 2});
        gd_tensor *loss = info_nce(a, b, targets);
        gd_backward(loss);
        if (step % 50 == 0) printf("step %3d  loss %.4f\n", step, gd_item(loss));
        gd_optimizer_step(adamw, gd_schedule_rate(&schedule, step));
        gd_params_clear_grads(n.params);
        gd_step_end(ctx);
    }
    gd_tensor *pictures =
        gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(test.count, PIXELS), test.images);
    gd_no_grad_begin(ctx);
    if (test.count) gd_tensor_read(gd_run_mlp(&n.mlp, pictures, gd_relu), places, sizeof places);
    gd_no_grad_end(ctx);
    const double right = test.count ? nearest_mean(places, test.labels, TEST) : 0;
    double extent = 1;
    for (int i = 0; i < 2 * TEST; i++) extent = fmax(extent, 1.05 * fabs((double)places[i]));
    printf("%.1f%% of %d new digits are nearest to the mean of their own\n", 100 * right, TEST);
    const bool drawn =
        test.count && gallery_scatter("contrast.svg", places, test.labels, TEST, extent, NULL, 0);
    free_digits(train), free_digits(test);
    return gallery_end(adamw, n.params, ctx, drawn, right >= 0.9);
}
