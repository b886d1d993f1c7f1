/* test_cuda_gradients.c - gradients of gradients on a GPU: those of the CPU in every case of every
 * record, and in a step that is a graph those of a step that is not. */
#include <stdlib.h>

#include "gpu.h"
#include "op_test.h"

enum { MOST = GD_CASE_MAX_INPUTS, MOST_OUTPUTS = 4, ELEMENTS = 64 * 16 };

/* ---- Every op ----------------------------------------------------------------------------- */

static void fill(gd_tensor *t, const gd_case_input *how, uint64_t *seed)
{
    const int64_t n = gd_tensor_count(t);
    double *x = calloc((size_t)n + 1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (int64_t i = 0; i < n; i++) {
        const double u = random_in(seed, 0, 1), width = how->b == 0 ? 1 : how->b;
        switch (how->fill) {
        case GD_FILL_NORMAL:
        case GD_FILL_DISTINCT:
            x[i] = how->a + width * (3.4 * u - 1.7);
            break;
        case GD_FILL_UNIFORM:
            x[i] = how->a + (how->b - how->a) * u;
            break;
        case GD_FILL_CONSTANT:
            x[i] = how->a;
            break;
        case GD_FILL_INDEX:
            x[i] = floor(how->a + (how->b - how->a) * u);
            break;
        }
    }
    ck_assert_int_eq(gd_tensor_write_f64(t, x, n), GD_OK);
    free(x);
}

/* The gradient by the inputs of (the sum of the gradients, each times constant numbers), as
 * numbers: one row for each input. False if the op has no second derivative at all. */
static bool second_order(gd_context *ctx, const gd_op *op, const gd_case *c, double *result[MOST])
{
    static const gd_case_input normal = {.fill = GD_FILL_NORMAL};
    gd_tensor *in[MOST] = {NULL}, *wanted[MOST], *weight[MOST], *y[MOST_OUTPUTS], *g[MOST],
              *h[MOST];
    uint64_t seed = 11;
    int n = 0, count = 0;
    for (int i = 0; i < c->inputs; i++) {
        const gd_case_input *how = &c->input[i];
        if (how->absent) continue;
        const bool index = how->fill == GD_FILL_INDEX;
        in[i] = gd_tensor_create(ctx, index ? GD_INT32 : GD_FLOAT64, how->ndim, how->shape);
        fill(in[i], how, &seed);
        if (how->fixed || index) continue;
        gd_tensor_set_requires_grad(in[i], true);
        weight[n] = gd_tensor_create(ctx, GD_FLOAT64, how->ndim, how->shape);
        fill(weight[n], &normal, &seed);
        wanted[n++] = in[i];
    }
    gd_random_set(ctx, (gd_random_state){3, 0});
    gd_apply_multi(op, in, c->inputs, c->args, y);
    for (int i = 0; i < gd_op_count(op).outputs && !gd_error(ctx); i++)
        if (gd_tensor_requires_grad(y[i])) y[count++] = gd_mul(y[i], y[i]);
    gd_gradients_options options = {.differentiable = true, .zeros = true};
    bool there = n && count && !gd_gradients(y, count, &options, wanted, n, g);
    options = (gd_gradients_options){.cotangents = weight, .zeros = true};
    there = there && !gd_gradients(g, n, &options, wanted, n, h);
    for (int i = 0; i < n && there; i++) {
        const int64_t elements = gd_tensor_count(h[i]);
        result[i] = calloc((size_t)elements + 1, sizeof **result);
        gd_tensor_read_f64(h[i], result[i], elements);
    }
    gd_step_end(ctx);
    for (int i = 0; i < c->inputs; i++) gd_tensor_free(in[i]);
    for (int i = 0; i < n; i++) gd_tensor_free(weight[i]);
    ck_assert_msg(!gd_error(ctx), "%s %s: %s", op->name, c->name, gd_error(ctx));
    return there;
}

static void compare(gd_context *gpu, gd_context *cpu, const gd_op *op, const gd_case *c, int *wrong)
{
    double *right[MOST] = {NULL}, *got[MOST] = {NULL};
    const bool there = second_order(cpu, op, c, right);
    ck_assert(second_order(gpu, op, c, got) == there);
    for (int i = 0, k = 0; i < c->inputs; i++) {
        const gd_case_input *how = &c->input[i];
        if (how->absent || how->fixed || how->fill == GD_FILL_INDEX || !there) continue;
        int64_t n = 1;
        double largest = 0, error = 0;
        for (int d = 0; d < how->ndim; d++) n *= how->shape[d];
        for (int64_t j = 0; j < n; j++) {
            largest = fmax(largest, fabs(right[k][j]));
            if (got[k][j] != right[k][j] && !(isnan(got[k][j]) && isnan(right[k][j])))
                error = fmax(error, fabs(got[k][j] - right[k][j]));
        }
        if (!(error <= 1e-9 * largest + 1e-300)) {
            printf("%s %s: input %d is off by %g of %g\n", op->name, c->name, i, error, largest);
            ++*wrong;
        }
        k++;
    }
    for (int i = 0; i < MOST; i++) free(right[i]), free(got[i]);
}

TEST(every_op_as_on_the_cpu)
{
    gd_context *gpu = gpu_context(), *cpu = watched_context((gd_context_options){.seed = 1});
    const gd_op *op;
    int wrong = 0, cases = 0;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++) {
        for (int k = 0; k < op->case_count && gd_op_has_backward(op, GD_CUDA); k++, cases++)
            compare(gpu, cpu, op, &op->cases[k], &wrong);
    }
    printf("%d cases, %d wrong\n", cases, wrong);
    ck_assert_int_gt(cases, 500);
    ck_assert_int_eq(wrong, 0);
    gd_context_free(gpu);
    gd_context_free(cpu);
}

