/* test_graph.c - gd_graph_run on the CPU, where it calls the function; what it refuses; what the
 * capture on a GPU relies on; and in which order gradients are told to be complete. */
#include <math.h>
#include <string.h>

#include "check_main.h"
#include "optim/graph.h"

enum { ROWS = 6, WIDTH = 5, LAYERS = 3 };

typedef struct net {
    gd_context *ctx;
    gd_params *params;
    gd_tensor *w[LAYERS], *x;
    gd_optimizer *optimizer;
    double dropout;
    bool recompute;
} net;

static net make(void)
{
    net n = {.ctx = gd_context_create(&(gd_context_options){.seed = 5, .threads = 1})};
    n.params = gd_params_create(n.ctx, GD_FLOAT32);
    for (int i = 0; i < LAYERS; i++) {
        const char name[2] = {(char)('a' + i), '\0'};
        n.w[i] = gd_params_add(n.params, name, GD_SHAPE(WIDTH, WIDTH), GD_DECAY);
    }
    gd_params_finish(n.params);
    for (int i = 0; i < LAYERS; i++) gd_random_normal(n.w[i], 0, 0.5);
    n.x = gd_tensor_create(n.ctx, GD_FLOAT32, GD_SHAPE(ROWS, WIDTH));
    gd_random_normal(n.x, 0, 1);
    n.optimizer = gd_adamw_create(n.params, NULL);
    ck_assert_no_error(n.ctx);
    return n;
}

static void destroy(net *n)
{
    ck_assert_no_error(n->ctx);
    gd_optimizer_free(n->optimizer);
    gd_params_free(n->params);
    gd_context_free(n->ctx);
}

static gd_tensor *loss_of(net *n)
{
    gd_tensor *x = n->x;
    for (int i = 0; i < LAYERS; i++) {
        x = gd_tanh(gd_linear(x, n->w[i], NULL));
        if (n->dropout > 0) x = gd_dropout(x, n->dropout);
    }
    return gd_mean(x, NULL, 0, false);
}

static gd_status step(void *user)
{
    net *n = user;
    gd_optimizer_backward(n->optimizer, loss_of(n), 1);
    gd_optimizer_update(n->optimizer, 1);
    return gd_params_clear_grads(n->params);
}

/* ---- Running ------------------------------------------------------------------------------- */

LOOP_TEST(it_is_the_function_that_runs, 2)
{
    net by_graph = make(), by_hand = make();
    by_graph.dropout = by_hand.dropout = 0.3;
    gd_graph *graph = gd_graph_create(by_graph.ctx, &(gd_graph_options){.off = _i});
    for (int i = 0; i < 20; i++) {
        gd_optimizer_set_rate(by_graph.optimizer, 0.01 * i);
        gd_optimizer_set_rate(by_hand.optimizer, 0.01 * i);
        ck_assert_int_eq(gd_graph_run(graph, step, &by_graph), GD_OK);
        step(&by_hand);
        gd_step_end(by_hand.ctx);
        gd_update_report a, b;
        ck_assert(gd_optimizer_report(by_graph.optimizer, false, &a));
        ck_assert(gd_optimizer_report(by_hand.optimizer, false, &b));
        ck_assert_double_eq(a.loss, b.loss);
        ck_assert_double_eq(a.norm, b.norm);
    }
    ck_assert_uint_eq(gd_random_get(by_graph.ctx).offset, gd_random_get(by_hand.ctx).offset);
    ck_assert_int_eq(gd_graph_count(graph).replays, 0);
    gd_graph_free(graph);
    destroy(&by_graph);
    destroy(&by_hand);
}

/* ---- Refusals ------------------------------------------------------------------------------ */

typedef struct waiter {
    net *n;
    int what;
} waiter;

/* What waits, as errors call it, and a call of it. */
#define EACH_WAITER(W)                                                        \
    W("item", gd_item(loss_of(n)))                                            \
    W("tensor_read_f64", gd_tensor_read_f64(n->x, number, ROWS *WIDTH))       \
    W("tensor_write_f64", gd_tensor_write_f64(n->x, number, ROWS *WIDTH))     \
    W("tensor_read", gd_tensor_read(n->x, single, sizeof single))             \
    W("tensor_write", gd_tensor_write(n->x, single, sizeof single))           \
    W("tensor_create", gd_tensor_create(n->ctx, GD_FLOAT32, GD_SHAPE(2)))     \
    W("tensor_from", gd_tensor_from(n->ctx, GD_FLOAT32, GD_SHAPE(2), single)) \
    W("synchronize", gd_synchronize(n->ctx))                                  \
    W("clip_grad_norm", gd_clip_grad_norm(n->params, 1, number))              \
    W("optimizer_step", gd_optimizer_step(n->optimizer, 1))                   \
    W("optimizer_report", gd_optimizer_report(n->optimizer, true, &report))   \
    W("graph_create", gd_graph_create(n->ctx, NULL))                          \
    W("optimizer", gd_optimizer_steps(n->optimizer))
