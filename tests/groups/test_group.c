/* test_group.c - several processes: collectives against sums computed here, and replicated
 * parameters against one process that computes all batches. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <math.h>
#include <stdlib.h>

#include "needs_jansson.h"
#include "param_uses.h"
#include "ranks.h"

/* ---- Collectives ---------------------------------------------------------------------------- */

/* No size is a multiple of the ranks or of 16; the largest takes several chunks. */
static const int64_t sizes[] = {1, 15, 17, 64, 999, 300007};
static const gd_dtype kinds[] = {GD_FLOAT32, GD_FLOAT64};
static int64_t n; /* set before fork, so all ranks have it */
static gd_dtype dtype;

/* Element i of rank r. Sums over the ranks are exact. */
static double element(int rank, int64_t i)
{
    return (double)((i * 7 + rank * 13) % 1001) + 0.25 * rank;
}

static double mean_of(int ranks, int64_t i)
{
    double sum = 0;
    for (int r = 0; r < ranks; r++) sum += element(r, i);
    return (double)(float)(sum * (1.0 / ranks));
}

static gd_tensor *make(gd_context *ctx, int rank)
{
    gd_tensor *t = gd_tensor_create(ctx, dtype, 1, &n);
    double *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++) values[i] = element(rank, i);
    gd_tensor_write_f64(t, values, n);
    free(values);
    return t;
}

/* Compares elements [begin, end) of t with `wanted`; notes how many differ. */
static void compare(gd_tensor *t, int64_t begin, int64_t end, int ranks,
                    double (*wanted)(int ranks, int64_t i), outcome *mine)
{
    double *values = malloc((size_t)n * sizeof *values);
    int64_t wrong = 0;
    gd_tensor_read_f64(t, values, n);
    for (int64_t i = begin; i < end; i++)
        wrong += !(fabs(values[i] - wanted(ranks, i)) <= 1e-6 * fabs(values[i]));
    note(mine, (double)wrong);
    free(values);
}

static double sum_of(int ranks, int64_t i)
{
    double sum = 0;
    for (int r = 0; r < ranks; r++) sum += element(r, i);
    return sum;
}

static double last_has(int ranks, int64_t i)
{
    return element(ranks - 1, i);
}

static double owner_has(int ranks, int64_t i)
{
    const int64_t each = n / ranks / 16 * 16;
    const int64_t owner = each ? i / each : ranks - 1;
    return element(owner < ranks ? (int)owner : ranks - 1, i);
}

static void collectives(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    const int ranks = gd_group_ranks(group);
    int64_t begin, end;
    gd_group_slice(group, rank, n, &begin, &end);
    gd_tensor *t = make(ctx, rank);
    gd_group_reduce_scatter(group, t, true);
    compare(t, begin, end, ranks, mean_of, mine);
    gd_tensor_free(t);
    t = make(ctx, rank);
    gd_group_all_reduce(group, t, false);
    compare(t, 0, n, ranks, sum_of, mine);
    gd_tensor_free(t);
    t = make(ctx, rank);
    gd_group_all_gather(group, t);
    compare(t, 0, n, ranks, owner_has, mine);
    gd_tensor_free(t);
    t = make(ctx, rank);
    gd_group_broadcast(group, t, ranks - 1);
    compare(t, 0, n, ranks, last_has, mine);
    gd_tensor_free(t);
    int all[RANKS_MOST] = {0}, own = 100 + rank;
    gd_group_all_gather_bytes(group, &own, sizeof own, all);
    for (int r = 0; r < ranks; r++) note(mine, all[r] - (100 + r));
}

START_TEST(collectives_do_what_they_say)
{
    static const int counts[] = {2, 3, 4};
    const int ranks = counts[_i];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        n = sizes[s];
        dtype = kinds[s % 2];
        ranks_run_well(ranks, collectives);
        for (int r = 0; r < ranks; r++) {
            ck_assert_int_eq(outcomes[r].count, 4 + ranks);
            for (int64_t k = 0; k < outcomes[r].count; k++)
                ck_assert_msg(outcomes[r].number[k] == 0, "rank %d of %d, %lld elements: %lld", r,
                              ranks, (long long)n, (long long)k);
        }
    }
}
END_TEST

