/* test_group.c - several processes: collectives against sums computed here, calls that are refused,
 * and who one is by the environment. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, mkdtemp, nanosleep */
#include <math.h>
#include <stdlib.h>

#include "ranks.h"

/* ---- Collectives ---------------------------------------------------------------------------- */

enum { MEAN, SUM, GATHER, LAST, CALLS };

/* No size is a multiple of the ranks or of 16; the largest takes several rounds. */
static const int64_t sizes[] = {1, 15, 17, 64, 999, 300007};
static const gd_dtype kinds[] = {GD_FLOAT32, GD_FLOAT64};

/* Element i of rank r. Sums over the ranks are exact. */
static double element(int rank, int64_t i)
{
    return (double)((i * 7 + rank * 13) % 1001) + 0.25 * rank;
}

/* Element i of n after the call. */
static double wanted(int call, int ranks, int64_t n, int64_t i)
{
    const int64_t each = n / ranks / 16 * 16, owner = each ? i / each : ranks;
    double sum = 0;
    for (int r = 0; r < ranks; r++) sum += element(r, i);
    if (call == MEAN) return (double)(float)(sum * (1.0 / ranks));
    if (call == SUM) return sum;
    return element(call == GATHER && owner < ranks ? (int)owner : ranks - 1, i);
}

/* Makes a tensor, calls a collective, and notes how many of the elements that this rank
 * gets differ. */
static void compare(gd_context *ctx, gd_group *group, int call, gd_dtype dtype, int64_t n,
                    outcome *mine)
{
    const int rank = gd_group_rank(group), ranks = gd_group_ranks(group);
    double *values = malloc((size_t)n * sizeof *values);
    gd_tensor *t = gd_tensor_create(ctx, dtype, 1, &n);
    int64_t begin = 0, end = n, wrong = 0;
    for (int64_t i = 0; i < n; i++) values[i] = element(rank, i);
    gd_tensor_write_f64(t, values, n);
    if (call == MEAN) gd_group_reduce_scatter(group, t, true);
    if (call == SUM) gd_group_all_reduce(group, t, false);
    if (call == GATHER) gd_group_all_gather(group, t);
    if (call == LAST) gd_group_broadcast(group, t, ranks - 1);
    if (call == MEAN) gd_group_slice(group, rank, n, &begin, &end);
    gd_tensor_read_f64(t, values, n);
    for (int64_t i = begin; i < end; i++)
        wrong += !(fabs(values[i] - wanted(call, ranks, n, i)) <= 1e-6 * fabs(values[i]));
    note(mine, (double)wrong);
    free(values);
    gd_tensor_free(t);
}

/* Of bytes, more than a round has. */
static void compare_bytes(gd_group *group, size_t bytes, outcome *mine)
{
    const size_t ranks = (size_t)gd_group_ranks(group);
    char *all = malloc(ranks * bytes), *data = malloc(bytes);
    int64_t wrong = 0;
    memset(data, 1 + gd_group_rank(group), bytes);
    gd_group_all_gather_bytes(group, data, bytes, all);
    for (size_t i = 0; i < ranks * bytes; i++) wrong += all[i] != (char)(1 + i / bytes);
    gd_group_broadcast_bytes(group, data, bytes);
    for (size_t i = 0; i < bytes; i++) wrong += data[i] != 1;
    gd_group_all_gather_bytes(group, NULL, 0, NULL);
    note(mine, (double)wrong);
    free(all);
    free(data);
}

/* The rounding error of a sum in float32 depends on the order of its terms. */
static void sum_in_order(gd_context *ctx, gd_group *group, outcome *mine)
{
    static const float terms[] = {1, 16777216, -16777216, 0.25F};
    float sum = terms[0], sums[40];
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(40));
    gd_tensor_fill(t, terms[gd_group_rank(group)]);
    gd_group_all_reduce(group, t, false);
    gd_tensor_read(t, sums, sizeof sums);
    for (int r = 1; r < gd_group_ranks(group); r++) sum += terms[r];
    note(mine, sums[0] != sum || sums[39] != sum);
    gd_tensor_free(t);
}

static void collectives(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int call = 0; call < CALLS; call++)
            compare(ctx, group, call, kinds[s % 2], sizes[s], mine);
        compare_bytes(group, (size_t)sizes[s], mine);
    }
    sum_in_order(ctx, group, mine);
}

