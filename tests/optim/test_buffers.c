/* test_buffers.c - buffers of a group of parameters: what they are counted as, what changes
 * them and what does not, against running statistics that are computed here, and files that
 * hold them. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "gradus/gradcheck.h"
#include "op_test.h"
#include "own_folder.h"

static gd_context *ctx;
static const char path[] = "model.safetensors";

static void setup(void)
{
    ctx = test_context(2);
    enter_folder();
}

static void teardown(void)
{
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
    leave_folder();
}

/* Whether every element is `value`. */
static bool holds(const gd_tensor *t, double value)
{
    bool same = true;
    double *values = NULL;
    int32_t whole[8];
    if (gd_tensor_dtype(t) == GD_INT32)
        gd_tensor_read(t, whole, (size_t)gd_tensor_count(t) * sizeof *whole);
    else
        values = values_of(t);
    for (int64_t i = 0; i < gd_tensor_count(t); i++)
        same = same && (values ? values[i] : (double)whole[i]) == value;
    free(values);
    return same;
}

/* ---- What they are ------------------------------------------------------------------------ */

TEST(they_are_counted_apart)
{
    gd_params *params = gd_params_create(ctx, GD_BFLOAT16);
    gd_tensor *mean = gd_params_add_buffer(params, "mean", GD_FLOAT32, GD_SHAPE(3));
    gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(5), GD_DECAY);
    gd_tensor *none = gd_params_add_buffer(params, "none", GD_FLOAT32, GD_SHAPE(0, 4));
    gd_tensor *steps = gd_params_add_buffer(params, "steps", GD_INT32, 0, NULL);
    gd_tensor *wide = gd_params_add_buffer(params, "wide", GD_FLOAT64, GD_SHAPE(2, 3));
    REFUSED(gd_exp(mean), "\"mean\" has no memory yet, call gd_params_finish");
    const gd_memory_stats before = gd_memory(ctx);
    gd_params_finish(params);
    const gd_memory_stats after = gd_memory(ctx);
    gd_tensor *all[] = {mean, none, steps, wide};
    ck_assert_int_eq(gd_params_count(params), 1);
    ck_assert_int_eq(gd_params_elements(params), 5);
    ck_assert_int_eq(gd_params_buffer_count(params), 4);
    ck_assert_uint_eq(after.current[GD_MEMORY_OTHER] - before.current[GD_MEMORY_OTHER], 3 * 64);
    ck_assert_uint_eq(after.current[GD_MEMORY_PARAMETERS], 64); /* w alone */
    for (int i = 0; i < 4; i++) {
        ck_assert_ptr_eq(gd_params_buffer_at(params, i), all[i]);
        ck_assert_ptr_eq(gd_params_find(params, gd_tensor_name(all[i])), all[i]);
        ck_assert(!gd_tensor_requires_grad(all[i]));
        ck_assert(holds(all[i], 0));
    }
    ck_assert_ptr_eq(gd_params_find(params, "w"), w);
    ck_assert_ptr_eq(gd_params_at(params, 0), w);
    ck_assert_ptr_null(gd_params_at(params, 1));
    ck_assert_ptr_null(gd_params_buffer_at(params, 4));
    ck_assert_ptr_null(gd_params_buffer_at(params, -1));
    ck_assert_int_eq(gd_params_buffer_count(NULL), 0);
    gd_params_free(params);
}