#define NAME(name, call) name,
static const char *const waiters[] = {EACH_WAITER(NAME)};
enum { WAITERS = sizeof waiters / sizeof *waiters };

static gd_status wait_inside(void *user)
{
    const waiter *w = user;
    net *n = w->n;
    double number[ROWS * WIDTH] = {0};
    float single[ROWS * WIDTH] = {0};
    gd_update_report report;
#define WAIT(name, call) \
    if (!strcmp(waiters[w->what], name)) call;
    EACH_WAITER(WAIT)
    return GD_OK;
}

LOOP_TEST(a_function_that_waits_is_refused, WAITERS)
{
    net n = make();
    gd_graph *graph = gd_graph_create(n.ctx, NULL);
    gd_graph_run(graph, step, &n);
    waiter w = {&n, _i};
    char words[96];
    snprintf(words, sizeof words, "%s: called from a function of gd_graph_run", waiters[_i]);
    ck_assert_int_eq(gd_graph_run(graph, wait_inside, &w), GD_ERROR_STATE);
    ck_assert_error(n.ctx, words);
    ck_assert_int_eq(gd_graph_run(graph, step, &n), GD_OK);
    gd_graph_free(graph);
    destroy(&n);
}

static gd_status fails(void *user)
{
    (void)user;
    return GD_ERROR_IO;
}

static gd_status run_again(void *user)
{
    return gd_graph_run(user, fails, NULL);
}

static gd_status frees_itself(void *user)
{
    gd_graph_free(user);
    return GD_OK;
}

TEST(bad_calls)
{
    net n = make();
    gd_graph *graph = gd_graph_create(n.ctx, NULL);
    ck_assert_int_eq(gd_graph_run(NULL, step, &n), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_graph_run(graph, NULL, NULL), GD_ERROR_ARGUMENT);
    ck_assert_error(n.ctx, "graph_run: function is NULL, wanted a step");
    loss_of(&n);
    gd_graph_run(graph, step, &n);
    ck_assert_error(n.ctx, "graph_run: a step has begun");
    gd_step_end(n.ctx);
    ck_assert_int_eq(gd_graph_run(graph, fails, &n), GD_ERROR_IO);
    ck_assert_error(n.ctx, "graph_run: its function failed");
    gd_graph_run(graph, run_again, graph);
    ck_assert_error(n.ctx, "graph_run: called from a function of gd_graph_run");
    gd_graph_run(graph, frees_itself, graph);
    ck_assert_error(n.ctx, "graph_free: called from inside the function of a graph");
    ck_assert_ptr_null(gd_graph_create(NULL, NULL));
    gd_graph_free(NULL);
    gd_graph_free(graph);
    destroy(&n);
}

/* ---- What a capture relies on -------------------------------------------------------------- */

