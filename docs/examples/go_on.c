/* go_on.c - training that stops and goes on: the same bits; and a body that gets another head. */
#include <gradus/gradus.h>
#include <stdio.h>

typedef struct learner {
    gd_context *ctx;
    gd_params *params;
    gd_linear_layer body, head;
    gd_optimizer *adamw;
} learner;

/* A hidden layer, and a head with `classes` outputs. */
static learner make(int64_t classes)
{
    learner l = {.ctx = gd_context_create(&(gd_context_options){.seed = 1})};
    l.params = gd_params_create(l.ctx, GD_FLOAT32);
    l.body = gd_make_linear(l.params, 0, 2, 32, "body");
    l.head = gd_make_linear(l.params, 0, 32, classes, "head");
    gd_params_finish(l.params);
    l.adamw = gd_adamw_create(l.params, &(gd_adamw_options){.weight_decay = 0.01});
    return l;
}

/* Points in the plane, drawn anew in each step; the class is the quadrant. */
static double train(learner *l, int steps)
{
    double loss = 0;
    for (int step = 0; step < steps && !gd_error(l->ctx); step++) {
        float x[64][2];
        int32_t quadrant[64];
        gd_tensor *points = gd_tensor_create(l->ctx, GD_FLOAT32, GD_SHAPE(64, 2));
        gd_random_uniform(points, -1, 1);
        gd_tensor_read(points, x, sizeof x);
        for (int i = 0; i < 64; i++) quadrant[i] = (x[i][0] > 0) + 2 * (x[i][1] > 0);
        gd_tensor *targets = gd_tensor_from(l->ctx, GD_INT32, GD_SHAPE(64), quadrant);
        gd_tensor *hidden = gd_dropout(gd_relu(gd_run_linear(&l->body, points)), 0.1);
        gd_tensor *now = gd_cross_entropy(gd_run_linear(&l->head, hidden), targets);
        gd_backward(now);
        loss = gd_item(now);
        gd_optimizer_step(l->adamw, 0.01);
        gd_params_clear_grads(l->params);
        gd_step_end(l->ctx);
        gd_tensor_free(points), gd_tensor_free(targets);
    }
    return loss;
}

static void tell(void *user, const char *name, const char *why)
{
    (void)user;
    printf("  %s %s\n", name, why);
}

static void end(learner *l)
{
    if (gd_error(l->ctx)) printf("%s\n", gd_error(l->ctx));
    gd_optimizer_free(l->adamw);
    gd_params_free(l->params);
    gd_context_free(l->ctx);
}

int main(void)
{
    const char *path = "go_on.safetensors";
    FILE *file = fopen(path, "wx"); /* not where a file of yours lies: it is removed at the end */
    if (!file) return printf("%s cannot be made, or is here already\n", path), 1;
    fclose(file);
    learner one = make(4), two = make(4), eight = make(8);
    train(&one, 100);
    if (gd_optimizer_save(one.adamw, path, NULL, 0) == GD_OK) {
        gd_optimizer_load(two.adamw, path, NULL);
        printf("loaded with another head:\n");
        gd_params_load_with(eight.params, path,
                            &(gd_load_options){.matching = true, .unmatched = tell});
    }
    const double went_on = train(&one, 100), resumed = train(&two, 100);
    printf("loss %.6f, and from the file %.6f\n", went_on, resumed);
    const bool good = went_on == resumed && went_on < 0.5;
    end(&one), end(&two), end(&eight);
    remove(path);
    return good && fflush(stdout) == 0 ? 0 : 1;
}
