/* test_notices.c - what is easily got wrong without a message: an error where no program means it,
 * else one notice with the cure. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include "check_main.h"
#include "gradus/gradus.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static gd_context *ctx;
static gd_params *params;
static gd_tensor *w, *x;
static char told[2000];
static int notices;

static void note(void *user, const char *sentence)
{
    (void)user;
    notices++;
    snprintf(told, sizeof told, "%s", sentence);
}

static gd_context *open_context(void)
{
    return gd_context_create(&(gd_context_options){.threads = 1, .notice = note});
}

static void setup(void)
{
    notices = 0;
    told[0] = '\0';
    ctx = open_context();
    params = gd_params_create(ctx, GD_FLOAT32);
    w = gd_params_add(params, "w", GD_SHAPE(4), 0);
    gd_params_finish(params);
    x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4), (float[]){1, 2, 3, 4});
    ck_assert_no_error(ctx);
}

static void teardown(void)
{
    ck_assert_no_error(ctx);
    gd_params_free(params);
    gd_context_free(ctx);
}

static gd_tensor *loss_of(gd_tensor *weight)
{
    return gd_sum_all(gd_mul(weight, x));
}

static void ck_assert_told(const char *sentence)
{
    ck_assert_msg(notices == 1 && strstr(told, sentence), "%d notices: %s", notices, told);
    notices = 0;
}

/* ---- Updates that change nothing ------------------------------------------------------------ */

TEST(no_gradient)
{
    const char *words = "optimizer_update: no parameter has a gradient, wanted gd_backward of a "
                        "loss that depends on one, and gd_params_clear_grads after the update only";
    gd_optimizer *opt = gd_sgd_create(params, NULL);
    gd_optimizer_step(opt, 0.1); /* no backward */
    ck_assert_error(ctx, words);
    gd_backward(loss_of(w));
    gd_params_clear_grads(params); /* too early */
    gd_optimizer_update(opt, 1);
    ck_assert_error(ctx, words);
    gd_step_end(ctx);

    gd_params *other = gd_params_create(ctx, GD_FLOAT32); /* an optimizer of another model */
    gd_params_add(other, "v", GD_SHAPE(4), 0);
    gd_params_finish(other);
    gd_optimizer *wrong = gd_sgd_create(other, NULL);
    gd_backward(loss_of(w));
    gd_optimizer_step(wrong, 0.1);
    ck_assert_error(ctx, words);
    ck_assert_int_eq(gd_optimizer_step(opt, 0.1), GD_OK);
    gd_step_end(ctx);

    gd_params_clear_grads(params);
    gd_tensor_set_requires_grad(w, false); /* all frozen is meant */
    ck_assert_int_eq(gd_optimizer_step(opt, 0.1), GD_OK);
    gd_optimizer_free(wrong);
    gd_params_free(other);
    gd_optimizer_free(opt);
}

TEST(two_contexts)
{
    gd_context *c2 = open_context();
    gd_params *other = gd_params_create(c2, GD_FLOAT32);
    gd_params_add(other, "v", GD_SHAPE(4), 0);
    gd_params_finish(other);
    gd_optimizer *opt = gd_sgd_create(other, NULL);
    gd_backward(loss_of(w));
    gd_optimizer_step(opt, 0.1);
    ck_assert_error(c2, "optimizer_update: no parameter has a gradient");
    gd_optimizer_backward(opt, loss_of(w), 1);
    ck_assert_error(c2, "optimizer_backward: loss is [] of another context");
    gd_optimizer_free(opt);
    gd_params_free(other);
    gd_context_free(c2);
}