TEST(the_key_tells_what_changed)
{
    net n = make();
    const uint64_t key = gd_graph_key(n.ctx);
    ck_assert_uint_eq(gd_graph_key(n.ctx), key);
    step(&n); /* other values and an update: nothing that the graph knows */
    gd_step_end(n.ctx);
    ck_assert_uint_eq(gd_graph_key(n.ctx), key);

    gd_backward(loss_of(&n)); /* the next backward adds */
    gd_step_end(n.ctx);
    ck_assert_uint_ne(gd_graph_key(n.ctx), key);
    gd_params_clear_grads(n.params);
    ck_assert_uint_eq(gd_graph_key(n.ctx), key);

    gd_tensor *other = gd_tensor_create(n.ctx, GD_FLOAT32, GD_SHAPE(4));
    ck_assert_uint_ne(gd_graph_key(n.ctx), key);
    gd_tensor_free(other);
    ck_assert_uint_eq(gd_graph_key(n.ctx), key);

    gd_tensor_set_requires_grad(n.w[1], false);
    ck_assert_uint_ne(gd_graph_key(n.ctx), key);
    gd_tensor_set_requires_grad(n.w[1], true);
    ck_assert_uint_eq(gd_graph_key(n.ctx), key);

    gd_no_grad_begin(n.ctx);
    ck_assert_uint_ne(gd_graph_key(n.ctx), key);
    gd_no_grad_end(n.ctx);
    ck_assert_uint_eq(gd_graph_key(n.ctx), key);

    gd_repeat_begin(n.ctx); /* batch_norm's kernel updates nothing */
    ck_assert_uint_ne(gd_graph_key(n.ctx), key);
    gd_repeat_end(n.ctx);
    ck_assert_uint_eq(gd_graph_key(n.ctx), key);

    gd_memory_trim(n.ctx); /* blocks of the step went back to the device */
    const uint64_t trimmed = gd_graph_key(n.ctx);
    ck_assert_uint_ne(trimmed, key);
    ck_assert_uint_eq(gd_graph_key(n.ctx), trimmed);

    gd_tensor_free(n.x); /* the same memory in another shape */
    n.x = gd_tensor_create(n.ctx, GD_FLOAT32, GD_SHAPE(WIDTH, ROWS));
    ck_assert_uint_ne(gd_graph_key(n.ctx), key);
    destroy(&n);
}

/* A block that a step used is never given to what lasts, and the other way round. */
TEST(what_lasts_shares_no_memory_with_steps)
{
    net n = make();
    enum { MOST = 64 };
    const void *step_data[MOST];
    int made = 0;
    gd_tensor *x = n.x;
    for (; made < MOST; made++) {
        x = gd_tanh(x);
        step_data[made] = gd_tensor_data(x);
    }
    gd_step_end(n.ctx);
    for (int i = 0; i < MOST; i++) {
        gd_tensor *t = gd_tensor_create(n.ctx, GD_FLOAT32, GD_SHAPE(ROWS, WIDTH));
        for (int k = 0; k < made; k++) ck_assert_ptr_ne(gd_tensor_data(t), step_data[k]);
        if (i % 2) gd_tensor_free(t);
    }
    const uint64_t calls = gd_memory(n.ctx).system_calls;
    x = n.x;
    for (int k = 0; k < made; k++) x = gd_tanh(x);
    ck_assert_uint_eq(gd_memory(n.ctx).system_calls, calls); /* they are all still there */
    gd_step_end(n.ctx);
    destroy(&n);
}

/* ---- Gradients that are complete ----------------------------------------------------------- */

typedef struct told {
    char names[32];
    int count;
    double sum[16]; /* of each gradient, when it was told */
} told;

static double sum_of(const gd_tensor *leaf)
{
    double grad[ROWS * WIDTH], sum = 0;
    const gd_tensor *g = gd_grad(leaf);
    gd_tensor_read_f64(g, grad, gd_tensor_count(g));
    for (int64_t i = 0; i < gd_tensor_count(g); i++) sum += (double)(i + 1) * grad[i];
    return sum;
}

static void note(void *user, gd_tensor *leaf)
{
    told *t = user;
    t->sum[t->count] = sum_of(leaf);
    t->names[t->count++] = gd_tensor_name(leaf)[0];
}

static void check_told(net *n, const told *t, const char *wanted)
{
    ck_assert_str_eq(t->names, wanted);
    for (int i = 0; i < t->count; i++) {
        const char name[2] = {t->names[i], '\0'};
        ck_assert_double_eq(t->sum[i], sum_of(gd_params_find(n->params, name)));
    }
    gd_params_clear_grads(n->params);
    gd_step_end(n->ctx);
    ck_assert_no_error(n->ctx);
}

TEST(the_last_layer_comes_first)
{
    net n = make();
    told t = {0};
    gd_on_gradient(n.ctx, note, &t);
    gd_backward(loss_of(&n));
    check_told(&n, &t, "cba");
    t = (told){0};
    gd_on_gradient(n.ctx, NULL, NULL);
    gd_backward(loss_of(&n));
    check_told(&n, &t, "");
    destroy(&n);
}

/* What is read in several places is complete at the first of them; what is on no way from the loss,
 * or wants no gradient, does not come. */