TEST(wrong_calls_are_refused)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_add(params, "w", GD_SHAPE(2), 0);
    gd_tensor *mean = gd_params_add_buffer(params, "mean", GD_FLOAT32, GD_SHAPE(2));
    REFUSED(gd_params_add_buffer(params, "w", GD_FLOAT32, GD_SHAPE(2)),
            "params_add_buffer: name is \"w\", wanted one that the group does not have yet");
    REFUSED(gd_params_add(params, "mean", GD_SHAPE(2), 0),
            "params_add: name is \"mean\", wanted one that the group does not have yet");
    REFUSED(gd_params_add_buffer(params, "", GD_FLOAT32, GD_SHAPE(2)),
            "params_add_buffer: name is \"\", wanted 1 to 127 bytes");
    REFUSED(gd_params_add_buffer(params, NULL, GD_FLOAT32, GD_SHAPE(2)), "name is NULL, wanted 1");
    REFUSED(gd_params_add_buffer(params, "x", (gd_dtype)9, GD_SHAPE(2)),
            "params_add_buffer: dtype is 9, wanted one of gd_dtype");
    REFUSED(gd_params_add_buffer(params, "x", GD_FLOAT32, GD_SHAPE(-2)),
            "params_add_buffer: shape is [-2], wanted no negative dimension");
    gd_tensor_set_requires_grad(mean, true);
    ck_assert_error(ctx, "set_requires_grad: \"mean\" is a buffer, wanted a parameter");
    gd_params_set_factors(params, mean, 1, 1);
    ck_assert_error(ctx, "the tensor is no parameter of the group");
    gd_params_finish(params);
    REFUSED(gd_params_add_buffer(params, "x", GD_FLOAT32, GD_SHAPE(2)),
            "params_add_buffer: \"x\" was added after gd_params_finish, wanted it before");
    gd_tensor_free(mean);
    ck_assert_error(ctx, "tensor_free: this tensor belongs to another object");
    gd_tensor_set_requires_grad(mean, true);
    ck_assert_error(ctx, "set_requires_grad: \"mean\" is a buffer");
    gd_params_free(params);

    params = gd_params_create(ctx, GD_FLOAT32);
    const int64_t huge = INT64_MAX / 16;
    for (int i = 0; i < 3; i++)
        gd_params_add_buffer(params, (const char *[]){"a", "b", "c"}[i], GD_FLOAT64, 1, &huge);
    gd_params_finish(params);
    ck_assert_error(ctx, "params_finish: the buffers have more than");
    gd_params_free(params);
    ck_assert_ptr_null(gd_params_add_buffer(NULL, "x", GD_FLOAT32, GD_SHAPE(2)));
}

/* ---- When they change --------------------------------------------------------------------- */

enum { ROWS = 8, IN = 5, OUT = 3, STEPS = 5 };

/* h = x w^T, y = batch_norm(h). */
typedef struct net {
    gd_params *params;
    gd_optimizer *optimizer;
    gd_graph *graph;
    gd_tensor *w, *scale, *x;
    gd_batch_norm_options norm;
    bool recompute;
    int batches; /* of a step */
    double mean[OUT], var[OUT];
    uint64_t seed;
} net;

static net make_net(gd_dtype dtype)
{
    const gd_dtype wide = dtype == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32;
    net n = {.params = gd_params_create(ctx, dtype), .batches = 1, .seed = 5};
    n.w = gd_params_add(n.params, "w", GD_SHAPE(OUT, IN), GD_DECAY);
    n.norm.mean = gd_params_add_buffer(n.params, "mean", wide, GD_SHAPE(OUT));
    n.norm.var = gd_params_add_buffer(n.params, "var", wide, GD_SHAPE(OUT));
    n.scale = gd_params_add(n.params, "scale", GD_SHAPE(OUT), GD_DECAY);
    gd_params_finish(n.params);
    gd_random_set(ctx, (gd_random_state){.seed = 5});
    gd_random_normal(n.w, 0, 1);
    gd_tensor_fill(n.scale, 1);
    gd_tensor_fill(n.norm.var, 1);
    for (int c = 0; c < OUT; c++) n.var[c] = 1;
    n.x = gd_tensor_create(ctx, dtype, GD_SHAPE(ROWS, IN));
    n.optimizer = gd_adamw_create(n.params, &(gd_adamw_options){.weight_decay = 0.5});
    gd_optimizer_average(n.optimizer, 0.5);
    gd_optimizer_set_rate(n.optimizer, 0.1);
    n.graph = gd_graph_create(ctx, NULL);
    return n;
}

static void free_net(net *n)
{
    gd_graph_free(n->graph);
    gd_optimizer_free(n->optimizer);
    gd_params_free(n->params);
    gd_tensor_free(n->x);
}

