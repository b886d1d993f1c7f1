/* test_group_faults.c - a rank that dies, fails, leaves, hangs or makes other calls: all other
 * ranks end in time, with a message that names the rank and the call. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, mkdtemp, nanosleep */
#include <stdlib.h>

#include "ranks.h"

enum { RANKS = 4, BEFORE = 3, MOST = 100003 };

static int what, call, culprit; /* set before fork, so all ranks have them */

static const char *const calls[] = {"reduce_scatter", "all_gather", "all_reduce", "broadcast",
                                    "all_gather_bytes"};
enum { CALLS = sizeof calls / sizeof *calls };

/* One of the calls. */
static void work(gd_group *group, gd_tensor *t, int which, size_t bytes)
{
    char own[8] = "", all[RANKS * sizeof own];
    if (which == 0) gd_group_reduce_scatter(group, t, true);
    if (which == 1) gd_group_all_gather(group, t);
    if (which == 2) gd_group_all_reduce(group, t, false);
    if (which == 3) gd_group_broadcast(group, t, culprit);
    if (which == 4) gd_group_all_gather_bytes(group, own, bytes, all);
}

/* ---- Ends and silence ----------------------------------------------------------------------- */

enum { DIES, FAILS, LEAVES, HANGS, DIES_WITH_ITS_LOCK };
static const char *const sentences[] = {"is gone", "has failed: data: the disk is gone", "has left",
                                        "is silent", "is silent"};

static void go_wrong(gd_context *ctx)
{
    if (what == FAILS) gd_fail(ctx, GD_ERROR_IO, "data: the disk is gone");
    if (what == HANGS) nap(2500);
    /* The lock stays, as where a file system has none: then a rank that has died is silent. */
    if (what == DIES_WITH_ITS_LOCK && fork() == 0) nap(3000), ranks_exit();
    if (what == DIES || what == DIES_WITH_ITS_LOCK) raise(SIGKILL);
}

static void run_into_it(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)mine;
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(MOST));
    gd_tensor_fill(t, 1);
    for (int i = 0; i < BEFORE; i++) work(group, t, call, 4);
    if (rank == culprit) go_wrong(ctx);
    for (int i = 0; rank != culprit && i < 3 && !gd_error(ctx); i++) work(group, t, call, 4);
}

static void the_others_name_it(void)
{
    char words[100];
    ranks_run(RANKS, run_into_it);
    for (int r = 0; r < RANKS; r++) {
        if (r == culprit) continue;
        snprintf(words, sizeof words, "%s: rank %d %s", calls[call], culprit, sentences[what]);
        rank_failed(r, words);
        ck_assert_double_lt(outcomes[r].seconds, 30);
    }
}

TEST_CASE("a rank that ends", NULL, NULL)

LOOP_TEST(who_ends_is_named, 3 * CALLS)
{
    what = _i / CALLS;
    call = _i % CALLS;
    for (culprit = 0; culprit < RANKS; culprit += 2) the_others_name_it();
}

TEST_CASE("a rank that hangs", NULL, NULL)

LOOP_TEST(who_is_silent_is_named, 2)
{
    what = HANGS + _i;
    culprit = call = 2;
    ranks_timeout = 1;
    the_others_name_it();
}

/* ---- Other calls ---------------------------------------------------------------------------- */

/* The culprit makes another call, or the same one of another size. */
static void differ(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    const bool odd = rank == culprit;
    (void)mine;
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(odd && what == 1 ? 164 : 64));
    gd_tensor_fill(t, 1);
    work(group, t, what == 2 ? 4 : odd && what == 0, odd ? 8 : 4);
}

TEST_CASE("other calls", NULL, NULL)

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

CHECK_MAIN("group faults")