/* The rounding error of a sum in float32 depends on the order of its terms. */
static void sum_in_order(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    static const float values[] = {1, 16777216, -16777216, 0.25F};
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(40));
    gd_tensor_fill(t, values[rank]);
    gd_group_all_reduce(group, t, false);
    double sums[40];
    gd_tensor_read_f64(t, sums, 40);
    note(mine, sums[0]);
    note(mine, sums[39]);
}

START_TEST(sums_are_taken_in_the_order_of_ranks)
{
    const float wanted = ((1.0F + 16777216.0F) + -16777216.0F) + 0.25F; /* 0.25 */
    ranks_run_well(4, sum_in_order);
    for (int r = 0; r < 4; r++) {
        ck_assert_double_eq(outcomes[r].number[0], wanted);
        ck_assert_double_eq(outcomes[r].number[1], wanted);
    }
}
END_TEST

/* A program without a standard input: a connection may have the descriptor 0. */
static void meet_without_input(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    gd_group_options o = {.rank = rank, .ranks = 2, .timeout = ranks_timeout};
    int ports[2] = {0}, own = 100 + rank, all[2] = {0};
    if (rank == 0) o.listener = ranks_listen(&o.port);
    gd_group_all_gather_bytes(group, &o.port, sizeof o.port, ports);
    o.port = ports[0];
    close(STDIN_FILENO);
    gd_group *second = gd_group_create(ctx, &o);
    gd_group_all_gather_bytes(second, &own, sizeof own, all);
    note(mine, all[0] - 100);
    note(mine, all[1] - 101);
    gd_group_free(second);
}

START_TEST(descriptor_0_is_a_connection)
{
    ranks_run_well(2, meet_without_input);
    for (int r = 0; r < 2; r++) ck_assert(outcomes[r].number[0] == 0 && outcomes[r].number[1] == 0);
}
END_TEST

/* ---- Replicated parameters ------------------------------------------------------------------ */

/* A net whose parameters have odd sizes, with and without decay; one is used twice, one is frozen,
 * and one gets no gradient. */
enum { ROWS = 3, IN = 7, HIDDEN = 37, STEPS = 6 };

typedef struct net {
    gd_params *params;
    gd_tensor *w1, *w2, *w3, *bias, *frozen, *unused, *x;
} net;

static bool penalty; /* the loss contains the gradient by x */