static gd_tensor *norm_segment(void *user, gd_tensor *const *in, int count)
{
    const net *n = user;
    (void)count;
    return gd_batch_norm(in[0], n->scale, NULL, &n->norm);
}

static gd_tensor *forward(net *n)
{
    gd_tensor *h = gd_linear(n->x, n->w, NULL);
    gd_tensor *y =
        n->recompute ? gd_recompute(ctx, norm_segment, n, &h, 1) : norm_segment(n, &h, 1);
    return gd_mean(gd_sin(y), NULL, 0, false);
}

static gd_status learn(void *user)
{
    net *n = user;
    return gd_optimizer_backward(n->optimizer, forward(n), 1.0 / n->batches);
}

static gd_status learn_last(void *user)
{
    net *n = user;
    learn(n);
    gd_optimizer_update(n->optimizer, 0.01); /* clipped */
    return gd_params_clear_grads(n->params);
}

/* Another batch, and what one forward makes of the statistics: as PyTorch, momentum 0.1, and the
 * variance divided by n - 1. */
static void next_batch(net *n)
{
    double values[ROWS * IN];
    for (int i = 0; i < ROWS * IN; i++) values[i] = random_in(&n->seed, -2, 3);
    gd_tensor_write_f64(n->x, values, ROWS * IN);
    double *x = values_of(n->x), *w = values_of(n->w);
    for (int c = 0; c < OUT; c++) {
        double h[ROWS] = {0}, mean = 0, var = 0;
        for (int r = 0; r < ROWS; r++) {
            for (int k = 0; k < IN; k++) h[r] += x[r * IN + k] * w[c * IN + k];
            mean += h[r] / ROWS;
        }
        for (int r = 0; r < ROWS; r++) var += (h[r] - mean) * (h[r] - mean) / (ROWS - 1);
        n->mean[c] = 0.9 * n->mean[c] + 0.1 * mean;
        n->var[c] = 0.9 * n->var[c] + 0.1 * var;
    }
    free(x), free(w);
}

static void compare(const net *n, double tolerance)
{
    double *mean = values_of(n->norm.mean), *var = values_of(n->norm.var);
    for (int c = 0; c < OUT; c++) {
        ck_assert_double_eq_tol(mean[c], n->mean[c], tolerance);
        ck_assert_double_eq_tol(var[c], n->var[c], tolerance * (1 + n->var[c]));
    }
    free(mean), free(var);
}

/* Plain, recomputed, as a graph; with one and several batches a step, each of which counts. */
LOOP_TEST(each_batch_changes_them_once, 36)
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16};
    static const double tolerances[] = {1e-13, 1e-6, 2e-2};
    net n = make_net(dtypes[_i % 3]);
    const bool graph = _i / 3 % 2;
    n.recompute = _i / 6 % 2;
    n.batches = 1 + _i / 12;
    for (int step = 0; step < STEPS; step++) {
        for (int b = 0; b < n.batches; b++) {
            gd_status (*work)(void *) = b + 1 < n.batches ? learn : learn_last;
            next_batch(&n);
            if (graph) gd_graph_run(n.graph, work, &n);
            if (!graph) work(&n), gd_step_end(ctx);
        }
        compare(&n, tolerances[_i % 3]);
    }
    gd_optimizer_swap_average(n.optimizer);
    compare(&n, tolerances[_i % 3]);
    gd_optimizer_swap_average(n.optimizer);
    gd_clip_grad_norm(n.params, 1e-3, NULL);
    gd_params_scale_grads(n.params, 0.5);
    compare(&n, tolerances[_i % 3]);
    ck_assert_no_error(ctx);
    free_net(&n);
}

/* One step of all its batches; what became of it. */
static gd_update_outcome whole_step(net *n, bool graph)
{
    gd_update_report report;
    for (int b = 0; b < n->batches; b++) {
        gd_status (*work)(void *) = b + 1 < n->batches ? learn : learn_last;
        next_batch(n);
        if (graph) gd_graph_run(n->graph, work, n);
        if (!graph) work(n), gd_step_end(ctx);
    }
    ck_assert(gd_optimizer_report(n->optimizer, true, &report));
    return report.outcome;
}