LOOP_TEST(collectives_do_what_they_say, 3)
{
    ranks_run_well(2 + _i, collectives);
    for (int r = 0; r < 2 + _i; r++) {
        ck_assert_int_eq(outcomes[r].count, (CALLS + 1) * (int)(sizeof sizes / sizeof *sizes) + 1);
        for (int64_t k = 0; k < outcomes[r].count; k++)
            ck_assert_msg(outcomes[r].number[k] == 0, "rank %d of %d: %lld", r, 2 + _i,
                          (long long)k);
    }
}

/* ---- Misuse --------------------------------------------------------------------------------- */

enum { SHAPE, FACTOR, BUFFER, OPTIMIZER, MUON, SENT, MISUSES };
static int what; /* set before fork, so all ranks have it */

static const char other[] =
    "params_replicate: the parameters of rank 1 differ from those of rank 0, wanted the same";
static const char *const refusals[MISUSES] = {
    [SHAPE] = other,
    [FACTOR] = other,
    [BUFFER] = other,
    [OPTIMIZER] = "params_replicate: the parameters have an optimizer already",
    [MUON] = "muon_create: the parameters are replicated over 2 ranks",
    [SENT] = "were averaged over all ranks already, wanted gd_params_clear_grads in between"};

/* Rank 1 has another shape, factor or buffer; replicating comes before the optimizer; Muon needs
 * whole matrices; a second backward would add to means, of which a rank has only its slices. */
static void misuse(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    const int odd = rank == 1 ? what : MISUSES;
    gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(4, odd == SHAPE ? 5 : 4), GD_MUON);
    gd_params_set_factors(params, w, 1, odd == FACTOR ? 2 : 1);
    gd_params_add_buffer(params, "mean", odd == BUFFER ? GD_FLOAT64 : GD_FLOAT32, GD_SHAPE(4));
    gd_params_finish(params);
    if (what == OPTIMIZER) gd_optimizer_free(gd_sgd_create(params, NULL));
    gd_params_replicate(params, group, NULL);
    if (what == MUON) ck_assert_ptr_null(gd_muon_create(params, NULL));
    for (int times = 0; what == SENT && times < 2; times++) {
        gd_backward(gd_sum_all(w));
        gd_clip_grad_norm(params, 0, NULL);
    }
    snprintf(mine->error, sizeof mine->error, "%s", gd_error(ctx));
    gd_error_clear(ctx); /* it is not that of a rank which ends */
    gd_params_free(params);
}

LOOP_TEST(misuse_is_refused, MISUSES)
{
    what = _i;
    ranks_run(2, misuse);
    for (int r = 0; r < 2; r++) rank_failed(r, refusals[what]);
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

/* ---- The environment ------------------------------------------------------------------------ */

typedef struct environment {
    const char *set;
    int rank, ranks, local;
    const char *problem;
} environment;

static const environment environments[] = {
    {"SLURM_PROCID=3 SLURM_NTASKS=8", 0, 1, 0, ""}, /* a batch script */
    {"RANK=2 WORLD_SIZE=4", 2, 4, 2, ""},
    {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 PMI_RANK=5 PMI_SIZE=6", 1, 2, 0, ""},
    {"OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1", 5, 8, 1, ""},
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0", 1, 2, 0, ""},
    {"SLURM_PROCID=9 SLURM_STEP_NUM_TASKS=16 SLURM_LOCALID=1", 9, 16, 1, ""},
    {"RANK=x WORLD_SIZE=2", 0, 2, 0, "RANK is \"x\", wanted a whole number of at least 0"},
    {"RANK=0 WORLD_SIZE=0", 0, 1, 0, "WORLD_SIZE is \"0\", wanted a whole number"},
    {"WORLD_SIZE=2", 0, 1, 0, "WORLD_SIZE is set, but RANK is not"},
};

LOOP_TEST(the_environment_says_who_one_is, sizeof environments / sizeof *environments)
{
    const environment *e = &environments[_i];
    char set[200];
    clearenv();
    snprintf(set, sizeof set, "%s", e->set);
    for (char *word = strtok(set, " "); word; word = strtok(NULL, " ")) putenv(word);
    const gd_group_options o = gd_group_environment();
    ck_assert_msg(strstr(o.problem, e->problem) != NULL, "the problem is \"%s\"", o.problem);
    ck_assert_int_eq(o.problem[0] != 0, e->problem[0] != 0);
    ck_assert_int_eq(o.ranks, e->ranks);
    if (o.problem[0]) return;
    ck_assert_int_eq(o.rank, e->rank);
    ck_assert_int_eq(o.local_rank, e->local);
}

CHECK_MAIN("group")
