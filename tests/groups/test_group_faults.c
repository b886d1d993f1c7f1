/* test_group_faults.c - a rank that dies, is silent, fails, leaves or makes other calls: all other
 * ranks end in time, with a message that names the rank and the call. And who one is, by the
 * environment. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, mkdtemp */
#include <stdlib.h>

#include "ranks.h"

enum { RANKS = 4, BEFORE = 3 };

static int what, call, culprit; /* set before fork, so all ranks have them */
static int64_t n = 100003;

/* The call under test, which all ranks repeat. */
static void work(gd_group *group, gd_tensor *t)
{
    int own = 1, all[RANKS];
    if (call == 0) gd_group_reduce_scatter(group, t, true);
    if (call == 1) gd_group_all_gather(group, t);
    if (call == 2) gd_group_all_reduce(group, t, false);
    if (call == 3) gd_group_broadcast(group, t, culprit);
    if (call == 4) gd_group_all_gather_bytes(group, &own, sizeof own, all);
}

static const char *const calls[] = {
    "reduce_scatter: ", "all_gather: ", "all_reduce: ", "broadcast: ", "all_gather_bytes: "};
enum { CALLS = sizeof calls / sizeof *calls };

enum { DIES, IS_SILENT, FAILS, LEAVES, FAULTS };
static const char *const sentences[] = {"is gone", "is silent",
                                        "has failed: data: the disk is gone", "has left"};

static void run_into_it(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)mine;
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 1, &n);
    gd_tensor_fill(t, 1);
    for (int i = 0; i < BEFORE; i++) work(group, t);
    if (rank == culprit) {
        if (what == DIES) raise(SIGKILL);
        if (what == IS_SILENT) ranks_sleep(2.5 * ranks_timeout);
        if (what == FAILS) gd_fail(ctx, GD_ERROR_IO, "data: the disk is gone");
        return;
    }
    for (int i = 0; i < 3 && !gd_error(ctx); i++) work(group, t);
}

static void all_others_name_it(int fault)
{
    char words[100];
    what = fault;
    for (culprit = 0; culprit < RANKS; culprit += 2) {
        for (call = 0; call < CALLS; call++) {
            if (what == IS_SILENT && call + culprit != 4) continue; /* slow */
            ranks_timeout = what == IS_SILENT ? 1 : 20;
            ranks_run(RANKS, run_into_it);
            for (int r = 0; r < RANKS; r++) {
                if (r == culprit) continue;
                snprintf(words, sizeof words, "%srank %d %s", calls[call], culprit,
                         sentences[what]);
                rank_failed(r, words);
                ck_assert_double_lt(outcomes[r].seconds, 10);
            }
        }
    }
}

TEST_CASE("a rank that ends", NULL, NULL)

LOOP_TEST(who_ends_is_named, 3)
{
    static const int ends[] = {DIES, FAILS, LEAVES};
    all_others_name_it(ends[_i]);
}

TEST_CASE("a rank that hangs", NULL, NULL)

TEST(who_is_silent_is_named)
{
    all_others_name_it(IS_SILENT);
}

/* Its lock stays, as where a file system has none: then a rank that has died is silent. */
static void die_but_for_the_lock(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)ctx, (void)mine;
    if (rank == culprit) {
        if (fork() == 0) ranks_sleep(3 * ranks_timeout), ranks_exit();
        raise(SIGKILL);
    }
    gd_group_all_gather_bytes(group, NULL, 0, NULL);
}

TEST_CASE("a lock that stays", NULL, NULL)

TEST(whose_lock_stays_is_silent)
{
    culprit = 2;
    ranks_timeout = 1;
    ranks_run(RANKS, die_but_for_the_lock);
    for (int r = 0; r < RANKS; r++)
        if (r != culprit) rank_failed(r, "all_gather_bytes: rank 2 is silent");
}

TEST_CASE("other calls", NULL, NULL)

static void differ(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)mine;
    int64_t size = rank == culprit && what == 1 ? 164 : 64;
    int own[2] = {0}, all[2 * RANKS];
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 1, &size);
    gd_tensor_fill(t, 1);
    if (what == 2)
        gd_group_all_gather_bytes(group, own, rank == culprit ? sizeof own : sizeof *own, all);
    else if (rank == culprit && what == 0)
        gd_group_all_gather(group, t);
    else
        gd_group_reduce_scatter(group, t, true);
}

LOOP_TEST(ranks_that_do_different_things_find_out, 3)
{
    what = _i;
    culprit = 2;
    ranks_run(RANKS, differ);
    int named = 0;
    for (int r = 0; r < RANKS; r++) {
        rank_failed(r, "must make the same calls");
        named += strstr(outcomes[r].error, "rank 2 is in ") != NULL;
    }
    ck_assert_int_ge(named, 1);
}

/* ---- The environment ------------------------------------------------------------------------ */

typedef struct environment {
    const char *set;
    int rank, ranks, local;
    const char *problem;
} environment;

static const environment environments[] = {
    {"SLURM_PROCID=3 SLURM_NTASKS=8", 0, 1, 0, ""}, /* a batch script */
    {"RANK=3 WORLD_SIZE=4 LOCAL_RANK=1", 3, 4, 1, ""},
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

CHECK_MAIN("group faults")