TEST(decay_that_nothing_takes)
{
    gd_optimizer_free(gd_adamw_create(params, &(gd_adamw_options){.weight_decay = 0.1}));
    ck_assert_told(
        "adamw_create: no parameter takes weight_decay 0.1: set GD_DECAY in gd_params_add of "
        "those that decay (matrices, as a rule)");
    gd_optimizer_free(gd_muon_create(params, NULL));
    ck_assert_told("muon_create: no parameter has GD_MUON: AdamW updates all");

    for (int k = 0; k < 2; k++) {
        gd_context *c = open_context();
        gd_params *two = gd_params_create(c, GD_FLOAT32);
        gd_params_add(two, "v", GD_SHAPE(2, 2), GD_MUON | (k ? GD_DECAY : 0));
        gd_params_add(two, "b", GD_SHAPE(2), k ? 0 : GD_DECAY);
        gd_params_finish(two);
        gd_optimizer *opt =
            gd_muon_create(two, &(gd_muon_options){.weight_decay = k ? 0.1 : 0,
                                                   .adamw.weight_decay = k ? 0 : 0.1});
        gd_optimizer_free(opt);
        ck_assert_int_eq(notices, 0);
        opt =
            gd_muon_create(two, &(gd_muon_options){.weight_decay = 0.1, .adamw.weight_decay = 0.1});
        ck_assert_told(k ? "decay and do not have GD_MUON" : "that decay and have GD_MUON");
        gd_optimizer_free(opt);
        ck_assert_no_error(c);
        gd_params_free(two);
        gd_context_free(c);
    }
}

TEST(schedules_without_their_numbers)
{
    gd_optimizer *opt = gd_sgd_create(params, NULL);
    const gd_schedule unset[] = {{.kind = GD_SCHEDULE_LINEAR, .rate = 1},
                                 {.kind = GD_SCHEDULE_COSINE, .rate = 1},
                                 {.kind = GD_SCHEDULE_WSD, .rate = 1, .decay_steps = 3},
                                 {.kind = GD_SCHEDULE_ONE_CYCLE, .rate = 1},
                                 {.kind = GD_SCHEDULE_STEP, .rate = 1, .factor = 0.5},
                                 {.kind = GD_SCHEDULE_STEP, .rate = 1, .decay_steps = 3},
                                 {.kind = GD_SCHEDULE_EXPONENTIAL, .rate = 1}};
    for (size_t i = 0; i < sizeof unset / sizeof *unset; i++) {
        gd_backward(loss_of(w));
        gd_optimizer_step(opt, gd_schedule_rate(&unset[i], 5));
        ck_assert_error(ctx, "optimizer_step: lr is nan, wanted a finite number of at least 0; "
                             "gd_schedule_rate gives nan where a number that its kind needs is 0");
        gd_step_end(ctx);
        gd_params_clear_grads(params);
    }
    ck_assert_double_eq(gd_schedule_rate(&(gd_schedule){.rate = 1}, 5), 1);
    gd_optimizer_free(opt);
}

static void learn(gd_optimizer *opt, double rate)
{
    gd_backward(loss_of(w));
    gd_optimizer_step(opt, rate);
    gd_params_clear_grads(params);
}

TEST(a_rate_of_0_for_ever)
{
    gd_optimizer *opt = gd_sgd_create(params, NULL);
    const gd_schedule s = {.kind = GD_SCHEDULE_COSINE, .rate = 1, .steps = 5};
    for (int i = 0; i < 13; i++, gd_step_end(ctx)) learn(opt, gd_schedule_rate(&s, i));
    ck_assert_int_eq(notices, 0);
    for (int i = 13; i < 40; i++, gd_step_end(ctx)) learn(opt, gd_schedule_rate(&s, i));
    ck_assert_told("optimizer: the learning rate of 10 updates in a row is 0");
    gd_optimizer_free(opt);
}

/* ---- Reports, norms, values ----------------------------------------------------------------- */

TEST(reports_without_a_loss)
{
    gd_update_report report;
    gd_optimizer *opt = gd_sgd_create(params, NULL);
    learn(opt, 0.1);
    ck_assert(gd_optimizer_report(opt, true, &report) && isnan(report.loss));
    gd_backward(loss_of(w));
    gd_optimizer_update(opt, 0);
    ck_assert(gd_optimizer_report(opt, true, &report) && isnan(report.loss));
    ck_assert_double_eq_tol(report.norm, sqrt(30), 1e-6);
    gd_params_clear_grads(params);
    gd_optimizer_backward(
        opt, gd_add(gd_scale(loss_of(w), 0), gd_constant(ctx, GD_FLOAT32, 0, NULL, 7)), 0.5);
    gd_optimizer_update(opt, 0);
    ck_assert(gd_optimizer_report(opt, true, &report));
    ck_assert_double_eq(report.loss, 3.5);
    gd_params_clear_grads(params);
    learn(opt, 0.1);
    ck_assert(gd_optimizer_report(opt, true, &report) && isnan(report.loss));
    gd_optimizer_free(opt);
}