static net make_net(gd_context *ctx, gd_group *group)
{
    net m = {.params = gd_params_create(ctx, dtype)};
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
    m.x = gd_tensor_create(ctx, dtype, GD_SHAPE(ROWS, IN));
    gd_tensor_set_requires_grad(m.x, penalty);
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
    if (!penalty) return loss;
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

static int batches;                  /* of a step, over all ranks */
static bool by_hand, early, another; /* another: the context has a second group, of one */
static int kind = 3;                 /* of optimizer_of_kind */
static double max_norm;

/* One step of this rank, with every ranks-th batch of the step. */
static void step(const net *m, gd_optimizer *adamw, int64_t s, gd_group *group, outcome *mine)
{
    const int ranks = gd_group_ranks(group);
    gd_context *ctx = gd_tensor_context(m->x);
    double loss = 0, norm = 0;
    /* From here on w3's memory has the gradient of an earlier step, which must not be used. */
    if (s == STEPS / 2) gd_tensor_set_requires_grad(m->w3, false);
    if (s == STEPS - 2) gd_tensor_set_requires_grad(m->frozen, true); /* as of its first update */
    for (int b = gd_group_rank(group); b < batches; b += ranks) {
        draw(m, s * batches + b);
        if (early && b + ranks >= batches) gd_params_last_backward(m->params);
        gd_tensor *l = loss_of(m);
        if (by_hand) {
            gd_backward(gd_scale(l, (double)ranks / batches));
        } else {
            gd_optimizer_backward(adamw, l, (double)ranks / batches);
        }
        gd_step_end(ctx);
    }
    if (by_hand) {
        gd_clip_grad_norm(m->params, max_norm, &norm);
        gd_optimizer_step(adamw, 0.01);
    } else {
        gd_update_report r = {0};
        gd_optimizer_set_rate(adamw, 0.01);
        gd_optimizer_update(adamw, max_norm);
        gd_optimizer_report(adamw, true, &r);
        loss = r.loss;
        norm = r.norm;
    }
    gd_params_clear_grads(m->params);
    note(mine, loss);
    note(mine, norm);
}

static void learn(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank;
    net m = make_net(ctx, group);
    gd_optimizer *optimizer = optimizer_of_kind(m.params, kind);
    gd_optimizer_average(optimizer, 0.9);
    gd_group *second = another ? gd_group_create(ctx, NULL) : NULL;
    for (int64_t s = 0; s < STEPS; s++) step(&m, optimizer, s, group, mine);
    note_values(&m, mine);
    gd_optimizer_swap_average(optimizer);
    note_values(&m, mine);
    gd_group_free(second);
    gd_optimizer_free(optimizer);
    gd_params_free(m.params);
}

/* Runs and returns a copy of the outcome. */
static outcome *run_and_keep(int ranks)
{
    outcome *kept = malloc(sizeof *kept);
    ranks_run_well(ranks, learn);
    for (int r = 1; r < ranks; r++) { /* all ranks end with the same bits */
        ck_assert_int_eq(outcomes[r].count, outcomes[0].count);
        ck_assert_mem_eq(outcomes[r].number, outcomes[0].number,
                         (size_t)outcomes[0].count * sizeof(double));
    }
    *kept = outcomes[0];
    ck_assert_int_gt(kept->count, 1400);
    return kept;
}

typedef struct setting {
    gd_dtype dtype;
    int batches;
    bool by_hand, early;
    double max_norm, tolerance;
    int kind;
    bool penalty;
} setting;

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

START_TEST(ranks_follow_one_that_does_all_batches)
{
    const setting *c = &settings[_i];
    dtype = c->dtype;
    batches = c->batches;
    by_hand = c->by_hand;
    early = c->early;
    max_norm = c->max_norm;
    kind = c->kind;
    penalty = c->penalty;
    outcome *alone = run_and_keep(1);
    for (int ranks = 2; ranks <= 4; ranks++) {
        outcome *several = run_and_keep(ranks), *again = run_and_keep(ranks);
        ck_assert_int_eq(several->count, alone->count);
        for (int64_t i = 0; i < alone->count; i++) {
            const double gap = fabs(several->number[i] - alone->number[i]);
            /* With 3 ranks a batch's weight is 3/4, which rounds; a power of two does not. */
            const double tolerance = (ranks == 3 ? 5 : 1) * c->tolerance;
            ck_assert_msg(gap <= tolerance * (1 + fabs(alone->number[i])),
                          "%d ranks, number %lld: %.17g and alone %.17g", ranks, (long long)i,
                          several->number[i], alone->number[i]);
        }
        ck_assert_mem_eq(several->number, again->number,
                         (size_t)alone->count * sizeof(double)); /* the same bits */
        free(several);
        free(again);
    }
    free(alone);
}
END_TEST

/* Losses are means over the ranks that share the parameters. */
START_TEST(a_second_group_changes_nothing)
{
    dtype = GD_FLOAT64;
    batches = 4;
    outcome *before = run_and_keep(2);
    another = true;
    outcome *after = run_and_keep(2);
    ck_assert_mem_eq(after->number, before->number, (size_t)before->count * sizeof(double));
    free(before);
    free(after);
}
END_TEST

/* The slices of all ranks cover the block exactly once, with the same states as one process has. */
static void learn_and_note_state(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank;
    net m = make_net(ctx, group);
    gd_optimizer *adamw = gd_adamw_create(m.params, NULL);
    for (int64_t s = 0; s < 2; s++) step(&m, adamw, s, group, &(outcome){0});
    gd_tensor *state = gd_optimizer_state(adamw, 1);
    const int64_t count = gd_tensor_count(state);
    double *values = malloc((size_t)count * sizeof *values);
    gd_tensor_read_f64(state, values, count);
    gd_params_slice slice;
    int64_t at = 0;
    for (int i = 0; gd_params_slice_at(m.params, i, &slice); i++) {
        note(mine, slice.at == at ? 0 : NAN); /* they are packed */
        note(mine, (double)slice.begin);
        note(mine, (double)slice.end);
        for (int64_t k = slice.begin; k < slice.end; k++) note(mine, values[at++]);
    }
    note(mine, at == count ? -1 : NAN);
    free(values);
    gd_optimizer_free(adamw);
    gd_params_free(m.params);
}

/* Copies the slices that a rank noted to the block; `seen` counts the writes of each element. */
static int64_t spread(const outcome *o, double *block, int *seen)
{
    int64_t i = 0, owned = 0;
    while (o->number[i] == 0) {
        const int64_t begin = (int64_t)o->number[i + 1], end = (int64_t)o->number[i + 2];
        i += 3;
        for (int64_t k = begin; k < end; k++, i++, owned++) {
            block[k] = o->number[i];
            seen[k]++;
        }
    }
    ck_assert_double_eq(o->number[i], -1);
    ck_assert_int_eq(i + 1, o->count);
    return owned;
}

START_TEST(each_rank_keeps_its_part_of_the_state)
{
    enum { ROOM = 4096 };
    double alone[ROOM] = {0}, several[ROOM] = {0};
    int once[ROOM] = {0}, seen[ROOM] = {0};
    int64_t most = 0;
    const int ranks = 2 + _i;
    dtype = GD_FLOAT64;
    batches = 4;
    early = true;
    by_hand = false;
    max_norm = 0;
    ranks_run_well(1, learn_and_note_state);
    const int64_t block = spread(&outcomes[0], alone, once);
    ranks_run_well(ranks, learn_and_note_state);
    for (int r = 0; r < ranks; r++) {
        const int64_t owned = spread(&outcomes[r], several, seen);
        most = owned > most ? owned : most;
    }
    for (int64_t k = 0; k < block; k++) {
        ck_assert_int_eq(seen[k], 1);
        ck_assert_double_eq_tol(several[k], alone[k], 1e-14);
    }
    /* 1/N, plus fewer than 16 N elements for each of five buckets */
    ck_assert_int_le(most, block / ranks + 5 * 16 * ranks);
}
END_TEST

/* ---- Files ----------------------------------------------------------------------------------- */

static const char *state_path;
static int64_t saved_at; /* the step before which the state is saved, or from which one goes on */
static bool goes_on;

/* All steps, with a file made on the way; or those after it, from the file, by a net with other numbers. */
static void learn_and_save(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank;
    if (goes_on) gd_random_set(ctx, (gd_random_state){.seed = 77});
    net m = make_net(ctx, group);
    gd_optimizer *optimizer = optimizer_of_kind(m.params, kind);
    gd_optimizer_average(optimizer, 0.9);
    if (goes_on) gd_optimizer_load(optimizer, state_path, NULL);
    for (int64_t s = goes_on ? saved_at : 0; s < STEPS; s++) {
        if (s == saved_at && !goes_on) gd_optimizer_save(optimizer, state_path, NULL, 0);
        if (s > STEPS / 2 && s == saved_at) gd_tensor_set_requires_grad(m.w3, false);
        step(&m, optimizer, s, group, mine);
    }
    mine->count = 0; /* the values alone */
    note_values(&m, mine);
    gd_optimizer_swap_average(optimizer);
    note_values(&m, mine);
    gd_optimizer_free(optimizer);
    gd_params_free(m.params);
}

/* With as many ranks the same bits, with others the same up to the order of sums. */
START_TEST(any_number_of_ranks_goes_on_from_a_file)
{
    static outcome whole;
    char path[] = "/tmp/gradus_ranks_XXXXXX";
    close(mkstemp(path));
    state_path = path;
    dtype = _i ? GD_BFLOAT16 : GD_FLOAT64;
    batches = 4, by_hand = false, early = true, max_norm = 0.05, kind = 3;
    for (saved_at = 2; saved_at < STEPS; saved_at += 2) {
        for (int from = 1; from <= 3; from++) {
            goes_on = false;
            ranks_run_well(from, learn_and_save);
            whole = outcomes[0];
            goes_on = true;
            for (int to = 1; to <= 3; to++) {
                ranks_run_well(to, learn_and_save);
                const double tolerance = to == from ? 0 : _i ? 2e-2 : 1e-12;
                ck_assert_int_eq(outcomes[to - 1].count, whole.count);
                for (int64_t i = 0; i < whole.count; i++)
                    ck_assert_double_le(fabs(outcomes[to - 1].number[i] - whole.number[i]),
                                        tolerance * (1 + fabs(whole.number[i])));
            }
        }
    }
    unlink(path);
}
END_TEST

static void save_nowhere(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank, (void)mine;
    net m = make_net(ctx, group);
    gd_optimizer *adamw = gd_adamw_create(m.params, NULL);
    gd_optimizer_save(adamw, "/nowhere/at/all", NULL, 0);
    gd_optimizer_free(adamw);
    gd_params_free(m.params);
}

START_TEST(a_file_that_rank_0_cannot_write_is_an_error_of_all)
{
    dtype = GD_FLOAT32;
    ranks_run(3, save_nowhere);
    rank_failed(0, "safetensors_write: /nowhere/at/all");
    for (int r = 1; r < 3; r++)
        rank_failed(r, "optimizer_save: rank 0 has an error, which it reports");
}
END_TEST

/* ---- Buffers -------------------------------------------------------------------------------- */

enum { CHANNELS = 5, COLUMN = 4 };

static bool own_buffers;

/* Batch b of a rank in a step: all channels are the same. */
static double batch_element(int rank, int64_t step, int b, int row)
{
    return sin((double)(rank * 50 + step * 7 + b * 3 + row * row));
}

/* What the forwards of a step make of a rank's statistics. */
static void track(int rank, int64_t step, double *mean, double *var)
{
    for (int b = 0; b < batches; b++) {
        double m = 0, v = 0;
        for (int i = 0; i < COLUMN; i++) m += batch_element(rank, step, b, i) / COLUMN;
        for (int i = 0; i < COLUMN; i++)
            v += pow(batch_element(rank, step, b, i) - m, 2) / (COLUMN - 1);
        *mean = 0.9 * *mean + 0.1 * m;
        *var = 0.9 * *var + 0.1 * v;
    }
}

/* The largest difference from what the buffers should hold. */
static double gap_of(const gd_params *params, double mean, double var, double fixed)
{
    double gap = 0, values[CHANNELS];
    for (int i = 0; i < 3; i++) {
        gd_tensor_read_f64(gd_params_buffer_at(params, i), values, CHANNELS);
        for (int c = 0; c < CHANNELS; c++) {
            const double want = i == 0 ? mean : i == 1 ? var : fixed;
            gap = fmax(gap, fabs(values[c] - want));
        }
    }
    return gap;
}

static void learn_statistics(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    gd_params *params = gd_params_create(ctx, dtype);
    gd_tensor *scale = gd_params_add(params, "scale", GD_SHAPE(CHANNELS), GD_DECAY);
    gd_batch_norm_options norm = {
        .mean = gd_params_add_buffer(params, "mean", dtype, GD_SHAPE(CHANNELS)),
        .var = gd_params_add_buffer(params, "var", dtype, GD_SHAPE(CHANNELS))};
    gd_tensor *fixed = gd_params_add_buffer(params, "fixed", GD_FLOAT32, GD_SHAPE(CHANNELS));
    gd_params_finish(params);
    gd_tensor_fill(scale, 1 + rank), gd_tensor_fill(fixed, 7 + rank);
    gd_tensor_fill(norm.mean, rank), gd_tensor_fill(norm.var, 1 + rank);
    gd_params_replicate(params, group, &(gd_replicate_options){.own_buffers = own_buffers});
    double mean = 0, var = 1;
    note(mine, gap_of(params, mean, var, 7));
    gd_optimizer *adamw = gd_adamw_create(params, &(gd_adamw_options){.weight_decay = 0.1});
    gd_optimizer_set_rate(adamw, 0.01);
    gd_tensor *x = gd_tensor_create(ctx, dtype, GD_SHAPE(COLUMN, CHANNELS));
    for (int64_t s = 0; s < STEPS; s++) {
        for (int b = 0; b < batches; b++) {
            double values[COLUMN * CHANNELS];
            for (int i = 0; i < COLUMN * CHANNELS; i++)
                values[i] = batch_element(rank, s, b, i / CHANNELS);
            gd_tensor_write_f64(x, values, COLUMN * CHANNELS);
            if (b + 1 == batches) gd_params_last_backward(params);
            gd_tensor *loss = gd_sum_all(gd_sin(gd_batch_norm(x, scale, NULL, &norm)));
            if (by_hand) gd_backward(loss);
            if (!by_hand) gd_optimizer_backward(adamw, loss, 1.0 / batches);
            gd_step_end(ctx);
        }
        if (by_hand) gd_optimizer_step(adamw, 0.01);
        if (!by_hand) gd_optimizer_update(adamw, 1);
        gd_params_clear_grads(params);
        track(own_buffers ? rank : 0, s, &mean, &var);
        note(mine, gap_of(params, mean, var, 7));
    }
    if (!by_hand) { /* an update that is withheld leaves them */
        gd_tensor_fill(x, 3 + rank);
        gd_optimizer_backward(
            adamw, gd_scale(gd_sum_all(gd_batch_norm(x, scale, NULL, &norm)), (double)NAN), 1);
        gd_step_end(ctx);
        gd_optimizer_update(adamw, 1);
        gd_optimizer_continue(adamw);
        gd_params_clear_grads(params);
    }
    note(mine, gap_of(params, mean, var, 7));
    gd_tensor_fill(scale, 20 + rank), gd_tensor_fill(fixed, 30 + rank); /* as if they were loaded */
    gd_tensor_fill(norm.mean, 40 + rank), gd_tensor_fill(norm.var, 50 + rank);
    gd_params_broadcast(params);
    note(mine, gap_of(params, 40, 50, 30));
    double values[CHANNELS];
    gd_tensor_read_f64(scale, values, CHANNELS);
    note(mine, values[CHANNELS - 1] - 20);
    gd_tensor_free(x);
    gd_optimizer_free(adamw);
    gd_params_free(params);
}

/* As PyTorch's DistributedDataParallel with broadcast_buffers: the forwards of a step change each
 * rank's own, and every step begins with rank 0's. */
START_TEST(buffers_are_those_of_rank_0)
{
    dtype = _i & 1 ? GD_FLOAT64 : GD_FLOAT32;
    by_hand = _i & 2;
    batches = 1 + !!(_i & 4);
    own_buffers = _i & 8;
    for (int ranks = 1; ranks <= 3; ranks++) {
        ranks_run_well(ranks, learn_statistics);
        for (int r = 0; r < ranks; r++) {
            ck_assert_int_eq(outcomes[r].count, STEPS + 4);
            for (int i = 0; i < STEPS + 4; i++) {
                ck_assert_msg(outcomes[r].number[i] < (_i & 1 ? 1e-13 : 1e-6),
                              "rank %d of %d after %d steps: %g", r, ranks, i,
                              outcomes[r].number[i]);
            }
        }
    }
}
END_TEST

/* ---- Misuse --------------------------------------------------------------------------------- */

/* The second backward would add to means, of which this rank has only its slices. */
static void go_on(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank, (void)mine;
    net m = make_net(ctx, group);
    gd_params_last_backward(m.params);
    gd_backward(loss_of(&m));
    gd_clip_grad_norm(m.params, 0, NULL);
    gd_backward(loss_of(&m));
    gd_params_free(m.params);
}

START_TEST(gradients_that_were_sent_are_cleared_first)
{
    dtype = GD_FLOAT32;
    ranks_run(2, go_on);
    for (int r = 0; r < 2; r++)
        rank_failed(r, "were averaged over all ranks already, wanted "
                       "gd_params_clear_grads in between");
}
END_TEST

static void differ(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)mine;
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_add(params, "w", GD_SHAPE(4, rank == 2 ? 5 : 4), GD_DECAY);
    gd_params_finish(params);
    gd_params_replicate(params, group, NULL);
    gd_params_free(params);
}