/* In float16 65536 is infinite, and so is the gradient of the loss: it overflows three times. */
LOOP_TEST(a_withheld_update_leaves_them, 8)
{
    const bool graph = _i % 2;
    net n = make_net(GD_FLOAT16);
    double mean[OUT], var[OUT];
    n.batches = 1 + _i / 2 % 2;
    n.recompute = _i / 4;
    for (int turn = 0; turn < 3;
         turn++) { /* their first values, those of an update, written ones */
        if (turn == 2) {
            gd_tensor_write_f64(n.norm.mean, (double[]){3, 4, 5}, OUT);
            gd_tensor_fill(n.norm.var, 2);
            for (int c = 0; c < OUT; c++) n.mean[c] = 3 + c, n.var[c] = 2;
        }
        gd_optimizer_set_loss_scale(
            n.optimizer, (gd_loss_scale){.adapts = true, .factor = (int64_t)n.batches << 18});
        for (int k = 0; k < 3; k++) {
            gd_tensor_read_f64(n.norm.mean, mean, OUT), gd_tensor_read_f64(n.norm.var, var, OUT);
            ck_assert_int_eq(whole_step(&n, graph), GD_UPDATE_OVERFLOWED);
            memcpy(n.mean, mean, sizeof mean), memcpy(n.var, var, sizeof var);
            compare(&n, 1e-12); /* the same */
        }
        ck_assert_int_eq(whole_step(&n, graph), GD_UPDATE_MADE);
        compare(&n, 2e-3);
    }
    gd_tensor_fill(n.x, 1e6); /* infinite */
    (graph ? gd_graph_run(n.graph, learn_last, &n) : learn_last(&n)), gd_step_end(ctx);
    compare(&n, 2e-3);
    ck_assert_no_error(ctx);
    free_net(&n);
}

/* Without an optimizer nothing is withheld: but what is not finite goes no further than
 * its batch. */
LOOP_TEST(a_batch_that_is_not_finite_leaves_them, 16)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, 1e300};
    const gd_dtype dtype = _i % 2 ? GD_FLOAT32 : GD_FLOAT64;
    const int64_t places = _i / 2 % 2 ? 1 : 3;
    double values[4 * OUT * 3], mean[OUT], var[OUT];
    gd_tensor *x = gd_tensor_create(ctx, dtype, 3, (int64_t[]){4, OUT, places});
    const gd_batch_norm_options norm = {.mean = gd_tensor_create(ctx, dtype, GD_SHAPE(OUT)),
                                        .var = gd_tensor_create(ctx, dtype, GD_SHAPE(OUT))};
    gd_tensor_fill(norm.mean, 7), gd_tensor_fill(norm.var, 8);
    for (int i = 0; i < 4 * OUT * places; i++) values[i] = i;
    values[places] = bad[_i / 4]; /* of the second channel; its square overflows */
    gd_tensor_write_f64(x, values, 4 * OUT * places);
    gd_batch_norm(x, NULL, NULL, &norm);
    gd_tensor_read_f64(norm.mean, mean, OUT), gd_tensor_read_f64(norm.var, var, OUT);
    ck_assert(mean[1] == 7 && var[1] == 8);
    for (int c = 0; c < OUT; c += 2) ck_assert(isfinite(mean[c]) && mean[c] != 7 && var[c] != 8);
    ck_assert_no_error(ctx);
    gd_step_end(ctx);
    gd_tensor_free(norm.mean), gd_tensor_free(norm.var), gd_tensor_free(x);
}

/* Evaluation, gradcheck and what stands between gd_repeat_begin and gd_repeat_end
 * change nothing. */
