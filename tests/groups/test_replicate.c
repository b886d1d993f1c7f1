/* test_replicate.c - several processes: replicated parameters against one process that computes all
 * batches, their buffers, and their files. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, mkdtemp, nanosleep */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "optimizer_kinds.h"
#include "rank_buffers.h"

typedef struct setting {
    gd_dtype dtype;
    int batches; /* of a step, over all ranks */
    bool by_hand, early;
    double max_norm, tolerance;
    int kind;     /* of optimizer_of_kind */
    bool penalty; /* the loss contains the gradient by x */
} setting;

static setting now; /* set before fork, so all ranks have it */

/* A net whose parameters have odd sizes, with and without decay; one is used twice, one is frozen,
 * and one gets no gradient. */
enum { ROWS = 3, IN = 7, HIDDEN = 37, STEPS = 6 };

typedef struct net {
    gd_params *params;
    gd_tensor *w1, *w2, *w3, *bias, *frozen, *unused, *x;
} net;

static net make_net(gd_context *ctx, gd_group *group)
{
    net m = {.params = gd_params_create(ctx, now.dtype)};
    m.unused = gd_params_add(m.params, "unused", GD_SHAPE(5, 5), GD_DECAY);
    m.w1 = gd_params_add(m.params, "w1", GD_SHAPE(HIDDEN, IN), GD_DECAY);
    m.frozen = gd_params_add(m.params, "frozen", GD_SHAPE(HIDDEN), 0);
    m.w2 = gd_params_add(m.params, "w2", GD_SHAPE(HIDDEN, HIDDEN), GD_DECAY);
    m.bias = gd_params_add(m.params, "bias", GD_SHAPE(HIDDEN), 0);
    m.w3 = gd_params_add(m.params, "w3", GD_SHAPE(1, HIDDEN), GD_DECAY);
    gd_params_set_factors(m.params, m.w2, 0.5, 2);
    gd_params_finish(m.params);
    for (int i = 0; i < gd_params_count(m.params); i++) {
        /* Only the values of rank 0 may be used. */
        gd_random_normal(gd_params_at(m.params, i), 0.1 * gd_group_rank(group), 0.3);
    }
    gd_tensor_set_requires_grad(m.frozen, false);
    m.x = gd_tensor_create(ctx, now.dtype, GD_SHAPE(ROWS, IN));
    gd_tensor_set_requires_grad(m.x, now.penalty);
    gd_params_replicate(m.params, group, &(gd_replicate_options){.bucket_bytes = 512});
    return m;
}

/* Batch b of the run, the same on every rank. */
static void draw(const net *m, int64_t b)
{
    double values[ROWS * IN];
    for (int i = 0; i < ROWS * IN; i++) values[i] = sin((double)(b * 31 + i));
    gd_tensor_write_f64(m->x, values, ROWS * IN);
}

static gd_tensor *loss_of(const net *m)
{
    gd_tensor *h = gd_tanh(gd_add(gd_linear(m->x, m->w1, m->bias), m->frozen));
    h = gd_tanh(gd_linear(gd_tanh(gd_linear(h, m->w2, NULL)), m->w2, NULL));
    gd_tensor *y = gd_linear(h, m->w3, NULL), *x = m->x, *slope;
    gd_tensor *loss = gd_mean(gd_mul(y, y), NULL, 0, false);
    if (!now.penalty) return loss;
    const gd_gradients_options options = {.differentiable = true};
    gd_gradients(&y, 1, &options, &x, 1, &slope);
    return gd_add(loss, gd_mean(gd_mul(slope, slope), NULL, 0, false));
}

static void note_values(const net *m, outcome *mine)
{
    for (int i = 0; i < gd_params_count(m->params); i++) {
        double values[HIDDEN * HIDDEN];
        const gd_tensor *t = gd_params_at(m->params, i);
        gd_tensor_read_f64(t, values, gd_tensor_count(t));
        for (int64_t k = 0; k < gd_tensor_count(t); k++) note(mine, values[k]);
    }
}

