/* test_update.c - updates that the device decides: the same bits as by waiting, withheld updates,
 * reports, the loss scale. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <math.h>
#include <string.h>
#include <time.h>

#include "check_main.h"
#include "gradus/gradus.h"
#include "optim/optimizer.h"
#include "optimizer_kinds.h"

enum { N = 37, SLOTS = GD_UPDATE_SLOTS };

/* Some weights whose gradient is `pull` * slope, so that each test chooses it. */
typedef struct learner {
    gd_context *ctx;
    gd_params *params;
    gd_tensor *w, *bias, *slope, *pull;
    gd_optimizer *optimizer;
} learner;

static learner make(gd_dtype dtype, int kind)
{
    learner l = {
        .ctx = gd_context_create(&(gd_context_options){.seed = 5, .threads = 1, .poison = true})};
    l.params = gd_params_create(l.ctx, dtype);
    l.w = gd_params_add(l.params, "w", GD_SHAPE(N, 1), GD_DECAY | GD_MUON);
    l.bias = gd_params_add(l.params, "bias", GD_SHAPE(3), 0);
    gd_params_finish(l.params);
    gd_random_normal(l.w, 0, 1);
    l.slope = gd_tensor_create(l.ctx, dtype, GD_SHAPE(N, 1));
    l.pull = gd_tensor_create(l.ctx, dtype, 0, NULL);
    gd_random_normal(l.slope, 0, 1);
    l.optimizer = optimizer_of_kind(l.params, kind);
    gd_optimizer_average(l.optimizer, 0.9);
    ck_assert_no_error(l.ctx);
    return l;
}

static void destroy(learner *l)
{
    gd_optimizer_free(l->optimizer);
    gd_params_free(l->params);
    gd_context_free(l->ctx);
}

static gd_tensor *loss_of(learner *l, double pull)
{
    gd_tensor_write_f64(l->pull, &pull, 1);
    return gd_mul(gd_sum(gd_mul(l->w, l->slope), NULL, 0, false), l->pull);
}

static void end_step(learner *l)
{
    gd_params_clear_grads(l->params);
    gd_step_end(l->ctx);
}

static void step(learner *l, double pull, double max_norm)
{
    gd_optimizer_backward(l->optimizer, loss_of(l, pull), 1);
    gd_optimizer_update(l->optimizer, max_norm);
    end_step(l);
}

static gd_update_report report(learner *l)
{
    gd_update_report r;
    ck_assert_no_error(l->ctx);
    ck_assert(gd_optimizer_report(l->optimizer, true, &r));
    return r;
}

static void read_weights(const learner *l, double w[N])
{
    gd_tensor_read_f64(l->w, w, N);
    ck_assert_no_error(l->ctx);
}

/* ---- The same bits ------------------------------------------------------------------------- */

/* The reference: wait for the norm, scale the gradients, update. */
static void step_waiting(learner *l, double pull, double max_norm, double rate, double *norm)
{
    gd_backward(loss_of(l, pull));
    gd_clip_grad_norm(l->params, max_norm, norm);
    gd_optimizer_step(l->optimizer, rate);
    end_step(l);
}

static const gd_dtype dtypes[4] = {GD_FLOAT32, GD_FLOAT64, GD_BFLOAT16, GD_FLOAT16};

LOOP_TEST(the_weights_are_those_of_one_who_waits, 4 * OPTIMIZER_KINDS)
{
    learner a = make(dtypes[_i % 4], _i / 4), b = make(dtypes[_i % 4], _i / 4);
    for (int i = 0; i < 3 * SLOTS; i++) {
        const double pull = 0.1 + 0.37 * (i % 5), rate = 0.01 * (i + 1), max_norm = i % 3 ? 1.5 : 0;
        double norm, left[N], right[N];
        step_waiting(&a, pull, max_norm, rate, &norm);
        gd_optimizer_set_rate(b.optimizer, rate);
        step(&b, pull, max_norm);
        gd_update_report r = report(&b);
        ck_assert_int_eq(r.number, i);
        ck_assert_int_eq(r.outcome, GD_UPDATE_MADE);
        ck_assert_double_eq(r.norm, norm);
        ck_assert_double_eq(r.rate, rate);
        ck_assert_double_eq(r.loss_scale, 1);
        ck_assert(isfinite(r.loss));
        read_weights(&a, left);
        read_weights(&b, right);
        ck_assert_mem_eq(left, right, sizeof left);
    }
    ck_assert_int_eq(gd_optimizer_steps(b.optimizer), 3 * SLOTS);
    destroy(&a);
    destroy(&b);
}

