/* test_group.c - several processes: collectives against sums computed here, and calls that
 * are refused. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, mkdtemp */
#include <math.h>
#include <stdlib.h>

#include "ranks.h"

/* ---- Collectives ---------------------------------------------------------------------------- */

/* No size is a multiple of the ranks or of 16; the largest takes several rounds. */
static const int64_t sizes[] = {1, 15, 17, 64, 999, 300007};
static const gd_dtype kinds[] = {GD_FLOAT32, GD_FLOAT64};
static int64_t n; /* set before fork, so all ranks have it */
static gd_dtype dtype;

/* Element i of rank r. Sums over the ranks are exact. */
static double element(int rank, int64_t i)
{
    return (double)((i * 7 + rank * 13) % 1001) + 0.25 * rank;
}

static double sum_of(int ranks, int64_t i)
{
    double sum = 0;
    for (int r = 0; r < ranks; r++) sum += element(r, i);
    return sum;
}

static double mean_of(int ranks, int64_t i)
{
    return (double)(float)(sum_of(ranks, i) * (1.0 / ranks));
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

/* Makes a tensor, calls a collective, and notes how many of the elements that this rank
 * gets differ. */
static void compare(gd_context *ctx, gd_group *group, int call, outcome *mine)
{
    static double (*const wanted[])(int, int64_t) = {mean_of, sum_of, owner_has, last_has};
    const int rank = gd_group_rank(group), ranks = gd_group_ranks(group);
    double *values = malloc((size_t)n * sizeof *values);
    gd_tensor *t = gd_tensor_create(ctx, dtype, 1, &n);
    int64_t begin = 0, end = n, wrong = 0;
    for (int64_t i = 0; i < n; i++) values[i] = element(rank, i);
    gd_tensor_write_f64(t, values, n);
    if (call == 0) gd_group_reduce_scatter(group, t, true);
    if (call == 1) gd_group_all_reduce(group, t, false);
    if (call == 2) gd_group_all_gather(group, t);
    if (call == 3) gd_group_broadcast(group, t, ranks - 1);
    if (call == 0) gd_group_slice(group, rank, n, &begin, &end);
    gd_tensor_read_f64(t, values, n);
    for (int64_t i = begin; i < end; i++)
        wrong += !(fabs(values[i] - wanted[call](ranks, i)) <= 1e-6 * fabs(values[i]));
    note(mine, (double)wrong);
    free(values);
    gd_tensor_free(t);
}

/* Of bytes, more than a round has. */
static void compare_bytes(gd_group *group, outcome *mine)
{
    const size_t ranks = (size_t)gd_group_ranks(group), bytes = (size_t)n;
    const char own = (char)(1 + gd_group_rank(group));
    char *all = malloc(ranks * bytes), *data = malloc(bytes);
    int64_t wrong = 0;
    memset(data, own, bytes);
    gd_group_all_gather_bytes(group, data, bytes, all);
    for (size_t i = 0; i < ranks * bytes; i++) wrong += all[i] != (char)(1 + i / bytes);
    gd_group_broadcast_bytes(group, data, bytes);
    for (size_t i = 0; i < bytes; i++) wrong += data[i] != 1;
    gd_group_all_gather_bytes(group, NULL, 0, NULL);
    note(mine, (double)wrong);
    free(all);
    free(data);
}

static void collectives(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        n = sizes[s];
        dtype = kinds[s % 2];
        for (int call = 0; call < 4; call++) compare(ctx, group, call, mine);
        compare_bytes(group, mine);
    }
}

LOOP_TEST(collectives_do_what_they_say, 3)
{
    ranks_run_well(2 + _i, collectives);
    for (int r = 0; r < 2 + _i; r++) {
        ck_assert_int_eq(outcomes[r].count, 5 * (int)(sizeof sizes / sizeof *sizes));
        for (int64_t k = 0; k < outcomes[r].count; k++)
            ck_assert_msg(outcomes[r].number[k] == 0, "rank %d of %d: %lld", r, 2 + _i,
                          (long long)k);
    }
}

/* The rounding error of a sum in float32 depends on the order of its terms. */
static void sum_in_order(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    static const float values[] = {1, 16777216, -16777216, 0.25F};
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(40));
    double sums[40];
    gd_tensor_fill(t, values[rank]);
    gd_group_all_reduce(group, t, false);
    gd_tensor_read_f64(t, sums, 40);
    note(mine, sums[0]);
    note(mine, sums[39]);
}

TEST(sums_are_taken_in_the_order_of_ranks)
{
    const float wanted = ((1.0F + 16777216.0F) + -16777216.0F) + 0.25F; /* 0.25 */
    ranks_run_well(4, sum_in_order);
    for (int r = 0; r < 4; r++) {
        ck_assert_double_eq(outcomes[r].number[0], wanted);
        ck_assert_double_eq(outcomes[r].number[1], wanted);
    }
}

/* ---- Misuse --------------------------------------------------------------------------------- */

static int what;

/* Rank 2 has another shape, factor or buffer. */
static void differ(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)mine;
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    const bool shape = rank == 2 && what == 0, factor = rank == 2 && what == 1;
    const gd_dtype buffer = rank == 2 && what == 2 ? GD_FLOAT64 : GD_FLOAT32;
    gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(4, shape ? 5 : 4), GD_DECAY);
    gd_params_set_factors(params, w, 1, factor ? 2 : 1);
    gd_params_add_buffer(params, "mean", buffer, GD_SHAPE(4));
    gd_params_finish(params);
    gd_params_replicate(params, group, NULL);
    gd_params_free(params);
}

LOOP_TEST(parameters_that_differ_are_named, 3)
{
    what = _i;
    ranks_run(3, differ);
    for (int r = 0; r < 3; r++)
        rank_failed(r, "params_replicate: the parameters of rank 2 differ from those of rank 0");
}

/* Muon needs whole matrices; replicating comes before the optimizer. */
static void misuse(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank;
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_add(params, "w", GD_SHAPE(4, 4), GD_MUON);
    gd_params_finish(params);
    if (what) gd_optimizer_free(gd_sgd_create(params, NULL));
    gd_params_replicate(params, group, NULL);
    if (!what) ck_assert_ptr_null(gd_muon_create(params, NULL));
    snprintf(mine->error, sizeof mine->error, "%s", gd_error(ctx));
    gd_error_clear(ctx);
    gd_params_free(params);
}

LOOP_TEST(misuse_is_refused, 2)
{
    what = _i;
    ranks_run(2, misuse);
    for (int r = 0; r < 2; r++)
        rank_failed(r, what ? "params_replicate: the parameters have an optimizer already"
                            : "muon_create: the parameters are replicated over 2 ranks");
}

/* A group of one, and a NULL group. */
TEST(alone_everything_stays_as_it_is)
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
    gd_group_create(ctx, &(gd_group_options){.ranks = 3});
    ck_assert_error(ctx, "group_create: folder is not set, wanted one in which all 3 ranks meet");
    gd_group_create(ctx, &(gd_group_options){.ranks = 3, .folder = "/nowhere/at/all"});
    ck_assert_error(ctx, "group_create: rank 0 cannot meet the others in /nowhere/at/all: ");
    gd_group_create(ctx, &(gd_group_options){.timeout = -1});
    ck_assert_error(ctx, "group_create: timeout is -1, wanted a finite number above 0");
    gd_context_free(ctx);
}

CHECK_MAIN("group")