TEST(other_forwards_leave_them)
{
    net n = make_net(GD_FLOAT64);
    next_batch(&n);
    learn_last(&n);
    gd_step_end(ctx);
    compare(&n, 1e-13);
    n.norm.evaluate = true;
    forward(&n);
    n.norm.evaluate = false;
    gd_step_end(ctx);
    compare(&n, 1e-13);
    gd_gradcheck_report report;
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(ROWS, OUT));
    gd_random_normal(x, 0, 1);
    gd_tensor_set_requires_grad(x, true);
    gd_gradcheck_function(ctx, "norm", norm_segment, &n, &x, 1, NULL, &report);
    ck_assert_str_eq(gd_verdict_name(report.verdict), "PASS");
    gd_gradcheck_report_free(&report);
    compare(&n, 1e-13);
    gd_repeat_begin(ctx);
    forward(&n);
    gd_repeat_end(ctx);
    gd_repeat_end(ctx);
    ck_assert_error(ctx, "repeat_end: there was no gd_repeat_begin before it");
    compare(&n, 1e-13);
    next_batch(&n);
    gd_no_grad_begin(ctx); /* changes them, as in PyTorch, where the module's mode decides */
    forward(&n);
    gd_no_grad_end(ctx);
    compare(&n, 1e-13);
    gd_tensor_free(x);
    gd_step_end(ctx);
    free_net(&n);
}

/* Two batches on one tape; both segments run again after both have changed the statistics. */
TEST(segments_that_share_them_run_again)
{
    double want[OUT * IN];
    for (int pass = 0; pass < 2; pass++) {
        net n = make_net(GD_FLOAT64);
        n.recompute = pass;
        gd_tensor *x[2], *losses = NULL, *own = n.x;
        for (int b = 0; b < 2; b++) {
            next_batch(&n);
            x[b] = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(ROWS, IN));
            gd_tensor_copy(x[b], own);
            n.x = x[b];
            losses = losses ? gd_add(losses, forward(&n)) : forward(&n);
            n.x = own;
        }
        gd_backward(losses);
        ck_assert_no_error(ctx);
        compare(&n, 1e-13);
        if (!pass) gd_tensor_read_f64(gd_grad(n.w), want, OUT * IN);
        if (pass) assert_close(gd_grad(n.w), want, 64, 0, "dw");
        gd_step_end(ctx);
        gd_tensor_free(x[0]), gd_tensor_free(x[1]);
        free_net(&n);
    }
}

/* A frozen norm reads its statistics in the backward, after the norm behind it has
 * changed its own. */
static gd_tensor *two_norms(void *user, gd_tensor *const *in, int count)
{
    const gd_batch_norm_options *norm = user;
    (void)count;
    return gd_batch_norm(gd_batch_norm(in[0], NULL, NULL, &norm[0]), NULL, NULL, &norm[1]);
}

TEST(a_frozen_norm_stands_before_one_that_learns)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    static const char *const names[] = {"mean1", "var1", "mean2", "var2"};
    gd_tensor *b[4];
    for (int i = 0; i < 4; i++)
        b[i] = gd_params_add_buffer(params, names[i], GD_FLOAT32, GD_SHAPE(OUT));
    gd_params_finish(params);
    gd_tensor_fill(b[1], 1), gd_tensor_fill(b[3], 1);
    gd_batch_norm_options norm[2] = {{.mean = b[0], .var = b[1], .evaluate = true},
                                     {.mean = b[2], .var = b[3]}};
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(ROWS, OUT));
    gd_random_normal(x, 1, 1);
    gd_tensor_set_requires_grad(x, true);
    for (int recompute = 0; recompute < 2; recompute++) {
        gd_tensor *y =
            recompute ? gd_recompute(ctx, two_norms, norm, &x, 1) : two_norms(norm, &x, 1);
        gd_backward(gd_sum_all(gd_sin(y)));
        ck_assert_no_error(ctx);
        ck_assert_ptr_nonnull(gd_grad(x));
        gd_grad_clear(x);
        gd_step_end(ctx);
    }
    double *mean = values_of(b[0]), *moved = values_of(b[2]);
    ck_assert(mean[0] == 0 && moved[0] > 0.1 && moved[0] < 0.3); /* 0.19 of about 1 */
    free(mean), free(moved);

    gd_tensor *y = two_norms(norm, &x, 1);
    gd_tensor_fill(b[1], 2); /* but its own are compared */
    gd_backward(gd_sum_all(y));
    ck_assert_error(ctx, "batch_norm_fixed");
    gd_step_end(ctx);
    gd_tensor_free(x);
    gd_params_free(params);
}