TEST(numbers_that_are_not_finite)
{
    double norm;
    gd_tensor_fill(x, NAN);
    gd_tensor *loss = loss_of(w);
    ck_assert(isnan(gd_item(loss)));
    ck_assert_told("item: [], made by sum, is nan: gd_tape_find_nonfinite names the first op");
    gd_backward(loss);
    gd_clip_grad_norm(params, 1, &norm);
    ck_assert_told("clip_grad_norm: the norm of the gradient is nan: an update by it makes");
    gd_clip_grad_norm(params, 1, &norm);
    ck_assert(isnan(gd_item(loss)));
    ck_assert_int_eq(notices, 0); /* once */
}

TEST(gradients_that_are_not_there)
{
    gd_tensor *y = gd_mul(w, x), *kept = gd_retain_grad(gd_mul(w, x));
    ck_assert_ptr_null(gd_grad(y)); /* not yet */
    gd_backward(gd_sum_all(gd_add(y, kept)));
    ck_assert_ptr_nonnull(gd_grad(kept));
    ck_assert_ptr_null(gd_grad(x));
    ck_assert_int_eq(notices, 0);
    ck_assert_ptr_null(gd_grad(y));
    ck_assert_told("grad: the gradient of [4], made by mul, was not kept: call gd_retain_grad");
    gd_params_clear_grads(params);
}

/* ---- Loops that forget something ------------------------------------------------------------- */

TEST(gradients_of_earlier_updates)
{
    gd_optimizer *opt = gd_sgd_create(params, NULL);
    for (int i = 0; i < 3; i++) gd_backward(loss_of(w)); /* accumulated: meant */
    gd_optimizer_step(opt, 0.1);
    gd_optimizer_step(opt, 0.1); /* twice by one gradient: a benchmark */
    gd_params_clear_grads(params);
    learn(opt, 0.1);
    gd_grad_clear(w);
    learn(opt, 0.1);
    ck_assert_int_eq(notices, 0);
    for (int i = 0; i < 5; i++) {
        gd_backward(loss_of(w));
        gd_optimizer_step(opt, 0.1);
        gd_step_end(ctx);
    }
    ck_assert_told("optimizer: the gradients of this update hold those of an earlier one, too");
    gd_optimizer_free(opt);
}

TEST(updates_without_a_step_end)
{
    gd_optimizer *opt = gd_sgd_create(params, NULL);
    for (int i = 0; i < 999; i++) learn(opt, 0.1);
    gd_step_end(ctx);
    for (int i = 0; i < 999; i++) learn(opt, 0.1);
    ck_assert_int_eq(notices, 0);
    for (int i = 0; i < 2000; i++) learn(opt, 0.1);
    ck_assert_told("optimizer: 1000 updates in one step, whose tensors have ");
    gd_optimizer_free(opt);
}

TEST(an_evaluation_that_grows)
{
    for (int i = 0; i < 40000; i++) { /* steps that end, or go backward */
        gd_tensor *loss = loss_of(w);
        if (i % 100 == 0)
            gd_step_end(ctx);
        else if (i % 50 == 0)
            gd_backward(loss);
    }
    ck_assert_int_eq(notices, 0);
    gd_step_end(ctx);
    for (int i = 0; i < 40000; i++) loss_of(w);
    ck_assert_told("without a backward, and ");
    gd_step_end(ctx);
}

TEST(a_small_evaluation_of_much_memory)
{
    gd_tensor *big = gd_expand(x, GD_SHAPE(100000, 4));
    gd_no_grad_begin(ctx); /* alone it is not enough */
    for (int i = 0; i < 1000; i++) gd_add(big, x);
    ck_assert_int_eq(notices, 0);
    for (int i = 0; i < 1200; i++) gd_add(big, x);
    gd_no_grad_end(ctx);
    ck_assert_told("one step has 2");
    gd_step_end(ctx);
}

TEST(an_error_that_nobody_asked_for)
{
    gd_context *c = open_context();
    gd_tensor *a = gd_tensor_create(c, GD_FLOAT32, GD_SHAPE(3));
    gd_add(a, gd_tensor_create(c, GD_FLOAT32, GD_SHAPE(4)));
    gd_context_free(c);
    ck_assert_told("gd_error was not asked for an error: add: b is float32 [4], wanted a shape");
    c = open_context();
    gd_add(gd_tensor_create(c, GD_FLOAT32, GD_SHAPE(3)),
           gd_tensor_create(c, GD_FLOAT32, GD_SHAPE(4)));
    ck_assert_ptr_nonnull(gd_error(c));
    gd_context_free(c);
    ck_assert_int_eq(notices, 0);
}