/* Reports that are read late, and all at once, say when each update was made. */
TEST(a_report_has_the_time_of_its_update)
{
    const struct timespec nap = {0, 3000000};
    learner l = make(GD_FLOAT32, OPTIMIZER_ADAMW);
    const time_t begin = time(NULL);
    for (int i = 0; i < SLOTS; i++) {
        step(&l, 1, 0);
        nanosleep(&nap, NULL);
    }
    const double whole = difftime(time(NULL), begin) + 1;
    const double first = report(&l).time;
    double before = first;
    for (int i = 1; i < SLOTS; i++) {
        const double now = report(&l).time;
        ck_assert_double_ge(now - before, 0.003);
        before = now;
    }
    ck_assert_double_le(before - first, whole);
    destroy(&l);
}

TEST(shares_add_up_to_the_loss_and_its_gradient)
{
    learner a = make(GD_FLOAT64, OPTIMIZER_ADAMW), b = make(GD_FLOAT64, OPTIMIZER_ADAMW);
    double left[N], right[N];
    gd_optimizer_set_rate(a.optimizer, 0.1);
    gd_optimizer_set_rate(b.optimizer, 0.1);
    gd_tensor *loss = loss_of(&a, 3);
    const double wanted = gd_item(loss);
    gd_optimizer_backward(a.optimizer, loss, 1);
    gd_optimizer_update(a.optimizer, 0);
    end_step(&a);
    for (int k = 0; k < 4; k++) {
        gd_optimizer_backward(b.optimizer, loss_of(&b, 3), 0.25);
        gd_step_end(b.ctx);
    }
    gd_optimizer_update(b.optimizer, 0);
    end_step(&b);
    ck_assert_double_eq(report(&a).loss, wanted);
    ck_assert_double_eq(report(&b).loss, wanted);
    read_weights(&a, left);
    read_weights(&b, right);
    for (int i = 0; i < N; i++) ck_assert_double_eq_tol(left[i], right[i], 1e-14);
    destroy(&a);
    destroy(&b);
}

/* ---- Updates that are not made ------------------------------------------------------------- */

LOOP_TEST(nothing_that_is_not_finite_reaches_the_weights, 4 * OPTIMIZER_KINDS)
{
    const double bad[3] = {NAN, INFINITY, -INFINITY};
    learner l = make(dtypes[_i % 4], _i / 4);
    double before[N], after[N];
    gd_update_report r;
    gd_optimizer_set_rate(l.optimizer, 0.1);
    step(&l, 1, 1);
    ck_assert_int_eq(report(&l).outcome, GD_UPDATE_MADE);
    for (int i = 0; i < 3; i++) {
        read_weights(&l, before);
        step(&l, bad[i], 1);
        for (int k = 0; k < 3; k++) step(&l, 1, 1); /* asked for by a host that does not know yet */
        r = report(&l);
        ck_assert_int_eq(r.outcome, GD_UPDATE_NOT_FINITE);
        ck_assert(!isfinite(r.loss) || !isfinite(r.norm));
        for (int k = 0; k < 3; k++) ck_assert_int_eq(report(&l).outcome, GD_UPDATE_WITHHELD);
        ck_assert(!gd_optimizer_report(l.optimizer, true, &r));
        read_weights(&l, after);
        ck_assert_mem_eq(before, after, sizeof before);
        ck_assert_int_eq(gd_optimizer_steps(l.optimizer), 1 + i);
        gd_optimizer_continue(l.optimizer);
        step(&l, 1, 1);
        ck_assert_int_eq(report(&l).outcome, GD_UPDATE_MADE);
        read_weights(&l, after);
        ck_assert_mem_ne(before, after, sizeof before);
    }
    destroy(&l);
}