/* ---- Files -------------------------------------------------------------------------------- */

static gd_params *make_group(gd_dtype dtype, int64_t channels, bool buffers)
{
    gd_params *params = gd_params_create(ctx, dtype);
    gd_params_add(params, "norm.weight", GD_SHAPE(channels), 0);
    if (buffers) gd_params_add_buffer(params, "norm.mean", GD_FLOAT32, GD_SHAPE(channels));
    if (buffers) gd_params_add_buffer(params, "norm.count", GD_INT32, 0, NULL);
    gd_params_finish(params);
    return params;
}

static void fill_group(gd_params *params, int value)
{
    gd_tensor_fill(gd_params_at(params, 0), value);
    for (int i = 0; i < gd_params_buffer_count(params); i++)
        gd_tensor_fill(gd_params_buffer_at(params, i), value + 1 + i);
}

static void group_has(gd_params *params, int value)
{
    ck_assert(holds(gd_params_at(params, 0), value));
    for (int i = 0; i < gd_params_buffer_count(params); i++)
        ck_assert(holds(gd_params_buffer_at(params, i), value + 1 + i));
}

TEST(a_file_has_them)
{
    gd_params *from = make_group(GD_BFLOAT16, 3, true), *to = make_group(GD_FLOAT32, 3, true);
    fill_group(from, 7);
    const gd_named_text note = {"step", "4"};
    ck_assert_int_eq(gd_params_save(from, path, &note, 1), GD_OK);
    gd_safetensors *file = gd_safetensors_open(ctx, path);
    ck_assert_int_eq(gd_safetensors_count(file), 3);
    ck_assert_str_eq(gd_safetensors_find(file, "norm.weight")->format_dtype, "BF16");
    ck_assert_str_eq(gd_safetensors_find(file, "norm.mean")->format_dtype, "F32");
    ck_assert_str_eq(gd_safetensors_find(file, "norm.count")->format_dtype, "I32");
    ck_assert_str_eq(gd_safetensors_metadata(file, "step"), "4");
    gd_safetensors_close(file);
    ck_assert_int_eq(gd_params_load(to, path), GD_OK);
    group_has(to, 7);
    gd_params_free(from), gd_params_free(to);
}

/* A file of the group's tensors, filled with zeros, but for a third of another name and dtype. */
static void write_by_hand(const char *name, const char *dtype, int bytes)
{
    char text[500] = {0};
    const int used = snprintf(text + 8, sizeof text - 8,
                              "{\"norm.weight\":{\"dtype\":\"F32\",\"shape\":[3],"
                              "\"data_offsets\":[%d,%d]},\"norm.mean\":{\"dtype\":\"F32\","
                              "\"shape\":[3],\"data_offsets\":[%d,%d]},"
                              "\"%s\":{\"dtype\":\"%s\",\"shape\":[],\"data_offsets\":[0,%d]}}",
                              bytes, bytes + 12, bytes + 12, bytes + 24, name, dtype, bytes);
    text[0] = (char)(used % 256), text[1] = (char)(used / 256);
    write_bytes(path, text, 8 + (size_t)(used + bytes + 24));
}

