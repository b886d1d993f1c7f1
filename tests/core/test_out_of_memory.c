/* test_out_of_memory.c - every allocation of host memory made to fail in turn, once and for good,
 * in the forward and backward of every op, in its gradients by ops and in a step of training. Each
 * time there must be an error and no leak, and the context must work afterwards. */
#include "check_main.h"
#include "counted_memory.h"

#include <stdio.h>
#include <string.h>

/* ---- What is run -------------------------------------------------------------------------- */

typedef gd_status (*job)(gd_context *ctx, const void *what);

/* Makes the inputs of a case as its record says, roughly: gradients do not matter here. */
static gd_tensor *case_input(gd_context *ctx, const gd_case_input *input)
{
    bool index = input->fill == GD_FILL_INDEX;
    gd_tensor *t = gd_tensor_create(ctx, index ? GD_INT32 : GD_FLOAT32, input->ndim, input->shape);
    gd_tensor_fill(t, index ? input->a : input->fill == GD_FILL_UNIFORM ? input->a : 1);
    if (!index && !input->fixed) gd_tensor_set_requires_grad(t, true);
    return t;
}

typedef struct op_case {
    const gd_op *op;
    const gd_case *one;
    bool by_ops;
} op_case;

/* A backward; or its gradients by ops, their gradients by the kernels, and by ops again in products
 * with Jacobians. */
static gd_status run_case(gd_context *ctx, const void *what)
{
    const op_case *c = what;
    const gd_gradients_options by_ops = {.differentiable = true, .zeros = true};
    const gd_gradients_options numbers = {.keep_tape = true, .zeros = true};
    gd_tensor *inputs[GD_CASE_MAX_INPUTS] = {NULL}, *outputs[8] = {NULL};
    gd_tensor *wanted[GD_CASE_MAX_INPUTS], *g[GD_CASE_MAX_INPUTS], *h[GD_CASE_MAX_INPUTS];
    int n = 0, count = 0;
    for (int i = 0; i < c->one->inputs; i++) {
        if (!c->one->input[i].absent) inputs[i] = case_input(ctx, &c->one->input[i]);
        if (gd_tensor_requires_grad(inputs[i])) wanted[n++] = inputs[i];
    }
    if (!gd_apply_multi(c->op, inputs, c->one->inputs, c->one->args, outputs)) {
        for (int i = 0; i < gd_op_count(c->op).outputs; i++)
            if (gd_tensor_requires_grad(outputs[i])) outputs[count++] = outputs[i];
        if (count && !c->by_ops) gd_backward_from(outputs, count, NULL);
        if (count && c->by_ops && !gd_gradients(outputs, count, &by_ops, wanted, n, g))
            gd_gradients(g, n, &numbers, wanted, n, h);
        if (count && c->by_ops) gd_jvp(outputs, count, wanted, wanted, n, NULL, outputs);
    }
    gd_step_end(ctx);
    for (int i = 0; i < c->one->inputs; i++) gd_tensor_free(inputs[i]);
    return gd_error_status(ctx);
}

static gd_tensor *segment(void *user, gd_tensor *const *inputs, int count)
{
    (void)user, (void)count;
    return gd_mul(inputs[0], gd_exp(inputs[0]));
}

/* What cases do not have: views that kernels pack, 16 bits and float64, a segment that is computed
 * again, writing to a view and reading it, an op of one's own. */
static gd_status run_views(gd_context *ctx, const void *what)
{
    const gd_op *own = what;
    double values[24];
    gd_tensor *x = gd_tensor_create(ctx, GD_BFLOAT16, 4, (int64_t[]){1, 3, 4, 2});
    gd_tensor *w = gd_tensor_create(ctx, GD_FLOAT64, 2, (int64_t[]){3, 8});
    gd_tensor_set_requires_grad(x, true);
    gd_tensor_set_requires_grad(w, true);
    gd_tensor_fill(gd_transpose(x, 2, 3), 1);
    gd_tensor_read_f64(gd_transpose(x, 2, 3), values, 24);
    if (!gd_find_op(ctx, own->name)) gd_register_op(ctx, own);
    gd_tensor *across = gd_transpose(gd_cast(x, GD_FLOAT32), 2, 3); /* [1, 3, 2, 4] */
    gd_tensor *y = gd_attention(across, across, across, NULL);
    y = gd_recompute(ctx, segment, NULL, &y, 1);
    y = gd_cast(gd_reshape(gd_transpose(y, 2, 3), 2, (int64_t[]){8, 3}), GD_FLOAT64);
    y = gd_add(gd_transpose(y, 0, 1), gd_apply(own, &w, 1, NULL));
    gd_tensor *loss = gd_sum(gd_mul(y, y), NULL, 0, false), *Hw = NULL;
    gd_hvp(loss, &w, &w, 1, NULL, &Hw);
    gd_backward(loss);
    gd_step_end(ctx);
    gd_tensor_free(x);
    gd_tensor_free(w);
    return gd_error_status(ctx);
}

typedef struct small_model {
    gd_params *params;
    gd_tensor *w, *g, *x, *targets;
    gd_optimizer *adamw, *muon;
} small_model;