TEST(an_index_of_one_for_all)
{
    static const int32_t rows[] = {2, 0, 1, 2};
    gd_tensor *src = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4, 8));
    gd_tensor *sum = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 8));
    gd_tensor *index = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(4, 1), rows);
    gd_tensor *all = gd_expand(index, GD_SHAPE(4, 8));
    gd_scatter_add(sum, 0, all, src);
    gd_gather(sum, 0, all);
    gd_gather(src, 1, index); /* one of each row */
    gd_scatter_add(src, 1, index, gd_narrow(src, 1, 0, 1));
    gd_gather(src, 0, gd_expand(index, GD_SHAPE(4, 2))); /* two columns of eight */
    gd_index_select(src, 0, gd_reshape(index, GD_SHAPE(4)));
    ck_assert_int_eq(notices, 0);
    gd_scatter_add(sum, 0, index, src);
    ck_assert_told("scatter_add: index [4, 1] has one element along axis 1, where ");
    gd_gather(sum, 0, index);
    ck_assert_int_eq(notices, 0); /* once a context */
    for (int i = 0; i < 2; i++) {
        gd_context *c = open_context();
        gd_tensor *x8 = gd_tensor_create(c, GD_FLOAT32, GD_SHAPE(4, 8));
        gd_tensor *one = gd_tensor_from(c, GD_INT32, GD_SHAPE(4, 1), rows);
        if (i)
            gd_gather(x8, 0, one);
        else
            gd_scatter_add(x8, 1, one, x8);
        ck_assert_told(
            i ? "gather: index [4, 1] has one element along axis 1, where x [4, 8] has 8: the "
                "others "
                "are left out; call gd_expand for an index of all"
              : "scatter_add: index [4, 1] has one element along axis 1, where src [4, 8] has 8");
        ck_assert_no_error(c);
        gd_context_free(c);
    }
}

/* ---- Why there is no gradient ---------------------------------------------------------------- */

TEST(why_a_loss_depends_on_nothing)
{
    const char *what =
        "backward: output [] does not depend on any tensor that requires a gradient: ";
    char words[400];
    gd_no_grad_begin(ctx);
    gd_backward(loss_of(w));
    snprintf(words, sizeof words, "%srecording is off; call gd_no_grad_end before the ops", what);
    ck_assert_error(ctx, words);
    gd_tensor *features = gd_mul(w, x);
    gd_no_grad_end(ctx);
    gd_backward(gd_sum_all(features));
    snprintf(words, sizeof words, "%sops of this step were called between gd_no_grad_begin and",
             what);
    ck_assert_error(ctx, words);
    gd_step_end(ctx);

    gd_backward(gd_sum_all(x));
    snprintf(words, sizeof words, "%swhat it is made of is neither a parameter nor has", what);
    ck_assert_error(ctx, words);
    gd_tensor *y = gd_mul(x, x);
    gd_tensor_set_requires_grad(x, true);
    gd_backward(gd_sum_all(y));
    snprintf(words, sizeof words, "%sgd_tensor_set_requires_grad was called after ops of this step",
             what);
    ck_assert_error(ctx, words);
    gd_step_end(ctx);
    gd_backward(gd_sum_all(gd_mul(x, x)));
    gd_backward(gd_sum_all(gd_grad(x)));
    ck_assert_error(ctx, "backward: output [] was made of a gradient, and how that was computed");
}

TEST(two_losses_on_one_trunk)
{
    gd_tensor *trunk =
        gd_linear(gd_reshape(x, GD_SHAPE(2, 2)), gd_reshape(w, GD_SHAPE(2, 2)), NULL);
    gd_backward(gd_sum_all(gd_tanh(trunk)));
    gd_tanh(trunk);
    ck_assert_error(ctx, "call gd_keep on it before, or for another loss add all losses before one "
                         "gd_backward, or use gd_backward_from with keep_tape");
}

/* ---- Steps that are not what they seem ------------------------------------------------------- */