LOOP_TEST(a_file_that_does_not_fit_fills_nothing, 6)
{
    static const struct {
        int64_t channels;
        bool saved, wanted; /* buffers */
        const char *words;
    } cases[] = {
        {3, false, false, NULL},
        {3, false, true, "model.safetensors has no tensor \"norm.mean\", \"norm.count\""},
        {3, true, false, "a tensor \"norm.mean\", \"norm.count\", wanted only those of the group"},
        {2, true, true, "tensor \"norm.weight\" has shape [2] in the file, wanted [3]"},
        {3, true, true, "tensor \"norm.mean\" has shape [1] in the file, wanted [3]"},
        {3, true, true, "tensor \"norm.count\" holds I64 in the file, wanted F32"},
    };
    gd_params *from = make_group(GD_FLOAT32, cases[_i].channels, cases[_i].saved);
    gd_params *to = make_group(GD_FLOAT32, 3, cases[_i].wanted);
    fill_group(from, 7), fill_group(to, 1);
    gd_params_save(from, path, NULL, 0);
    if (_i == 4) { /* a mean that would broadcast */
        gd_tensor *one = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1));
        const gd_named_tensor tensors[] = {{"norm.weight", gd_params_at(from, 0)},
                                           {"norm.mean", one},
                                           {"norm.count", gd_params_buffer_at(from, 1)}};
        gd_safetensors_write(ctx, path, tensors, 3, NULL, 0);
        gd_tensor_free(one);
    }
    if (_i == 5) write_by_hand("norm.count", "I64", 8);
    const gd_status status = gd_params_load(to, path);
    if (cases[_i].words) {
        ck_assert_int_ne(status, GD_OK);
        ck_assert_error(ctx, "params_load: ");
        gd_params_load(to, path);
        ck_assert_error(ctx, cases[_i].words);
    }
    group_has(to, cases[_i].words ? 1 : 7);
    gd_params_free(from), gd_params_free(to);
}

/* All names of both sides are told, or how many there are besides. */
TEST(names_that_do_not_fit)
{
    gd_params *group[2];
    for (int k = 0; k < 2; k++) {
        group[k] = gd_params_create(ctx, GD_FLOAT32);
        for (int i = 0; i < 60; i++)
            gd_params_addf(group[k], 0, GD_SHAPE(1), (gd_init){GD_INIT_CONSTANT, 0, 0}, "%s.%02d",
                           i < 2 ? "both"
                           : k   ? "new"
                                 : "old",
                           i);
        gd_params_finish(group[k]);
    }
    gd_params_save(group[0], path, NULL, 0);
    ck_assert_int_ne(gd_params_load(group[1], path), GD_OK);
    const char *error = gd_error(ctx);
    ck_assert_ptr_nonnull(strstr(error, "has no tensor \"new.02\", \"new.03\", "));
    ck_assert_ptr_nonnull(strstr(error, " more, but has a tensor \"old.02\", \"old.03\", "));
    ck_assert_ptr_nonnull(strstr(error, " more, wanted only those of the group"));
    gd_error_clear(ctx);
    for (int k = 0; k < 2; k++) gd_params_free(group[k]);
}

/* PyTorch's batch norm counts its batches in int64; nothing here reads that. */
TEST(a_count_of_batches_is_skipped)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *w = gd_params_add(params, "norm.weight", GD_SHAPE(3), 0);
    gd_tensor *mean = gd_params_add_buffer(params, "norm.mean", GD_FLOAT32, GD_SHAPE(3));
    gd_params_finish(params);
    gd_tensor_fill(w, 5), gd_tensor_fill(mean, 5);
    write_by_hand("norm.num_batches_tracked", "I64", 8);
    ck_assert_int_eq(gd_params_load(params, path), GD_OK);
    ck_assert(holds(w, 0) && holds(mean, 0));
    write_by_hand("num_batches_tracked", "I64", 8); /* of nothing */
    ck_assert_int_ne(gd_params_load(params, path), GD_OK);
    ck_assert_error(ctx, "a tensor \"num_batches_tracked\", wanted only those of the group");
    gd_params_free(params);
    params = gd_params_create(ctx, GD_FLOAT32);
    ck_assert_int_ne(gd_params_save(params, path, NULL, 0), GD_OK);
    ck_assert_error(ctx, "params_save: the parameters have no memory yet");
    ck_assert_int_ne(gd_params_load(params, path), GD_OK);
    ck_assert_error(ctx, "params_load: the parameters have no memory yet");
    gd_params_finish(params);
    ck_assert_int_eq(gd_params_save(params, path, NULL, 0), GD_OK); /* a group of nothing */
    ck_assert_int_eq(gd_params_load(params, path), GD_OK);
    gd_params_free(params);
    ck_assert_int_eq(gd_params_save(NULL, path, NULL, 0), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_params_load(NULL, path), GD_ERROR_ARGUMENT);
}

CHECK_MAIN_WITHIN("buffers", setup, teardown)