TEST(a_leaf_waits_for_all_its_uses)
{
    net n = make();
    told t = {0};
    gd_on_gradient(n.ctx, note, &t);
    gd_tensor *h = gd_linear(gd_linear(n.x, n.w[0], NULL), n.w[1], NULL);
    gd_backward(gd_mean(gd_linear(gd_mul(h, h), n.w[0], NULL), NULL, 0, false));
    check_told(&n, &t, "ba");

    t = (told){0};
    gd_linear(n.x, n.w[2], NULL); /* a use that no backward comes by */
    gd_backward(loss_of(&n));
    check_told(&n, &t, "cba");

    t = (told){0};
    gd_tensor_set_requires_grad(n.w[1], false);
    gd_backward(loss_of(&n));
    check_told(&n, &t, "ca");
    gd_tensor_set_requires_grad(n.w[1], true);

    t = (told){0}; /* each backward for itself, while gradients add up */
    gd_backward(loss_of(&n));
    gd_step_end(n.ctx);
    t = (told){0};
    gd_backward(loss_of(&n));
    check_told(&n, &t, "cba");
    destroy(&n);
}

typedef struct hooked {
    net *n;
    told *log;
    char letter;
    const char *does; /* "own": removes its hook; "other": that of the other one; "all" */
    struct hooked *other;
} hooked;

static void take_note(void *user, gd_tensor *leaf)
{
    hooked *h = user;
    (void)leaf;
    h->log->names[h->log->count++] = h->letter;
    if (!strcmp(h->does, "own")) gd_on_gradient(h->n->ctx, NULL, h);
    if (!strcmp(h->does, "other")) gd_on_gradient(h->n->ctx, NULL, h->other);
    if (!strcmp(h->does, "all")) gd_on_gradient(h->n->ctx, NULL, NULL);
}

static const struct {
    const char *a, *b, *names, *rest; /* what they do; of a first and a second backward */
} removals[] = {{"", "", "xyxyxy", "xyxyxy"}, {"own", "", "xyyy", "yyy"},
                {"", "own", "xyxx", "xxx"},   {"other", "", "xxx", "xxx"},
                {"", "other", "xyyy", "yyy"}, {"own", "own", "xy", ""},
                {"all", "", "x", ""},         {"", "all", "xy", ""}};

/* Several may listen, and stop at any time. */
LOOP_TEST(hooks_come_in_order, 8)
{
    net n = make();
    told log = {0};
    hooked y = {&n, &log, 'y', removals[_i].b, NULL}, x = {&n, &log, 'x', removals[_i].a, &y};
    y.other = &x;
    ck_assert_int_eq(gd_on_gradient(n.ctx, take_note, &x), GD_OK);
    gd_on_gradient(n.ctx, take_note, &y);
    gd_on_gradient(n.ctx, take_note, &x); /* once is enough */
    gd_backward(loss_of(&n));
    ck_assert_str_eq(log.names, removals[_i].names);
    gd_backward(loss_of(&n));
    const char *rest = removals[_i].rest;
    ck_assert_str_eq(log.names + strlen(removals[_i].names), rest);
    gd_on_gradient(n.ctx, NULL, NULL);
    log = (told){0};
    gd_backward(loss_of(&n));
    ck_assert_int_eq(log.count, 0);
    ck_assert_int_eq(gd_on_gradient(NULL, take_note, &x), GD_ERROR_ARGUMENT);
    destroy(&n);
}

static gd_tensor *layer(void *user, gd_tensor *const *inputs, int count)
{
    (void)count;
    return gd_tanh(gd_linear(inputs[0], user, NULL));
}

static gd_tensor *two_layers(void *user, gd_tensor *const *inputs, int count)
{
    const net *n = user;
    (void)count;
    gd_tensor *x = gd_recompute(n->ctx, layer, n->w[1], inputs, 1);
    return gd_linear(x, n->w[2], NULL);
}

/* A segment's leaves are known before it runs again. */
TEST(segments_count)
{
    net n = make();
    told t = {0};
    gd_on_gradient(n.ctx, note, &t);
    gd_tensor *x = n.x;
    for (int i = 0; i < LAYERS; i++) x = gd_recompute(n.ctx, layer, n.w[i], &x, 1);
    gd_backward(gd_mean(x, NULL, 0, false));
    check_told(&n, &t, "cba");

    t = (told){0}; /* one layer in two segments and outside, one segment in another */
    x = gd_linear(n.x, n.w[0], NULL);
    x = gd_recompute(n.ctx, two_layers, &n, &x, 1);
    x = gd_recompute(n.ctx, layer, n.w[1], &x, 1);
    gd_backward(gd_mean(x, NULL, 0, false));
    check_told(&n, &t, "bca"); /* those of a segment when all of it has run */
    destroy(&n);
}

CHECK_MAIN("graphs")