/* Who never asks still learns that the weights stand still. */
TEST(a_bad_report_is_not_lost)
{
    learner l = make(GD_FLOAT32, OPTIMIZER_ADAMW);
    gd_optimizer_set_rate(l.optimizer, 0.1);
    for (int i = 0; i < 2 * SLOTS; i++) step(&l, 1, 1); /* good ones may be */
    gd_update_report r = report(&l);
    ck_assert_int_eq(r.number, SLOTS);
    step(&l, NAN, 1);
    for (int i = 0; i < SLOTS - 1; i++) step(&l, 1, 1);
    ck_assert_no_error(l.ctx);
    step(&l, 1, 1);
    ck_assert_msg(gd_error(l.ctx) &&
                      strstr(gd_error(l.ctx), "optimizer_update: update 16 was skipped"),
                  "%s", gd_error(l.ctx));
    ck_assert(!gd_optimizer_report(l.optimizer, true, &r));
    destroy(&l);
}

TEST(reports_come_once_and_in_order)
{
    learner l = make(GD_FLOAT32, OPTIMIZER_ADAMW);
    gd_update_report r;
    int64_t next = 0, asked = 0;
    ck_assert(!gd_optimizer_report(l.optimizer, true, &r));
    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < round % (SLOTS + 1); k++, asked++) {
            gd_optimizer_set_rate(l.optimizer, (double)asked);
            step(&l, 1e-3, 0);
        }
        while (gd_optimizer_report(l.optimizer, false, &r)) {
            ck_assert_int_eq(r.number, next++);
            ck_assert_double_eq(r.rate, (double)r.number);
        }
        ck_assert_int_eq(next, asked);
    }
    destroy(&l);
}

/* ---- A device that is behind ---------------------------------------------------------------- */

/* The CPU, but what it has done is not to be seen before somebody waits for it, or `hurry` times
 * looked. */
static gd_device_table slow;
static int64_t seen;
static int looks, hurry;

static bool passed_late(gd_context *ctx, int64_t number, bool wait)
{
    ck_assert_int_lt(number, ctx->marks);
    if (wait && number >= seen) seen = number + 1;
    if (hurry && ++looks % hurry == 0) seen++;
    return number < seen;
}

static learner make_slow(int how_slow)
{
    learner l = make(GD_FLOAT32, OPTIMIZER_ADAMW);
    slow = *l.ctx->device;
    slow.passed = passed_late;
    l.ctx->device = &slow;
    seen = looks = 0;
    hurry = how_slow;
    gd_optimizer_set_rate(l.optimizer, 0.1);
    return l;
}

/* Who asks after each update misses none, however late they come. */
LOOP_TEST(late_reports_are_not_lost, 4)
{
    enum { STEPS = 100 };
    learner l = make_slow(_i);
    gd_update_report r;
    int64_t next = 0, most = 0;
    for (int64_t i = 0; i < STEPS; i++) {
        step(&l, 1e-3, 0);
        while (gd_optimizer_report(l.optimizer, i == STEPS - 1, &r))
            ck_assert_int_eq(r.number, next++);
        if (i + 1 - next > most) most = i + 1 - next;
    }
    ck_assert_no_error(l.ctx);
    ck_assert_int_eq(next, STEPS);
    ck_assert_int_le(most, SLOTS - 1);
    if (_i == 0) ck_assert_int_eq(most, SLOTS - 1); /* as far ahead as there are slots */
    destroy(&l);
}

/* However late the host hears of it, the weights are those before. */
TEST(a_late_host_finds_the_weights_as_they_were)
{
    learner l = make_slow(0);
    double before[N], after[N];
    gd_update_report r;
    for (int i = 0; i < 3; i++) step(&l, 1, 1);
    read_weights(&l, before);
    step(&l, NAN, 1);
    int asked = 4, told = 0;
    do {
        step(&l, 1, 1);
        asked++;
        while (gd_optimizer_report(l.optimizer, false, &r)) {
            ck_assert_int_eq(r.outcome, told < 3 ? GD_UPDATE_MADE : GD_UPDATE_NOT_FINITE);
            if (told++ == 3) break;
        }
    } while (told < 4);
    ck_assert_int_ge(asked, 4 + 3);
    read_weights(&l, after);
    ck_assert_mem_eq(before, after, sizeof before);
    while (gd_optimizer_report(l.optimizer, true, &r))
        ck_assert_int_eq(r.outcome, GD_UPDATE_WITHHELD);
    ck_assert_int_eq(r.number, asked - 1);
    ck_assert_int_eq(gd_optimizer_steps(l.optimizer), 3);
    destroy(&l);
}

