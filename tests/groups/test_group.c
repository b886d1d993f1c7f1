/* test_group.c - several processes: collectives against sums computed here, and calls that are refused. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <math.h>
#include <stdlib.h>

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

LOOP_TEST(collectives_do_what_they_say, 3)
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

TEST(sums_are_taken_in_the_order_of_ranks)
{
    const float wanted = ((1.0F + 16777216.0F) + -16777216.0F) + 0.25F; /* 0.25 */
    ranks_run_well(4, sum_in_order);
    for (int r = 0; r < 4; r++) {
        ck_assert_double_eq(outcomes[r].number[0], wanted);
        ck_assert_double_eq(outcomes[r].number[1], wanted);
    }
}

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

TEST(descriptor_0_is_a_connection)
{
    ranks_run_well(2, meet_without_input);
    for (int r = 0; r < 2; r++) ck_assert(outcomes[r].number[0] == 0 && outcomes[r].number[1] == 0);
}

/* ---- Misuse --------------------------------------------------------------------------------- */

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

LOOP_TEST(parameters_that_differ_are_named, 3)
{
    rank_body *const bodies[] = {differ, differ_in_factors, differ_in_buffers};
    ranks_run(3, bodies[_i]);
    for (int r = 0; r < 3; r++)
        rank_failed(r, "params_replicate: the parameters of rank 2 differ from those of rank 0");
}

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

TEST(muon_is_refused)
{
    ranks_run(2, whole_matrices);
    for (int r = 0; r < 2; r++)
        rank_failed(r, "muon_create: the parameters are replicated over 2 ranks");
}

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

TEST(sharing_comes_before_the_optimizer)
{
    ranks_run(2, share_late);
    for (int r = 0; r < 2; r++)
        rank_failed(r, "params_replicate: the parameters have an optimizer already");
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
    gd_group_create(ctx, &(gd_group_options){.port = 65536});
    ck_assert_error(ctx, "group_create: port is 65536, wanted 1 to 65535");
    gd_group_create(ctx, &(gd_group_options){.timeout = -1});
    ck_assert_error(ctx, "group_create: timeout is -1, wanted a finite number above 0");
    gd_context_free(ctx);
}

CHECK_MAIN("group", 0)