TEST(statistics_that_no_batch_has_made)
{
    gd_params *model = gd_params_create(ctx, GD_FLOAT32);
    const gd_norm_layer norm = gd_make_norm(model, GD_BATCH_NORM, 0, 2, "norm");
    gd_params_finish(model);
    gd_tensor *rows = gd_reshape(x, GD_SHAPE(2, 2));
    gd_run_norm(&norm, rows, false);
    gd_run_norm(&norm, rows, true);
    ck_assert_int_eq(notices, 0);
    gd_tensor_fill(norm.options.mean, 0), gd_tensor_fill(norm.options.var, 1);
    gd_run_norm(&norm, rows, true);
    ck_assert_told("batch_norm: mean is 0 and var is 1 in all channels, as before the first batch");
    gd_params_free(model);
}

/* The second of these steps is by `second`. */
static void three_steps(gd_optimizer *first, gd_optimizer *second)
{
    gd_optimizer *turn[] = {first, second, first};
    for (int i = 0; i < 3; i++, gd_step_end(ctx)) learn(turn[i], 0.1);
}

TEST(two_optimizers_of_one_group)
{
    gd_optimizer *one = gd_sgd_create(params, NULL), *two = gd_sgd_create(params, NULL);
    three_steps(one, one), three_steps(two, two); /* one after the other is meant */
    ck_assert_int_eq(notices, 0);
    three_steps(two, one);
    ck_assert_told("optimizer: two optimizers update one group in turn");
    gd_optimizer_free(one), gd_optimizer_free(two);
}

TEST(a_group_that_is_never_updated)
{
    for (int forgotten = 0; forgotten < 2; forgotten++) {
        for (int cleared = 0; cleared < 2; cleared++) {
            gd_context *c = open_context();
            gd_params *group[2];
            gd_tensor *v[2];
            for (int i = 0; i < 2; i++) {
                group[i] = gd_params_create(c, GD_FLOAT32);
                v[i] = gd_params_add(group[i], i ? "head" : "body", GD_SHAPE(4), 0);
                gd_params_finish(group[i]);
            }
            gd_optimizer *body = gd_sgd_create(group[0], NULL),
                         *head = gd_sgd_create(group[1], NULL);
            for (int i = 0; i < 100; i++) {
                gd_backward(gd_sum_all(gd_mul(v[0], v[1])));
                gd_optimizer_step(body, 0.01);
                if (!forgotten) gd_optimizer_step(head, 0.01);
                gd_params_clear_grads(group[0]);
                if (cleared || !forgotten) gd_params_clear_grads(group[1]);
                gd_step_end(c);
            }
            gd_params_free(group[1]);
            if (forgotten)
                ck_assert_told(
                    "params: the group of \"head\" has had gradients, but no update has");
            gd_optimizer_free(head), gd_optimizer_free(body);
            gd_params_free(group[0]);
            gd_context_free(c);
            ck_assert_int_eq(notices, 0);
        }
    }
}

TEST(a_loss_of_nan_that_nobody_read)
{
    gd_optimizer *opt = gd_sgd_create(params, NULL);
    for (int i = 0; i < 100 && !notices; i++) {
        gd_tensor_fill(x, i ? 1 : (double)NAN);
        gd_optimizer_backward(opt, loss_of(w), 1);
        gd_optimizer_step(opt, 0.1);
        gd_params_clear_grads(params);
        gd_step_end(ctx);
    }
    ck_assert_told("was made by a loss of nan, which nobody read: call gd_optimizer_update");
    gd_optimizer_free(opt);
}

TEST(what_is_not_there)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    ck_assert_int_ne(gd_tensor_print(gd_grad(x), file), GD_OK);
    fclose(file);
    ck_assert_str_eq(text, "NULL: no tensor\n");
    free(text);
    gd_plateau unset = {.patience = 2};
    ck_assert(isnan(gd_plateau_rate(&unset, 1)));
    const int64_t labels[3] = {1, 2, 3};
    gd_tensor *t = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(3));
    gd_tensor_write(t, labels, sizeof labels);
    ck_assert_error(ctx,
                    "tensor_write: given 24 bytes for int32 [3], wanted 12: numbers of 64 bits "
                    "are to be converted first");
    gd_tensor_free(t);
}

CHECK_MAIN_WITHIN("notices", setup, teardown)
