/* test_cuda_graph.c - steps that are captured and replayed on the GPU give the same bits as steps
 * launched kernel by kernel, whatever happens in between, and the host does not wait for them. */
#include <math.h>
#include <string.h>

#include "core/core.h"
#include "gpu.h"
#include "model.h"
#include "optim/services.h"
#include "optimizer_kinds.h"

enum { BATCH = 3, CONTEXT = 16, VOCAB = 29, TOKENS = BATCH * CONTEXT, STEPS = 50 };

/* A transformer that learns to predict its own random tokens, with everything that changes from
 * step to step: dropout, the rate, clipping, accumulation, the loss scale. */
typedef struct learner {
    model m;
    gd_optimizer *optimizer;
    gd_graph *graph;
    gd_tensor *tokens, *targets, *weight; /* the loss is multiplied by the weight */
    gd_update_report report[STEPS + 8];
    int64_t reports;
} learner;

typedef struct kind {
    const char *name;
    gd_dtype dtype;
    double dropout;
    bool recompute;
    int optimizer; /* of optimizer_of_kind; 0: AdamW */
    int accumulate;
} kind;

static const kind kinds[] = {
    {"float32, dropout", GD_FLOAT32, 0.1, .accumulate = 1},
    {"float32, no random numbers, two batches", GD_FLOAT32, 0, .accumulate = 2},
    {"float32, SGD", GD_FLOAT32, 0.1, .optimizer = 1, .accumulate = 1},
    {"float32, Adam", GD_FLOAT32, 0.1, .optimizer = 4, .accumulate = 1},
    {"float32, RMSprop", GD_FLOAT32, 0.1, .optimizer = 5, .accumulate = 1},
    {"float32, RMSprop, centered", GD_FLOAT32, 0.1, .optimizer = 6, .accumulate = 1},
    {"float32, Adagrad", GD_FLOAT32, 0.1, .optimizer = 7, .accumulate = 1},
    {"float32, Lion", GD_FLOAT32, 0.1, .optimizer = 8, .accumulate = 1},
    {"float32, Muon", GD_FLOAT32, 0.1, .optimizer = 9, .accumulate = 1},
    {"bfloat16, Lion", GD_BFLOAT16, 0.1, .optimizer = 8, .accumulate = 1},
    {"bfloat16, Muon", GD_BFLOAT16, 0.1, .optimizer = 9, .accumulate = 1},
    {"bfloat16, dropout, three batches", GD_BFLOAT16, 0.1, .accumulate = 3},
    {"bfloat16, recomputed", GD_BFLOAT16, 0.1, .recompute = true, .accumulate = 1},
    {"float16, loss scale", GD_FLOAT16, 0.1, .accumulate = 2},
    {"float16, RMSprop", GD_FLOAT16, 0.1, .optimizer = 6, .accumulate = 1},
    {"float16, Muon", GD_FLOAT16, 0.1, .optimizer = 9, .accumulate = 1},
    {"float64", GD_FLOAT64, 0.1, .accumulate = 1},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void make_batch(learner *l, int64_t rows)
{
    const int64_t shape[2] = {rows, CONTEXT};
    gd_tensor_free(l->tokens);
    gd_tensor_free(l->targets);
    l->tokens = gd_tensor_create(l->m.ctx, GD_INT32, 2, shape);
    l->targets = gd_tensor_create(l->m.ctx, GD_INT32, 2, shape);
}

static learner *make(const kind *k, bool replay)
{
    const model_config config = {.vocab = VOCAB,
                                 .layers = 2,
                                 .dim = 48,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .ffn = 96,
                                 .dropout = k->dropout,
                                 .recompute = k->recompute};
    learner *l = calloc(1, sizeof *l);
    gd_context *ctx = gpu_context();
    model_create(&l->m, ctx, k->dtype, &config);
    l->m.training = true;
    l->optimizer = optimizer_of_kind(l->m.params, k->optimizer ? k->optimizer : 3);
    gd_optimizer_average(l->optimizer, 0.99);
    gd_loss_scale scale = gd_loss_scale_begin(k->dtype);
    if (scale.adapts) scale.factor = 1 << 24; /* too large, so that it must decrease first */
    gd_optimizer_set_loss_scale(l->optimizer, scale);
    const bool wide = k->dtype == GD_FLOAT64;
    l->weight = gd_tensor_create(ctx, wide ? GD_FLOAT64 : GD_FLOAT32, 0, NULL);
    make_batch(l, BATCH);
    l->graph = gd_graph_create(ctx, &(gd_graph_options){.off = !replay});
    ck_assert_no_error(ctx);
    return l;
}

static void destroy(learner *l)
{
    gd_context *ctx = l->m.ctx;
    ck_assert_no_error(ctx);
    gd_graph_free(l->graph);
    gd_optimizer_free(l->optimizer);
    model_free(&l->m);
    gd_context_free(ctx);
    free(l);
}

static gd_tensor *loss_of(learner *l)
{
    return gd_mul(model_loss(&l->m, l->tokens, l->targets), l->weight);
}

/* ---- A step -------------------------------------------------------------------------------- */

typedef struct share {
    learner *l;
    int accumulate;
} share;

static gd_status learn_batch(void *user)
{
    const share *s = user;
    return gd_optimizer_backward(s->l->optimizer, loss_of(s->l), 1 / (double)s->accumulate);
}

static gd_status learn_last(void *user)
{
    const share *s = user;
    learn_batch(user);
    gd_optimizer_update(s->l->optimizer, 0.7); /* most steps are clipped */
    return gd_params_clear_grads(s->l->m.params);
}

static void draw(learner *l, int step, int k)
{
    int32_t text[TOKENS + 1];
    uint32_t state = (uint32_t)(7 + 31 * step + k);
    for (int i = 0; i <= TOKENS; i++) {
        state = state * 1664525u + 1013904223u;
        text[i] = i && state >> 30 ? (5 * text[i - 1] + 1) % VOCAB : (int32_t)(state >> 8) % VOCAB;
    }
    const size_t bytes = (size_t)gd_tensor_count(l->tokens) * sizeof *text;
    gd_tensor_write(l->tokens, text, bytes);
    gd_tensor_write(l->targets, text + 1, bytes);
}

static void ask(share *s, int step, double weight)
{
    learner *l = s->l;
    gd_optimizer_set_rate(l->optimizer, 3e-3 * (step % 10 + 1) / 10);
    gd_tensor_write_f64(l->weight, &weight, 1);
    for (int k = 0; k < s->accumulate; k++) {
        draw(l, step, k);
        gd_graph_run(l->graph, k + 1 < s->accumulate ? learn_batch : learn_last, s);
    }
}

static void take(learner *l, bool wait)
{
    while (gd_optimizer_report(l->optimizer, wait, &l->report[l->reports])) l->reports++;
    ck_assert_no_error(l->m.ctx);
}

/* ---- Comparing ----------------------------------------------------------------------------- */

static void read_block(const gd_tensor *t, void **data, size_t *bytes)
{
    *bytes = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
    *data = malloc(*bytes);
    gd_tensor_read(t, *data, *bytes);
}

static void compare_tensors(const gd_tensor *a, const gd_tensor *b, const char *what)
{
    void *left, *right;
    size_t bytes, other;
    read_block(a, &left, &bytes);
    read_block(b, &right, &other);
    ck_assert_uint_eq(bytes, other);
    ck_assert_msg(!memcmp(left, right, bytes), "%s differs", what);
    free(left), free(right);
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Compares weights, the optimizer's state, reports, the loss scale, and the random state. */
static void compare(learner *a, learner *b)
{
    take(a, true);
    take(b, true);
    ck_assert_int_eq(a->reports, b->reports);
    for (int i = 0; i < a->reports; i++) {
        const gd_update_report *r = &a->report[i], *s = &b->report[i];
        ck_assert_int_eq(r->number, s->number);
        ck_assert_msg(r->outcome == s->outcome && same(r->loss, s->loss) &&
                          same(r->norm, s->norm) && r->rate == s->rate &&
                          r->loss_scale == s->loss_scale,
                      "report %d: %d %.9g %.9g %g %g, without a graph %d %.9g %.9g %g %g", i,
                      (int)r->outcome, r->loss, r->norm, r->rate, r->loss_scale, (int)s->outcome,
                      s->loss, s->norm, s->rate, s->loss_scale);
        const double took = i ? r->time - r[-1].time : 1; /* by the device's clock */
        ck_assert_msg(took > 1e-6 && took < 600, "update %d took %g s", i, took);
    }
    for (int i = 0; i < gd_params_count(a->m.params); i++) {
        const gd_tensor *t = gd_params_at(a->m.params, i);
        compare_tensors(t, gd_params_at(b->m.params, i), gd_tensor_name(t));
    }
    for (int i = 0; gd_optimizer_state(a->optimizer, i); i++)
        compare_tensors(gd_optimizer_state(a->optimizer, i), gd_optimizer_state(b->optimizer, i),
                        "the optimizer's state");
    ck_assert_int_eq(gd_optimizer_steps(a->optimizer), gd_optimizer_steps(b->optimizer));
    const gd_loss_scale p = gd_optimizer_loss_scale(a->optimizer);
    const gd_loss_scale q = gd_optimizer_loss_scale(b->optimizer);
    ck_assert(p.factor == q.factor && p.good == q.good);
    ck_assert_uint_eq(gd_random_get(a->m.ctx).offset, gd_random_get(b->m.ctx).offset);
    ck_assert_no_error(a->m.ctx);
    ck_assert_no_error(b->m.ctx);
}

/* ---- Graph against no graph ---------------------------------------------------------------- */

/* Under a sanitizer fewer. */
static int steps_of_a_run(void)
{
    return test_brief() ? 12 : STEPS;
}

/* One of the steps is not finite, and the steps queued after it are withheld. The host may be ahead
 * by as many steps as there are slots, so it must take reports after each step: those that are
 * unread at the ninth update are lost (gd_optimizer_report). */
static void run(learner *l, int accumulate)
{
    share s = {l, accumulate};
    for (int step = 0; step < steps_of_a_run(); step++) {
        const bool bad = step == steps_of_a_run() / 2;
        const int steps = bad ? 3 : 1; /* the host queues two more before it knows */
        for (int k = 0; k < steps; k++) {
            ask(&s, step + k, bad && k == 0 ? NAN : 1);
            take(l, false);
        }
        if (bad) {
            take(l, true);
            ck_assert_int_eq(l->report[l->reports - 3].outcome, GD_UPDATE_NOT_FINITE);
            ck_assert_int_eq(l->report[l->reports - 1].outcome, GD_UPDATE_WITHHELD);
            gd_optimizer_continue(l->optimizer);
        }
    }
}

LOOP_TEST(a_replayed_step_has_the_same_bits, test_brief() ? 1 : KINDS) /* under a sanitizer */
{
    const kind *k = &kinds[_i];
    if (gpu_refuses(k->dtype)) return;
    const int steps = steps_of_a_run();
    learner *graph = make(k, true), *plain = make(k, false);
    run(graph, k->accumulate);
    run(plain, k->accumulate);
    compare(graph, plain);
    ck_assert_int_eq(graph->reports, steps + 2);
    int clipped = 0, overflowed = 0;
    for (int i = 0; i < graph->reports; i++) {
        clipped += graph->report[i].outcome == GD_UPDATE_MADE && graph->report[i].norm > 0.7;
        overflowed += graph->report[i].outcome == GD_UPDATE_OVERFLOWED;
    }
    const gd_graph_counts counts = gd_graph_count(graph->graph);
    printf("%s: %d of %d clipped, %d overflows, %d captures, %d replays, last loss %.4f\n", k->name,
           clipped, steps, overflowed, (int)counts.captures, (int)counts.replays,
           graph->report[graph->reports - 1].loss);
    ck_assert_int_gt(clipped, 5);
    ck_assert_int_eq(overflowed > 0, k->dtype == GD_FLOAT16);
    ck_assert_int_eq(counts.captures, k->accumulate); /* the first, the middle, the last batch */
    ck_assert_int_eq(counts.replays, (steps + 2 - 1) * k->accumulate);
    ck_assert_int_eq(gd_graph_count(plain->graph).replays, 0);
    destroy(graph);
    destroy(plain);
}

/* ---- Other work between replays ------------------------------------------------------------ */

static double validate(learner *l)
{
    gd_random_state before = gd_random_get(l->m.ctx);
    l->m.training = false;
    gd_no_grad_begin(l->m.ctx);
    draw(l, 1000, 0);
    double loss = gd_item(model_loss(&l->m, l->tokens, l->targets));
    gd_no_grad_end(l->m.ctx);
    gd_step_end(l->m.ctx);
    l->m.training = true;
    gd_random_set(l->m.ctx, before);
    return loss;
}

/* Validations, batches of other sizes, tensors created and freed, memory trimmed, the random state
 * set, parameters frozen for a while, and a step without gd_graph_run. */
static void run_with_breaks(learner *l, double *validation)
{
    share s = {l, 1};
    gd_context *ctx = l->m.ctx;
    gd_tensor *kept[8];
    const int64_t many = 100000;
    for (int step = 0; step < 40; step++) {
        if (step % 10 == 3) validation[step / 10] = validate(l);
        if (step % 5 == 0) make_batch(l, step % 10 ? BATCH : BATCH - 1);
        if (step == 12) gd_memory_trim(ctx);
        if (step % 8 == 4)
            gd_tensor_set_requires_grad(gd_params_at(l->m.params, 2), step % 16 == 4);
        if (step == 17 || step == 18)
            gd_random_set(ctx, (gd_random_state){.seed = 8, .offset = 41});
        if (step >= 20 && step < 28) { /* kept, and must not be overwritten */
            kept[step - 20] = gd_tensor_create(ctx, GD_FLOAT32, 1, &many);
            gd_tensor_fill(kept[step - 20], step);
        }
        if (step == 31) { /* without the graph */
            draw(l, step, 0);
            learn_last(&s);
            gd_step_end(ctx);
        } else {
            ask(&s, step, 1);
        }
        take(l, step % 7 == 0);
    }
    float *values = malloc((size_t)many * sizeof *values);
    for (int i = 0; i < 8; i++) {
        gd_tensor_read(kept[i], values, (size_t)many * sizeof *values);
        for (int64_t k = 0; k < many; k++) ck_assert(values[k] == (float)(20 + i));
        gd_tensor_free(kept[i]);
    }
    free(values);
}

LOOP_TEST(what_comes_between_does_not_matter, test_brief() ? 0 : KINDS)
{
    if (gpu_refuses(kinds[_i].dtype)) return;
    learner *graph = make(&kinds[_i], true), *plain = make(&kinds[_i], false);
    double left[4], right[4];
    run_with_breaks(graph, left);
    run_with_breaks(plain, right);
    compare(graph, plain);
    ck_assert_mem_eq(left, right, sizeof left);
    ck_assert_int_gt(gd_graph_count(graph->graph).captures, 2);
    ck_assert_int_gt(gd_graph_count(graph->graph).replays, 5);
    destroy(graph);
    destroy(plain);
}

/* ---- No waiting ---------------------------------------------------------------------------- */

LOOP_TEST(the_host_waits_for_no_warm_step, test_brief() ? 1 : KINDS)
{
    if (gpu_refuses(kinds[_i].dtype)) return;
    learner *l = make(&kinds[_i], true);
    share s = {l, 1};
    int step = 0;
    for (; step < 3; step++) ask(&s, step, 1); /* first, captured, replayed */
    take(l, true);
    const int64_t waits = l->m.ctx->waits;
    const uint64_t calls = gd_memory(l->m.ctx).system_calls;
    for (; step < 3 + GD_UPDATE_SLOTS - 1; step++) {
        ask(&s, step, 1);
        take(l, false);
    }
    ck_assert_int_eq(l->m.ctx->waits, waits);
    if (!l->m.ctx->options.guard) /* which asks the system for each block */
        ck_assert_uint_eq(gd_memory(l->m.ctx).system_calls, calls);
    take(l, true);
    ck_assert_int_eq(l->reports, 3 + GD_UPDATE_SLOTS - 1);
    destroy(l);
}

/* ---- Indices out of range ------------------------------------------------------------------ */

/* An error noted by a replayed kernel is reported, and the update is not made. */
TEST(a_bad_index_in_a_replay_is_reported)
{
    learner *l = make(&kinds[0], true), *before = make(&kinds[0], true);
    share s = {l, 1}, t = {before, 1};
    int32_t wrong = VOCAB;
    for (int step = 0; step < 5; step++) ask(&s, step, 1), ask(&t, step, 1);
    draw(l, 5, 0);
    gd_tensor *first = gd_slice(l->tokens, 0, 0, 1), *one = gd_slice(first, 1, 0, 1);
    gd_tensor_write(one, &wrong, sizeof wrong);
    gd_step_end(l->m.ctx);
    gd_graph_run(l->graph, learn_last, &s);
    draw(l, 6, 0);
    gd_graph_run(l->graph, learn_last, &s); /* asked for too early */
    gd_update_report report;
    while (gd_optimizer_report(l->optimizer, true, &report)) continue;
    ck_assert_error(l->m.ctx, "embedding: the index at position 0 is outside [0, 29)");
    take(l, true);
    l->reports = 0;
    compare_tensors(gd_params_at(l->m.params, 0), gd_params_at(before->m.params, 0), "a weight");
    ck_assert_int_eq(gd_optimizer_steps(l->optimizer), 5);
    gd_optimizer_continue(l->optimizer);
    ask(&s, 7, 1);
    take(l, true);
    ck_assert_int_eq(l->report[l->reports - 1].outcome, GD_UPDATE_MADE);
    destroy(l);
    destroy(before);
}

/* ---- Fills --------------------------------------------------------------------------------- */

typedef struct filler {
    gd_tensor *uniform, *normal, *whole;
} filler;

static gd_status fill_all(void *user)
{
    const filler *f = user;
    gd_random_uniform(f->uniform, -1, 1);
    gd_random_normal(f->normal, 0, 1);
    return gd_random_integers(f->whole, 0, 1000);
}

TEST(fills_move_on)
{
    filler f[2];
    gd_context *ctx[2];
    gd_graph *graph[2];
    for (int i = 0; i < 2; i++) {
        ctx[i] = gpu_context();
        f[i] = (filler){gd_tensor_create(ctx[i], GD_FLOAT32, GD_SHAPE(77)),
                        gd_tensor_create(ctx[i], GD_FLOAT64, GD_SHAPE(5)),
                        gd_tensor_create(ctx[i], GD_INT32, GD_SHAPE(9))};
        graph[i] = gd_graph_create(ctx[i], &(gd_graph_options){.off = i});
    }
    for (int turn = 0; turn < 6; turn++) {
        for (int i = 0; i < 2; i++) gd_graph_run(graph[i], fill_all, &f[i]);
        compare_tensors(f[0].uniform, f[1].uniform, "uniform");
        compare_tensors(f[0].normal, f[1].normal, "normal");
        compare_tensors(f[0].whole, f[1].whole, "integers");
    }
    ck_assert_int_eq(gd_graph_count(graph[0]).replays, 5);
    for (int i = 0; i < 2; i++) {
        ck_assert_no_error(ctx[i]);
        gd_graph_free(graph[i]);
        gd_context_free(ctx[i]);
    }
}

typedef struct batch_sum {
    gd_tensor *rows, *at, *sum;
} batch_sum;

static gd_status sum_rows(void *user)
{
    const batch_sum *b = user;
    return gd_tensor_copy(b->sum, gd_sum_all(gd_index_select(b->rows, 0, b->at)));
}

/* Three batches of an epoch have four examples, and the last has two: one more capture. */
TEST(batches_are_read_by_replays)
{
    const float rows[14] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
    const gd_batches_options options = {.size = 4};
    gd_context *ctx = gpu_context();
    gd_graph *graph = gd_graph_create(ctx, NULL);
    gd_batches *batches = gd_batches_create(ctx, 14, &options);
    batch_sum b = {gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(14), rows), NULL,
                   gd_tensor_create(ctx, GD_FLOAT32, 0, NULL)};
    for (int i = 0; i < 12; i++) {
        int32_t at[4];
        double sum = 0;
        b.at = gd_batches_next(batches);
        const int64_t count = gd_tensor_count(b.at);
        ck_assert_int_eq(count, i % 4 < 3 ? 4 : 2);
        gd_graph_run(graph, sum_rows, &b);
        gd_tensor_read(b.at, at, (size_t)count * sizeof *at);
        for (int64_t k = 0; k < count; k++) sum += (double)rows[at[k]];
        ck_assert_double_eq(gd_item(b.sum), sum);
    }
    ck_assert_no_error(ctx);
    ck_assert_int_eq(gd_graph_count(graph).captures, 2);
    gd_batches_free(batches);
    gd_graph_free(graph);
    gd_context_free(ctx);
}

/* The context still works after a function has failed during its capture. */
static gd_status fail_the_second_time(void *user)
{
    int *calls = user;
    return ++*calls == 2 ? GD_ERROR_IO : GD_OK;
}

TEST(a_failed_capture_leaves_nothing)
{
    learner *l = make(&kinds[0], true);
    share s = {l, 1};
    int calls = 0;
    ck_assert_int_eq(gd_graph_run(l->graph, fail_the_second_time, &calls), GD_OK);
    ck_assert_int_eq(gd_graph_run(l->graph, fail_the_second_time, &calls), GD_ERROR_IO);
    ck_assert_error(l->m.ctx, "graph_run: its function failed");
    for (int step = 0; step < 4; step++) ask(&s, step, 1);
    take(l, true);
    ck_assert_int_eq(l->reports, 4);
    destroy(l);
}

CHECK_MAIN_GPU(false, "graphs on the GPU", NULL, NULL)
