/* test_cuda_sequences.c - training loops of lstm and gru in one captured graph: the state is
 * carried from one stretch of a text to the next, dropout stands between the layers, and a
 * batch norm behind them has running statistics. Every step has the bits of the same loop
 * without a graph. */
#include <math.h>
#include <string.h>

#include "gpu.h"

enum { ROWS = 5, TIME = 7, VOCAB = 11, WIDTH = 24, HIDDEN = 40, LAYERS = 2, STEPS = 24 };

typedef struct kind {
    const char *name;
    bool lstm;
    gd_dtype dtype;
    bool carries; /* the state */
    bool recompute;
} kind;

static const kind kinds[] = {
    {"lstm, float32", true, GD_FLOAT32, .carries = true},
    {"gru, float32", false, GD_FLOAT32, .carries = true},
    {"lstm, bfloat16", true, GD_BFLOAT16, .carries = true},
    {"gru, bfloat16", false, GD_BFLOAT16, .carries = true},
    {"lstm, float16", true, GD_FLOAT16, .recompute = false},
    {"gru, float16", false, GD_FLOAT16, .recompute = false},
    {"lstm, float64", true, GD_FLOAT64, .carries = true},
    {"gru, float64", false, GD_FLOAT64, .recompute = false},
    {"lstm, recomputed", true, GD_FLOAT32, .recompute = true},
    {"gru, recomputed", false, GD_BFLOAT16, .recompute = true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct learner {
    const kind *k;
    gd_context *ctx;
    gd_params *params;
    gd_optimizer *optimizer;
    gd_graph *graph;
    gd_tensor *table, *scale, *out, *ids, *next;
    gd_rnn_weights layer[LAYERS];
    gd_tensor *state[LAYERS], *cell[LAYERS];     /* [1, ROWS, HIDDEN], carried */
    gd_tensor *last[LAYERS], *last_cell[LAYERS]; /* of this step */
    gd_batch_norm_options norm;
    gd_update_report report[STEPS + 1];
    int reports;
} learner;

static gd_rnn_weights add_layer(gd_params *params, int gates, int64_t width, int number)
{
    static const char *const parts[] = {"input", "hidden", "input.bias", "hidden.bias"};
    gd_tensor *t[4];
    for (int i = 0; i < 4; i++) {
        char name[32];
        const int64_t shape[] = {gates * HIDDEN, i == 0 ? width : HIDDEN};
        snprintf(name, sizeof name, "%s%d", parts[i], number);
        t[i] = gd_params_add(params, name, i < 2 ? 2 : 1, shape, i < 2 ? GD_DECAY : 0);
    }
    return (gd_rnn_weights){t[0], t[1], t[2], t[3]};
}

static learner *make(const kind *k, bool replay)
{
    learner *l = calloc(1, sizeof *l);
    gd_context *ctx = gpu_context();
    const gd_dtype wide = k->dtype == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32;
    gd_params *p = gd_params_create(ctx, k->dtype);
    *l = (learner){.k = k, .ctx = ctx, .params = p};
    l->table = gd_params_add(p, "table", GD_SHAPE(VOCAB, WIDTH), GD_DECAY);
    for (int i = 0; i < LAYERS; i++)
        l->layer[i] = add_layer(p, k->lstm ? 4 : 3, i ? HIDDEN : WIDTH, i);
    l->scale = gd_params_add(p, "scale", GD_SHAPE(HIDDEN), 0);
    l->norm.mean = gd_params_add_buffer(p, "mean", wide, GD_SHAPE(HIDDEN));
    l->norm.var = gd_params_add_buffer(p, "var", wide, GD_SHAPE(HIDDEN));
    l->out = gd_params_add(p, "out", GD_SHAPE(VOCAB, HIDDEN), GD_DECAY);
    gd_params_finish(p);
    for (int i = 0; i < gd_params_count(p); i++) gd_random_normal(gd_params_at(p, i), 0, 0.3);
    gd_tensor_fill(l->scale, 1), gd_tensor_fill(l->norm.var, 1);
    for (int i = 0; i < LAYERS; i++) {
        l->state[i] = gd_tensor_create(ctx, k->dtype, GD_SHAPE(1, ROWS, HIDDEN));
        l->cell[i] = gd_tensor_create(ctx, k->dtype, GD_SHAPE(1, ROWS, HIDDEN));
    }
    l->ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(ROWS, TIME));
    l->next = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(ROWS, TIME));
    l->optimizer = gd_adamw_create(p, &(gd_adamw_options){.weight_decay = 0.1});
    gd_optimizer_set_rate(l->optimizer, 1e-2);
    if (k->dtype == GD_FLOAT16)
        gd_optimizer_set_loss_scale(l->optimizer, gd_loss_scale_begin(GD_FLOAT16));
    l->graph = gd_graph_create(ctx, &(gd_graph_options){.off = !replay});
    ck_assert_no_error(ctx);
    return l;
}