/* ---- The loss scale ------------------------------------------------------------------------ */

static void succeed(learner *l, int times)
{
    gd_update_report r;
    gd_backward(loss_of(l, 0));
    for (int i = 0; i < times; i++) {
        gd_optimizer_update(l->optimizer, 0); /* by gradients of zero */
        while (gd_optimizer_report(l->optimizer, false, &r))
            ck_assert_int_eq(r.outcome, GD_UPDATE_MADE);
    }
    end_step(l);
}

/* The loss is finite, as nobody said what it is; the gradient, 3e38 squared, is not. */
static gd_update_outcome overflow(learner *l)
{
    gd_backward(gd_sum(gd_scale(gd_scale(l->w, 3e38), 3e38), NULL, 0, false));
    gd_optimizer_update(l->optimizer, 0);
    end_step(l);
    return report(l).outcome;
}

static int64_t factor_of(const learner *l)
{
    return gd_optimizer_loss_scale(l->optimizer).factor;
}

TEST(the_scale_falls_at_once_and_rises_slowly)
{
    learner l = make(GD_FLOAT32, OPTIMIZER_ADAMW);
    ck_assert_int_eq(factor_of(&l), 1);
    gd_optimizer_set_loss_scale(l.optimizer, gd_loss_scale_begin(GD_FLOAT16));
    ck_assert_int_eq(factor_of(&l), 65536);
    succeed(&l, 1999);
    ck_assert_int_eq(overflow(&l), GD_UPDATE_OVERFLOWED);
    ck_assert_int_eq(factor_of(&l), 32768);
    succeed(&l, 1999);
    ck_assert_int_eq(factor_of(&l), 32768);
    succeed(&l, 1);
    ck_assert_int_eq(factor_of(&l), 65536);
    for (int i = 0; i < 16; i++) ck_assert_int_eq(overflow(&l), GD_UPDATE_OVERFLOWED);
    ck_assert_int_eq(factor_of(&l), 1);
    ck_assert_int_eq(overflow(&l), GD_UPDATE_NOT_FINITE); /* it cannot be that */
    gd_optimizer_continue(l.optimizer);
    succeed(&l, 60 * 2000);
    ck_assert_int_eq(factor_of(&l), 1 << 24);
    for (gd_dtype dtype = GD_FLOAT32; dtype <= GD_BFLOAT16; dtype++) {
        gd_optimizer_set_loss_scale(l.optimizer, gd_loss_scale_begin(dtype));
        succeed(&l, 3000);
        ck_assert_int_eq(overflow(&l), GD_UPDATE_NOT_FINITE);
        ck_assert_int_eq(factor_of(&l), 1);
        gd_optimizer_continue(l.optimizer);
    }
    destroy(&l);
}

/* A power of two goes in and out again: no bit of the weights, the norm or the loss depends on
 * it, nor on an update that overflowed (in float64 none does) and halved it. */
LOOP_TEST(a_scale_leaves_no_trace, 4 * OPTIMIZER_KINDS)
{
    const gd_dtype dtype = dtypes[_i % 4];
    learner a = make(dtype, _i / 4), b = make(dtype, _i / 4);
    double left[N], right[N], factor = 4096;
    gd_optimizer_set_loss_scale(b.optimizer, (gd_loss_scale){.adapts = true, .factor = 4096});
    gd_optimizer_set_rate(a.optimizer, 0.03);
    gd_optimizer_set_rate(b.optimizer, 0.03);
    for (int i = 0; i < 20; i++) {
        if (i == 10 && dtype != GD_FLOAT64) {
            ck_assert_int_eq(overflow(&b), GD_UPDATE_OVERFLOWED);
            factor = 2048;
        }
        step(&a, 0.1 * i, 1);
        step(&b, 0.1 * i, 1);
        gd_update_report r = report(&a), s = report(&b);
        ck_assert_double_eq(r.loss, s.loss);
        ck_assert_double_eq(r.norm, s.norm);
        ck_assert_double_eq(s.loss_scale, factor);
    }
    read_weights(&a, left);
    read_weights(&b, right);
    ck_assert_mem_eq(left, right, sizeof left);
    destroy(&a);
    destroy(&b);
}

CHECK_MAIN("updates")