/* One step of this rank, with every ranks-th batch of the step. */
static void step(const net *m, gd_optimizer *adamw, int64_t s, gd_group *group, outcome *mine)
{
    const int ranks = gd_group_ranks(group);
    gd_context *ctx = gd_tensor_context(m->x);
    double loss = 0, norm = 0;
    /* From here on w3's memory has the gradient of an earlier step, which must not be used. */
    if (s == STEPS / 2) gd_tensor_set_requires_grad(m->w3, false);
    if (s == STEPS - 2) gd_tensor_set_requires_grad(m->frozen, true); /* as of its first update */
    for (int b = gd_group_rank(group); b < now.batches; b += ranks) {
        draw(m, s * now.batches + b);
        if (now.early && b + ranks >= now.batches) gd_params_last_backward(m->params);
        gd_tensor *l = loss_of(m);
        if (now.by_hand) {
            gd_backward(gd_scale(l, (double)ranks / now.batches));
        } else {
            gd_optimizer_backward(adamw, l, (double)ranks / now.batches);
        }
        gd_step_end(ctx);
    }
    if (now.by_hand) {
        gd_clip_grad_norm(m->params, now.max_norm, &norm);
        gd_optimizer_step(adamw, 0.01);
    } else {
        gd_update_report r = {0};
        gd_optimizer_set_rate(adamw, 0.01);
        gd_optimizer_update(adamw, now.max_norm);
        gd_optimizer_report(adamw, true, &r);
        loss = r.loss;
        norm = r.norm;
    }
    gd_params_clear_grads(m->params);
    note(mine, loss);
    note(mine, norm);
}

/* A state has the slices of this rank: 1/N of the block, and fewer than 16 N elements more for each
 * of five buckets. */
static void note_state(const net *m, const gd_optimizer *optimizer, int ranks, outcome *mine)
{
    int64_t block = 0;
    for (int i = 0; i < gd_params_count(m->params); i++)
        block += gd_tensor_count(gd_params_at(m->params, i));
    const int64_t most = block / ranks + 5 * 16 * ranks;
    note(mine, ranks > 1 && gd_tensor_count(gd_optimizer_state(optimizer, 1)) > most);
}

static int64_t saved_at; /* the step before which the state is saved, or from which one goes on */
static bool goes_on;

/* All steps, if wanted with a file made on the way; or those after it, from the file, by a net with
 * other numbers. */
static void learn(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank;
    if (goes_on) gd_random_set(ctx, (gd_random_state){.seed = 77});
    net m = make_net(ctx, group);
    gd_optimizer *optimizer = optimizer_of_kind(m.params, now.kind);
    gd_optimizer_average(optimizer, 0.9);
    if (goes_on) gd_optimizer_load(optimizer, "states", NULL);
    for (int64_t s = goes_on ? saved_at : 0; s < STEPS; s++) {
        if (s == saved_at && s > 0 && !goes_on) gd_optimizer_save(optimizer, "states", NULL, 0);
        if (s > STEPS / 2 && s == saved_at) gd_tensor_set_requires_grad(m.w3, false);
        step(&m, optimizer, s, group, mine);
    }
    if (saved_at > 0) mine->count = 0; /* the values alone */
    note_values(&m, mine);
    gd_optimizer_swap_average(optimizer);
    note_values(&m, mine);
    note_state(&m, optimizer, gd_group_ranks(group), mine);
    gd_optimizer_free(optimizer);
    gd_params_free(m.params);
}

static outcome alone, several;

/* Runs and keeps the outcome, which all ranks have to the last bit. */
static void run_and_keep(int ranks, outcome *kept)
{
    ranks_run_well(ranks, learn);
    for (int r = 1; r < ranks; r++) {
        ck_assert_int_eq(outcomes[r].count, outcomes[0].count);
        ck_assert_mem_eq(outcomes[r].number, outcomes[0].number, sizeof outcomes->number);
    }
    *kept = outcomes[0];
    ck_assert_int_gt(kept->count, 1400);
}

static void assert_close(const outcome *got, const outcome *want, double tolerance)
{
    ck_assert_int_eq(got->count, want->count);
    for (int64_t i = 0; i < want->count; i++)
        ck_assert_msg(
            fabs(got->number[i] - want->number[i]) <= tolerance * (1 + fabs(want->number[i])),
            "number %lld: %.17g, wanted %.17g", (long long)i, got->number[i], want->number[i]);
}