static void destroy(learner *l)
{
    gd_graph_free(l->graph);
    gd_optimizer_free(l->optimizer);
    gd_params_free(l->params);
    gd_context_free(l->ctx);
    free(l);
}

/* ---- A step ------------------------------------------------------------------------------- */

static gd_tensor *run_layer(learner *l, gd_tensor *x, int i)
{
    const bool carries = l->k->carries;
    gd_tensor *state = carries ? l->state[i] : NULL, *cell = carries ? l->cell[i] : NULL;
    gd_tensor *y = l->k->lstm
                       ? gd_lstm(x, &l->layer[i], 1, state, cell, &l->last[i], &l->last_cell[i])
                       : gd_gru(x, &l->layer[i], 1, state, &l->last[i]);
    return gd_dropout(y, 0.1);
}

/* x [ROWS, TIME, WIDTH] -> [ROWS TIME, HIDDEN] */
static gd_tensor *layers(void *user, gd_tensor *const *inputs, int count)
{
    learner *l = user;
    gd_tensor *x = inputs[0];
    (void)count;
    for (int i = 0; i < LAYERS; i++) x = run_layer(l, x, i);
    return gd_batch_norm(gd_reshape(x, 2, (int64_t[]){ROWS * TIME, HIDDEN}), l->scale, NULL,
                         &l->norm);
}

static gd_status learn(void *user)
{
    learner *l = user;
    const bool carries = l->k->carries;
    gd_tensor *x = gd_embedding(l->table, l->ids);
    gd_tensor *y = l->k->recompute ? gd_recompute(l->ctx, layers, l, &x, 1) : layers(l, &x, 1);
    for (int i = 0; carries && i < LAYERS; i++) {
        gd_keep(l->last[i]);
        if (l->k->lstm) gd_keep(l->last_cell[i]);
    }
    gd_tensor *next = gd_reshape(l->next, 1, (int64_t[]){ROWS * TIME});
    gd_optimizer_backward(l->optimizer, gd_cross_entropy(gd_linear(y, l->out, NULL), next), 1);
    for (int i = 0; carries && i < LAYERS; i++) { /* the backward has read the old ones */
        gd_tensor_copy(l->state[i], l->last[i]);
        if (l->k->lstm) gd_tensor_copy(l->cell[i], l->last_cell[i]);
    }
    gd_optimizer_update(l->optimizer, 0.5);
    return gd_params_clear_grads(l->params);
}

static void run(learner *l)
{
    for (int step = 0; step < STEPS; step++) {
        int32_t text[ROWS][TIME + 1];
        for (int r = 0; r < ROWS; r++)
            for (int t = 0; t <= TIME; t++)
                text[r][t] = (step * TIME + t) * (step * TIME + t + r) % VOCAB;
        int32_t ids[ROWS][TIME], next[ROWS][TIME];
        for (int r = 0; r < ROWS; r++) {
            memcpy(ids[r], text[r], sizeof ids[r]);
            memcpy(next[r], text[r] + 1, sizeof next[r]);
        }
        gd_tensor_write(l->ids, ids, sizeof ids), gd_tensor_write(l->next, next, sizeof next);
        gd_graph_run(l->graph, learn, l);
        while (gd_optimizer_report(l->optimizer, false, &l->report[l->reports])) l->reports++;
    }
    while (gd_optimizer_report(l->optimizer, true, &l->report[l->reports])) l->reports++;
    ck_assert_no_error(l->ctx);
}

/* ---- Comparing ---------------------------------------------------------------------------- */

