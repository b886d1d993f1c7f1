/* test_cuda_norms.c - batch_norm, group_norm and pooling on the GPU at sizes that people train
 * with, against the CPU: several pieces of a channel, and groups that fit in shared memory, of x
 * alone or of dy too, and that do not. (test_cuda_ops.c compares small cases.) */
#include "gpu_outcome.h"
#include "op_test.h"

typedef struct problem {
    int64_t groups; /* 0: batch_norm; below 0: max_pool2d, avg_pool2d */
    int64_t x[4];
} problem;

enum { MAX_POOL = -1, AVG_POOL = -2 };

static const problem problems[] = {
    {0, {32, 24, 56, 56}},      {0, {5, 300, 7, 7}},        {0, {700, 130, 1, 1}},
    {2, {3, 8, 56, 56}}, /* 50 or 100 KB a group */
    {8, {2, 64, 28, 28}},       {8, {8, 64, 28, 29}},       {1, {4, 3, 9, 31}},
    {6, {4, 6, 64, 64}},   /* each channel */
    {1, {2, 600, 8, 8}},   /* more channels than a block has */
    {2, {2, 6, 200, 210}}, /* groups too large */
    {MAX_POOL, {3, 5, 56, 56}}, {MAX_POOL, {2, 3, 30, 28}}, {MAX_POOL, {2, 3, 31, 28}},
    {AVG_POOL, {3, 5, 56, 56}}, {AVG_POOL, {2, 3, 30, 28}}, {AVG_POOL, {2, 3, 30, 27}},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

/* Of x around 3; the weights around 1. */
static outcome run_norm(gd_context *ctx, gd_dtype dtype, const void *problem_)
{
    const problem *p = problem_;
    uint64_t seed = 3;
    gd_tensor *x = random_leaf(ctx, dtype, 4, p->x, 1, 5, &seed);
    gd_tensor *w = random_leaf(ctx, dtype, 1, &p->x[1], 0.5, 1.5, &seed);
    gd_tensor *b = random_leaf(ctx, dtype, 1, &p->x[1], -1, 1, &seed);
    const gd_pool_options pairs = {.kernel = {2, 2}};
    gd_tensor *y = p->groups == 0          ? gd_batch_norm(x, w, b, NULL)
                   : p->groups == MAX_POOL ? gd_max_pool2d(x, &pairs)
                   : p->groups == AVG_POOL ? gd_avg_pool2d(x, &pairs)
                                           : gd_group_norm(x, p->groups, w, b, 1e-5);
    gd_keep(y);
    ck_assert_no_error(ctx);
    gd_tensor *dy = random_leaf(ctx, dtype, 4, gd_tensor_shape(y), -1, 1, &seed);
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
    ck_assert_no_error(ctx);
    outcome out = {0};
    add_part(&out, "y", y);
    add_part(&out, "dx", gd_grad(x));
    if (p->groups >= 0) {
        add_part(&out, "dw", gd_grad(w));
        add_part(&out, "db", gd_grad(b));
    }
    ck_assert_no_error(ctx);
    gd_step_end(ctx);
    return out;
}

LOOP_TEST(float64_is_that_of_the_cpu, test_brief() ? 0 : PROBLEMS)
{
    compare_with_cpu(run_norm, GD_FLOAT64, &problems[_i], 1e-12);
}

LOOP_TEST(float32_is_that_of_the_cpu, PROBLEMS)
{
    compare_with_cpu(run_norm, GD_FLOAT32, &problems[_i], 2e-5);
}

LOOP_TEST(bfloat16_is_that_of_the_cpu, test_brief() ? 0 : PROBLEMS)
{
    compare_with_cpu(run_norm, GD_BFLOAT16, &problems[_i], 0x1p-7);
}

typedef struct learner {
    gd_params *params;
    gd_optimizer *optimizer;
    gd_tensor *x, *weight;
    gd_batch_norm_options norm;
} learner;

static gd_status learn(void *user)
{
    const learner *l = user;
    gd_tensor *y = gd_batch_norm(l->x, l->weight, NULL, &l->norm);
    gd_optimizer_backward(l->optimizer, gd_mean_all(gd_sin(y)), 1);
    gd_optimizer_update(l->optimizer, 1);
    return gd_params_clear_grads(l->params);
}

/* In float16 65536 is infinite, and so is the gradient of the loss; and then x is. */
LOOP_TEST(a_withheld_update_leaves_the_running_statistics, 2)
{
    enum { CHANNELS = 70 };
    gd_context *ctx = gpu_context();
    learner l = {.params = gd_params_create(ctx, GD_FLOAT16)};
    l.weight = gd_params_add(l.params, "weight", GD_SHAPE(CHANNELS), 0);
    l.norm.mean = gd_params_add_buffer(l.params, "mean", GD_FLOAT32, GD_SHAPE(CHANNELS));
    l.norm.var = gd_params_add_buffer(l.params, "var", GD_FLOAT32, GD_SHAPE(CHANNELS));
    gd_params_finish(l.params);
    l.optimizer = gd_adamw_create(l.params, NULL);
    l.x = gd_tensor_create(ctx, GD_FLOAT16, GD_SHAPE(20, CHANNELS));
    gd_tensor_fill(l.norm.var, 1), gd_tensor_fill(l.weight, 1);
    gd_graph *graph = gd_graph_create(ctx, &(gd_graph_options){.off = _i});
    gd_optimizer_set_rate(l.optimizer, 0.01);
    for (int step = 0; step < 12; step++) {
        float before[2][CHANNELS], after[2][CHANNELS];
        gd_update_report report;
        const int64_t factor = step % 3 == 1 ? 65536 : 1024;
        gd_optimizer_set_loss_scale(l.optimizer, (gd_loss_scale){.adapts = true, .factor = factor});
        gd_random_normal(l.x, 2, 1);
        if (step % 3 == 2) gd_tensor_fill(l.x, INFINITY);
        if (step == 7) gd_tensor_fill(l.norm.mean, 5); /* stays */
        gd_tensor_read(l.norm.mean, before[0], sizeof before[0]);
        gd_tensor_read(l.norm.var, before[1], sizeof before[1]);
        gd_graph_run(graph, learn, &l);
        gd_optimizer_report(l.optimizer, true, &report);
        gd_optimizer_continue(l.optimizer);
        gd_tensor_read(l.norm.mean, after[0], sizeof after[0]);
        gd_tensor_read(l.norm.var, after[1], sizeof after[1]);
        ck_assert_no_error(ctx);
        static const gd_update_outcome outcomes[] = {GD_UPDATE_MADE, GD_UPDATE_OVERFLOWED,
                                                     GD_UPDATE_NOT_FINITE};
        ck_assert_int_eq(report.outcome, outcomes[step % 3]);
        for (int c = 0; c < CHANNELS; c++) {
            ck_assert(isfinite(after[0][c]) && isfinite(after[1][c]));
            ck_assert_int_eq(before[0][c] != after[0][c], step % 3 == 0);
            ck_assert_int_eq(before[1][c] != after[1][c], step % 3 == 0);
        }
    }
    gd_graph_free(graph);
    gd_optimizer_free(l.optimizer);
    gd_params_free(l.params);
    gd_tensor_free(l.x);
    gd_context_free(ctx);
}

CHECK_MAIN_GPU(false, "norms and pooling on a GPU", NULL, NULL)