static void differ_in_factors(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)mine;
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(4), GD_DECAY);
    gd_params_set_factors(params, w, 1, rank == 2 ? 2 : 1);
    gd_params_finish(params);
    gd_params_replicate(params, group, NULL);
    gd_params_free(params);
}

static void differ_in_buffers(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)mine;
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_add(params, "w", GD_SHAPE(4), GD_DECAY);
    gd_params_add_buffer(params, "mean", rank == 2 ? GD_FLOAT64 : GD_FLOAT32, GD_SHAPE(4));
    gd_params_finish(params);
    gd_params_replicate(params, group, NULL);
    gd_params_free(params);
}

START_TEST(parameters_that_differ_are_named)
{
    rank_body *const bodies[] = {differ, differ_in_factors, differ_in_buffers};
    ranks_run(3, bodies[_i]);
    for (int r = 0; r < 3; r++)
        rank_failed(r, "params_replicate: the parameters of rank 2 differ from those of rank 0");
}
END_TEST

static void whole_matrices(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank;
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_add(params, "w", GD_SHAPE(4, 4), GD_MUON);
    gd_params_finish(params);
    gd_params_replicate(params, group, NULL);
    ck_assert_ptr_null(gd_muon_create(params, NULL));
    snprintf(mine->error, sizeof mine->error, "%s", gd_error(ctx));
    gd_error_clear(ctx);
    gd_params_free(params);
}