static const setting settings[] = {
    {GD_FLOAT64, 4, false, true, 0.05, 1e-12, 3, false},
    {GD_FLOAT64, 5, false, false, 0, 1e-12, 3, false},
    {GD_FLOAT64, 5, true, true, 0.05, 1e-12, 3, false},
    {GD_FLOAT32, 4, false, true, 0.05, 1e-5, 3, false},
    {GD_FLOAT32, 7, false, true, 0, 1e-5, 3, false},
    {GD_BFLOAT16, 4, false, true, 0.05, 8e-3, 3, false},
    {GD_FLOAT32, 4, true, false, 0, 1e-5, 3, false},
    {GD_FLOAT64, 4, false, true, 0.05, 1e-10, 6, false},
    {GD_FLOAT64, 4, false, true, 0.05, 1e-12, 7, false},
    {GD_FLOAT64, 5, false, true, 0.05, 1e-12, 3, true},
    {GD_FLOAT64, 4, true, false, 0.05, 1e-12, 3, true},
    {GD_BFLOAT16, 4, false, true, 0.05, 8e-3, 3, true},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

TEST_CASE("one that does all batches", NULL, NULL)

LOOP_TEST(ranks_follow_one_that_does_all_batches, SETTINGS)
{
    now = settings[_i];
    run_and_keep(1, &alone);
    for (int ranks = 2; ranks <= 4; ranks++) {
        run_and_keep(ranks, &several);
        /* With 3 ranks a batch's weight is 3/4, which rounds; a power of two does not. */
        assert_close(&several, &alone, (ranks == 3 ? 5 : 1) * now.tolerance);
        ranks_run_well(ranks, learn);
        assert_close(&outcomes[0], &several, 0); /* the same bits */
    }
}

TEST_CASE("buffers", NULL, NULL)

LOOP_TEST(buffers_are_the_same, 2)
{
    buffers_by_hand = _i;
    buffers_are_those_of_rank_0(3);
}

/* ---- Files ----------------------------------------------------------------------------------- */

TEST_CASE("files", enter_folder, leave_folder)

/* With as many ranks the same bits, with others the same up to the order of sums. */
LOOP_TEST(any_number_of_ranks_goes_on_from_a_file, 2)
{
    now = (setting){_i ? GD_BFLOAT16 : GD_FLOAT64, 4, false, true, 0.05, 0, 3, false};
    for (saved_at = 2; saved_at < STEPS; saved_at += 2) {
        for (int from = 1; from <= 3; from++) {
            goes_on = false;
            run_and_keep(from, &alone);
            goes_on = true;
            for (int to = 1; to <= 3; to++) {
                run_and_keep(to, &several);
                assert_close(&several, &alone, to == from ? 0 : _i ? 2e-2 : 1e-12);
            }
        }
    }
}

static int fits; /* so many calls until the disk is full */

static bool write_some(void *user, const void *bytes, size_t count)
{
    (void)bytes, (void)count;
    errno = ENOSPC;
    return (*(int *)user)-- > 0;
}

static void save_nowhere(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank, (void)mine;
    int left = fits;
    net m = make_net(ctx, group);
    gd_optimizer *adamw = gd_adamw_create(m.params, NULL);
    if (fits < 0)
        gd_optimizer_save(adamw, "/nowhere/at/all", NULL, 0);
    else
        gd_optimizer_save_states(adamw, &(gd_output){"/nowhere", write_some, &left}, NULL, 0);
    gd_optimizer_free(adamw);
    gd_params_free(m.params);
}

LOOP_TEST(a_file_that_rank_0_cannot_write_is_an_error_of_all, 14)
{
    now = (setting){.dtype = GD_FLOAT32};
    fits = _i - 1; /* a header, two states of six parameters */
    ranks_run(3, save_nowhere);
    rank_failed(0, "safetensors_write: /nowhere");
    for (int r = 1; r < 3; r++) rank_failed(r, "rank 0: safetensors_write: /nowhere");
}

CHECK_MAIN("replicate")