static gd_tensor *loss_of(const small_model *m)
{
    gd_tensor *h = gd_dropout(gd_rms_norm(m->x, m->g, 1e-5), 0.5);
    return gd_cross_entropy(gd_linear(h, m->w, NULL), m->targets);
}

static gd_status graph_step(void *user)
{
    const small_model *m = user;
    gd_optimizer_backward(m->adamw, loss_of(m), 1);
    gd_optimizer_update(m->adamw, 1);
    return gd_params_clear_grads(m->params);
}

/* Steps of a small model with everything a training loop calls. */
static gd_status run_training(gd_context *ctx, const void *what)
{
    const gd_dtype dtype = *(const gd_dtype *)what;
    small_model m = {.params = gd_params_create(ctx, dtype)};
    m.w = gd_params_add(m.params, "w", 2, (int64_t[]){8, 6}, GD_DECAY | GD_MUON);
    m.g = gd_params_add(m.params, "g", 1, (int64_t[]){6}, 0);
    gd_params_finish(m.params);
    m.adamw = gd_adamw_create(m.params, NULL);
    m.muon = gd_muon_create(m.params, NULL);
    gd_optimizer_average(m.muon, 0.9);
    m.x = gd_tensor_create(ctx, dtype, 2, (int64_t[]){5, 6});
    m.targets = gd_tensor_create(ctx, GD_INT32, 1, (int64_t[]){5});
    gd_init_orthogonal(m.w, 1);
    gd_init_truncated_normal(m.x, 0, 1, -2, 2);
    gd_tensor_fill(m.g, 1);
    for (int step = 0; step < 2; step++) {
        gd_backward(loss_of(&m));
        gd_params_scale_grads(m.params, 0.5);
        gd_clip_grad_norm(m.params, 1, NULL);
        gd_optimizer_step(step ? m.muon : m.adamw, 0.1);
        gd_params_clear_grads(m.params);
        gd_step_end(ctx);
    }
    gd_optimizer_swap_average(m.muon);
    gd_graph *graph = gd_graph_create(ctx, NULL);
    gd_graph_run(graph, graph_step, &m);
    gd_graph_free(graph);
    gd_optimizer_free(m.muon);
    gd_optimizer_free(m.adamw);
    gd_params_free(m.params);
    gd_tensor_free(m.x);
    gd_tensor_free(m.targets);
    return gd_error_status(ctx);
}

/* ---- Failing ------------------------------------------------------------------------------ */

static int64_t points;

/* One point: the `fail_at`-th allocation fails. Returns false when the job needs fewer. */
static bool fail_once(job run, const void *what, const char *name, int64_t fail_at, bool for_good)
{
    counted = (counted_memory){.fails_at = fail_at, .for_good = for_good};
    gd_context *ctx = gd_context_create(&(gd_context_options){.allocator = counting, .seed = 3});
    gd_status status = ctx ? run(ctx, what) : GD_ERROR_MEMORY;
    if (counted.failed) {
        points++;
        /* One failure the pool may survive, by giving back the blocks that it held. */
        ck_assert_msg(status == GD_ERROR_MEMORY || (status == GD_OK && !for_good),
                      "%s: allocation %lld failed%s, but the status is %s", name,
                      (long long)fail_at, for_good ? " for good" : "", gd_status_name(status));
        counted.fails_at = -1;
        gd_error_clear(ctx);
        if (ctx) ck_assert_msg(!run(ctx, what), "%s: afterwards: %s", name, gd_error(ctx));
    } else {
        ck_assert_msg(status == GD_OK, "%s: %s", name, gd_error(ctx));
    }
    gd_context_free(ctx);
    ck_assert_msg(counted.blocks == 0 && counted.bytes == 0,
                  "%s: allocation %lld failed%s: %lld blocks leaked", name, (long long)fail_at,
                  for_good ? " for good" : "", (long long)counted.blocks);
    return counted.failed;
}

static void fail_everywhere(job run, const void *what, const char *name)
{
    for (int for_good = 0; for_good < 2; for_good++) {
        for (int64_t i = 0; fail_once(run, what, name, i, for_good); i++) continue;
    }
}

TEST(every_op)
{
    points = 0;
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++) {
        for (int k = 0; k < op->case_count; k++) {
            op_case what = {op, &op->cases[k], false};
            if (k < 3 || k == op->case_count - 1) fail_everywhere(run_case, &what, op->name);
            what.by_ops = k == 0 && gd_op_has_backward(op, GD_CPU);
            if (what.by_ops) fail_everywhere(run_case, &what, op->name);
        }
    }
    ck_assert_int_gt(points, 1000);
}

TEST(views)
{
    points = 0;
    gd_op own = *gd_find_op(NULL, "exp");
    own.name = "own";
    fail_everywhere(run_views, &own, "views");
    ck_assert_int_gt(points, 50);
}

LOOP_TEST(a_training_step, 2)
{
    static const gd_dtype dtypes[] = {GD_FLOAT32, GD_BFLOAT16};
    points = 0;
    fail_everywhere(run_training, &dtypes[_i], "training");
    ck_assert_int_gt(points, 50);
}

CHECK_MAIN("out of memory")
