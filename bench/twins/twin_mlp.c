/* twin_mlp.c - two half moons, a network, and the weights that were best on points that it does not
 * learn; it stops when they have not been for a while. twin_mlp.py is the same in PyTorch. */
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

enum { TRAIN = 1024, VALID = 512, BATCH = 64, EPOCHS = 100 };

static void moons(gd_context *ctx, int n, gd_tensor **x, gd_tensor **y)
{
    float at[TRAIN][2];
    int32_t label[TRAIN];
    *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(n, 2));
    gd_random_normal(*x, 0, 0.1), gd_tensor_read(*x, at, (size_t)n * sizeof *at);
    for (int i = 0; i < n; i++) {
        const float turn = 3.14159F * fmodf(0.618F * (float)i, 1);
        at[i][0] += i % 2 ? 1 - cosf(turn) : cosf(turn);
        at[i][1] += i % 2 ? 0.5F - sinf(turn) : sinf(turn);
        label[i] = i % 2;
    }
    gd_tensor_write(*x, at, (size_t)n * sizeof *at);
    *y = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(n), label);
}

int main(void)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1, .threads = 1});
    gd_params *p[2] = {gd_params_create(ctx, GD_FLOAT32), gd_params_create(ctx, GD_FLOAT32)};
    gd_mlp net[2]; /* the one that learns, and the best */
    for (int i = 0; i < 2; i++) {
        net[i] = gd_make_mlp(p[i], 0, 3, (int64_t[]){2, 64, 64, 2}, "");
        gd_params_finish(p[i]);
    }
    gd_tensor *x, *y, *vx, *vy;
    moons(ctx, TRAIN, &x, &y), moons(ctx, VALID, &vx, &vy);
    gd_optimizer *adamw = gd_adamw_create(p[0], &(gd_adamw_options){.weight_decay = 0.01});
    const gd_schedule schedule = {.kind = GD_SCHEDULE_COSINE, .rate = 0.01, .steps = EPOCHS + 1};
    gd_batches *batches = gd_batches_create(ctx, TRAIN, &(gd_batches_options){.size = BATCH});
    double best = INFINITY;
    int last = 0, steps = 0;
    const clock_t start = clock();
    for (int epoch = 0; epoch < EPOCHS && epoch - last <= 20; epoch++) {
        for (int i = 0; i < TRAIN; i += BATCH, steps++) {
            gd_tensor *batch = gd_batches_next(batches);
            gd_tensor *logits = gd_run_mlp(&net[0], gd_index_select(x, 0, batch), gd_relu);
            gd_backward(gd_cross_entropy(logits, gd_index_select(y, 0, batch)));
            gd_optimizer_step(adamw, gd_schedule_rate(&schedule, epoch));
            gd_params_clear_grads(p[0]), gd_step_end(ctx);
        }
        gd_no_grad_begin(ctx);
        const double loss = gd_item(gd_cross_entropy(gd_run_mlp(&net[0], vx, gd_relu), vy));
        gd_no_grad_end(ctx), gd_step_end(ctx);
        if (loss < best) best = loss, last = epoch;
        for (int i = 0; last == epoch && i < gd_params_count(p[0]); i++)
            gd_tensor_copy(gd_params_at(p[1], i), gd_params_at(p[0], i));
    }
    const double ms = 1000. * (double)(clock() - start) / CLOCKS_PER_SEC / steps;
    gd_tensor *hit = gd_eq(gd_argmax(gd_run_mlp(&net[1], vx, gd_relu), -1, false), vy);
    const double right = gd_item(gd_mean_all(gd_cast(hit, GD_FLOAT32)));
    printf("loss %.3f, %.1f%% right, %.3f ms a step\n%s", best, 100 * right, ms,
           gd_error(ctx) ? gd_error(ctx) : "");
    gd_batches_free(batches), gd_optimizer_free(adamw), gd_params_free(p[0]), gd_params_free(p[1]);
    return gd_context_free(ctx), right > 0.98 ? 0 : 1;
}