static void compare(const gd_tensor *a, const gd_tensor *b, const char *what)
{
    const size_t bytes = (size_t)gd_tensor_count(a) * gd_dtype_size(gd_tensor_dtype(a));
    char *left = malloc(bytes), *right = malloc(bytes);
    gd_tensor_read(a, left, bytes), gd_tensor_read(b, right, bytes);
    ck_assert_msg(!memcmp(left, right, bytes), "%s differs", what);
    free(left), free(right);
}

/* Every batch has moved the running variances away from 1, to finite numbers. */
static void statistics_moved(const learner *l)
{
    double var[HIDDEN];
    gd_tensor_read_f64(l->norm.var, var, HIDDEN);
    for (int c = 0; c < HIDDEN; c++) ck_assert(isfinite(var[c]) && var[c] != 1 && var[c] > 0);
}

LOOP_TEST(a_replayed_loop_has_the_same_bits, (test_brief() ? 2 : KINDS))
{
    const kind *k = &kinds[_i];
    if (gpu_refuses(k->dtype)) return;
    learner *graph = make(k, true), *plain = make(k, false);
    run(graph), run(plain);
    ck_assert_int_eq(graph->reports, STEPS);
    ck_assert_int_eq(plain->reports, STEPS);
    int made = 0;
    for (int i = 0; i < STEPS; i++) {
        const gd_update_report *a = &graph->report[i], *b = &plain->report[i];
        made += a->outcome == GD_UPDATE_MADE;
        ck_assert_msg(a->outcome == b->outcome && a->loss == b->loss &&
                          (a->norm == b->norm || (isnan(a->norm) && isnan(b->norm))),
                      "step %d: %d %.9g %.9g, without a graph %d %.9g %.9g", i, (int)a->outcome,
                      a->loss, a->norm, (int)b->outcome, b->loss, b->norm);
    }
    for (int i = 0; i < gd_params_count(graph->params); i++)
        compare(gd_params_at(graph->params, i), gd_params_at(plain->params, i),
                gd_tensor_name(gd_params_at(graph->params, i)));
    for (int i = 0; i < gd_params_buffer_count(graph->params); i++)
        compare(gd_params_buffer_at(graph->params, i), gd_params_buffer_at(plain->params, i),
                gd_tensor_name(gd_params_buffer_at(graph->params, i)));
    for (int i = 0; i < LAYERS; i++) {
        compare(graph->state[i], plain->state[i], "a state");
        compare(graph->cell[i], plain->cell[i], "a cell");
    }
    statistics_moved(graph);
    const gd_graph_counts counts = gd_graph_count(graph->graph);
    printf("%s: loss %.4f to %.4f, %d captures, %d replays\n", k->name, graph->report[0].loss,
           graph->report[STEPS - 1].loss, (int)counts.captures, (int)counts.replays);
    ck_assert_int_gt(made, STEPS / 2);
    ck_assert(graph->report[STEPS - 1].loss < graph->report[0].loss);
    ck_assert_int_eq(counts.captures, 1);
    ck_assert_int_eq(counts.replays, STEPS - 1);
    destroy(graph), destroy(plain);
}

/* A graph captured where a forward counts as a repetition is not replayed where it counts. */
static gd_status only_forward(void *user)
{
    learner *l = user;
    gd_tensor *x = gd_embedding(l->table, l->ids);
    layers(l, &x, 1);
    return gd_error_status(l->ctx);
}

LOOP_TEST(repetitions_have_graphs_of_their_own, 2)
{
    learner *l = make(&kinds[_i], true);
    double before[HIDDEN], after[HIDDEN];
    gd_tensor_read_f64(l->norm.var, before, HIDDEN);
    for (int step = 0; step < 4; step++) {
        gd_repeat_begin(l->ctx);
        gd_graph_run(l->graph, only_forward, l);
        gd_repeat_end(l->ctx);
    }
    gd_tensor_read_f64(l->norm.var, after, HIDDEN);
    ck_assert_mem_eq(before, after, sizeof before);
    for (int step = 0; step < 4; step++) {
        memcpy(before, after, sizeof before);
        gd_graph_run(l->graph, only_forward, l);
        gd_tensor_read_f64(l->norm.var, after, HIDDEN);
        ck_assert_no_error(l->ctx);
        for (int c = 0; c < HIDDEN; c++) ck_assert(before[c] != after[c]);
    }
    ck_assert_int_eq(gd_graph_count(l->graph).captures, 2);
    destroy(l);
}

CHECK_MAIN_GPU(false, "sequences on the GPU", NULL, NULL)