/* ---- A step with gradients in its loss, as a graph ---------------------------------------- */

typedef struct model {
    gd_context *ctx;
    gd_params *params;
    gd_optimizer *optimizer;
    gd_tensor *w, *out, *x;
    double p; /* of dropout */
} model;

/* The gradient of the outputs by x is to have length 1, with dropout on the way. */
static gd_status penalty_step(void *user)
{
    model *m = user;
    const gd_gradients_options options = {.differentiable = true};
    gd_tensor *h = gd_dropout(gd_tanh(gd_linear(m->x, m->w, NULL)), m->p);
    gd_tensor *y = gd_linear(h, m->out, NULL), *g = NULL;
    gd_gradients(&y, 1, &options, &m->x, 1, &g);
    gd_tensor *length = gd_norm(g, 2, (const int[]){-1}, 1, false);
    gd_tensor *off = gd_add_scalar(length, -1);
    gd_optimizer_backward(m->optimizer, gd_mean_all(gd_mul(off, off)), 1);
    gd_optimizer_update(m->optimizer, 1);
    gd_grad_clear(m->x);
    return gd_params_clear_grads(m->params);
}

static void make(model *m, gd_device device)
{
    *m = (model){.ctx = watched_context((gd_context_options){.device = device, .seed = 1}),
                 .p = 0.2};
    m->params = gd_params_create(m->ctx, GD_FLOAT32);
    m->w = gd_params_add(m->params, "w", GD_SHAPE(64, 16), 0);
    m->out = gd_params_add(m->params, "out", GD_SHAPE(1, 64), 0);
    gd_params_finish(m->params);
    m->x = gd_tensor_create(m->ctx, GD_FLOAT32, GD_SHAPE(32, 16));
    gd_tensor *all[] = {m->w, m->out, m->x};
    uint64_t seed = 5;
    static const gd_case_input normal = {.fill = GD_FILL_NORMAL, .b = 0.3};
    for (int i = 0; i < 3; i++) fill(all[i], &normal, &seed);
    gd_tensor_set_requires_grad(m->x, true);
    m->optimizer = gd_adamw_create(m->params, NULL);
    gd_optimizer_set_rate(m->optimizer, 0.01);
    ck_assert_no_error(m->ctx);
}

static void run(gd_device device, bool off, float *w)
{
    model m;
    make(&m, device);
    gd_graph *graph = gd_graph_create(m.ctx, &(gd_graph_options){.off = off});
    for (int step = 0; step < 8; step++) gd_graph_run(graph, penalty_step, &m);
    if (device == GD_CUDA && !off) ck_assert_int_gt(gd_graph_count(graph).replays, 4);
    gd_tensor_read(m.w, w, ELEMENTS * sizeof *w);
    ck_assert_no_error(m.ctx);
    gd_graph_free(graph);
    gd_optimizer_free(m.optimizer);
    gd_params_free(m.params);
    gd_context_free(m.ctx);
}

TEST(a_step_as_a_graph)
{
    static float captured[ELEMENTS], called[ELEMENTS], cpu[ELEMENTS];
    run(GD_CUDA, false, captured);
    run(GD_CUDA, true, called);
    run(GD_CPU, true, cpu);
    ck_assert_mem_eq(captured, called, sizeof captured);
    for (int i = 0; i < ELEMENTS; i++) ck_assert_float_eq_tol(captured[i], cpu[i], 2e-3f);
}

CHECK_MAIN_GPU(false, "cuda_gradients", NULL, NULL)