START_TEST(muon_is_refused)
{
    ranks_run(2, whole_matrices);
    for (int r = 0; r < 2; r++)
        rank_failed(r, "muon_create: the parameters are replicated over 2 ranks");
}
END_TEST

static void share_late(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank, (void)mine;
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_add(params, "w", GD_SHAPE(4), 0);
    gd_params_replicate(params, group, NULL);
    snprintf(mine->error, sizeof mine->error, "%s", gd_error(ctx));
    gd_error_clear(ctx);
    gd_params_finish(params);
    gd_optimizer_free(gd_sgd_create(params, NULL));
    gd_params_replicate(params, group, NULL);
    gd_params_free(params);
}

START_TEST(sharing_comes_before_the_optimizer)
{
    ranks_run(2, share_late);
    for (int r = 0; r < 2; r++)
        rank_failed(r, "params_replicate: the parameters have an optimizer already");
}
END_TEST

/* A group of one, and a NULL group. */
START_TEST(alone_everything_stays_as_it_is)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
    gd_group *one = gd_group_create(ctx, NULL);
    for (int i = 0; i < 2; i++) {
        gd_group *group = i ? one : NULL;
        gd_tensor *t = gd_tensor_create(ctx, GD_BFLOAT16, GD_SHAPE(3));
        int own = 5, all = 0;
        ck_assert_int_eq(gd_group_rank(group), 0);
        ck_assert_int_eq(gd_group_ranks(group), 1);
        ck_assert_int_eq(gd_group_broadcast(group, t, 0), GD_OK);
        ck_assert_int_eq(gd_group_all_gather(group, t), GD_OK);
        ck_assert_int_eq(gd_group_all_gather_bytes(group, &own, sizeof own, &all), GD_OK);
        ck_assert_int_eq(all, 5);
        ck_assert_int_ne(gd_group_all_reduce(group, t, true), GD_OK);
        ck_assert_error(ctx, "all_reduce: the tensor is bfloat16, wanted float32 or float64");
        gd_group_broadcast(group, t, 1);
        ck_assert_error(ctx, "broadcast: root is 1, wanted 0 to 0");
        gd_tensor_free(t);
    }
    gd_group_free(one);
    gd_group_create(ctx, &(gd_group_options){.rank = 3, .ranks = 3});
    ck_assert_error(ctx, "group_create: rank is 3 of 3, wanted 0 to ranks - 1");
    gd_group_create(ctx, &(gd_group_options){.port = 65536});
    ck_assert_error(ctx, "group_create: port is 65536, wanted 1 to 65535");
    gd_group_create(ctx, &(gd_group_options){.timeout = -1});
    ck_assert_error(ctx, "group_create: timeout is -1, wanted a finite number above 0");
    gd_context_free(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group");
    TCase *collective = tcase_create("collectives");
    tcase_add_loop_test(collective, collectives_do_what_they_say, 0, 3);
    tcase_add_test(collective, sums_are_taken_in_the_order_of_ranks);
    tcase_add_test(collective, descriptor_0_is_a_connection);
    TCase *replicated = tcase_create("replicated parameters");
    tcase_add_loop_test(replicated, ranks_follow_one_that_does_all_batches, 0, SETTINGS);
    tcase_add_test(replicated, a_second_group_changes_nothing);
    tcase_add_test(replicated, muon_is_refused);
    tcase_add_loop_test(replicated, each_rank_keeps_its_part_of_the_state, 0, 3);
    tcase_add_loop_test(replicated, buffers_are_those_of_rank_0, 0, 16);
    if (!jansson_missing()) {
        tcase_add_loop_test(replicated, any_number_of_ranks_goes_on_from_a_file, 0, 2);
        tcase_add_test(replicated, a_file_that_rank_0_cannot_write_is_an_error_of_all);
    }
    TCase *misuse = tcase_create("misuse");
    tcase_add_test(misuse, gradients_that_were_sent_are_cleared_first);
    tcase_add_loop_test(misuse, parameters_that_differ_are_named, 0, 3);
    tcase_add_test(misuse, sharing_comes_before_the_optimizer);
    tcase_add_test(misuse, alone_everything_stays_as_it_is);
    suite_add_tcase(suite, collective);
    suite_add_tcase(suite, replicated);
    suite_add_tcase(suite, misuse);
    return check_main(suite);
}
