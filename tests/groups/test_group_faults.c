/* test_group_faults.c - a rank that dies, is silent, fails, never connects, or makes other calls:
 * all other ranks end in time, with a message that names the rank and the call. */
/* Build: all symbols, a test for each case. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <stdlib.h>
#include <sys/resource.h>

#include "group/group.h"
#include "port.h"
#include "ranks.h"

enum { CULPRIT = 2, RANKS = 4, BEFORE = 3 };

static int what; /* set before fork, so all ranks have it */
static int call;
static int64_t n;

/* The call under test, which all ranks repeat. */
static void work(gd_group *group, gd_tensor *t)
{
    int own = 1, all[RANKS];
    switch (call) {
    case 0:
        gd_group_reduce_scatter(group, t, true);
        break;
    case 1:
        gd_group_all_gather(group, t);
        break;
    case 2:
        gd_group_all_reduce(group, t, false);
        break;
    case 3:
        gd_group_broadcast(group, t, CULPRIT);
        break;
    default:
        gd_group_all_gather_bytes(group, &own, sizeof own, all);
    }
}

static const char *const calls[] = {
    "reduce_scatter: ", "all_gather: ", "all_reduce: ", "broadcast: ", "all_gather_bytes: "};
enum { CALLS = sizeof calls / sizeof *calls };

enum { DIES, IS_SILENT, FAILS, LEAVES };

static void run_into_it(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 1, &n);
    gd_tensor_fill(t, 1);
    for (int i = 0; i < BEFORE; i++) work(group, t);
    (void)mine;
    if (rank == CULPRIT) {
        if (what == DIES) raise(SIGKILL);
        if (what == IS_SILENT) ranks_sleep(2.5 * ranks_timeout);
        if (what == FAILS) gd_fail(ctx, GD_ERROR_IO, "data: the disk is gone");
        return;
    }
    work(group, t);
    /* In a broadcast no rank waits for the receivers, so add calls in which all wait. */
    for (int i = 0; i < 3 && !gd_error(ctx); i++) gd_group_all_reduce(group, t, false);
}

static const char *const sentences[] = {"rank 2 is gone", "rank 2 is silent",
                                        "rank 2 has failed: data: the disk is gone", "rank 2"};

static void all_others_end_and_name_it(int number)
{
    what = number % 4;
    call = number / 4;
    n = 100003;
    ranks_timeout = what == IS_SILENT ? 1 : 10;
    if (what == IS_SILENT && call % 2) return; /* silence is slow to test: three calls */
    ranks_run(RANKS, run_into_it);
    for (int r = 0; r < RANKS; r++) {
        if (r == CULPRIT) continue;
        char words[100];
        snprintf(words, sizeof words, "%s%s", calls[call], sentences[what]);
        rank_failed(r, words);
        ck_assert_double_lt(outcomes[r].seconds, 5);
    }
}

TEST_CASE("faults", 0, NULL, NULL)

LOOP_TEST(all_others_end_and_name_it_in_two_calls, 4 * 2)
{
    all_others_end_and_name_it(_i);
}

TEST_CASE("faults in more calls", 0, NULL, NULL)

LOOP_TEST(all_others_end_and_name_it_in_more, 4 * (CALLS - 2))
{
    all_others_end_and_name_it(4 * 2 + _i);
}

TEST_CASE("faults", 0, NULL, NULL)

/* Rank 0 learns that a rank has left before a call needs its data, and does not wait for it. */
static void leave_early(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    int own = 1, all[RANKS];
    (void)ctx, (void)mine;
    if (rank == 1) return;
    if (rank == 0) gd_group_poll(group, 0.5);
    gd_group_all_gather_bytes(group, &own, sizeof own, all);
}

TEST(who_has_left_is_not_waited_for)
{
    ranks_timeout = 2;
    ranks_run(RANKS, leave_early);
    for (int r = 0; r < RANKS; r++)
        if (r != 1) rank_failed(r, "all_gather_bytes: rank 1 has left");
}

/* Failures are reported through rank 0, so its own failure is a special case. */
static void rank_0_dies(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)mine;
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 1, &n);
    work(group, t);
    if (rank == 0) raise(SIGKILL);
    for (int i = 0; i < 3 && !gd_error(ctx); i++) work(group, t);
}

LOOP_TEST(the_end_of_rank_0_is_named_too, CALLS)
{
    n = 1000;
    call = _i;
    ranks_run(RANKS, rank_0_dies);
    for (int r = 1; r < RANKS; r++) {
        rank_failed(r, calls[call]);
        rank_failed(r, "rank 0 is gone");
    }
}

/* Of the ranks that wait for a silent rank 0 one notices first and leaves; the reason that it sends
 * does not get past rank 0. The others must not take that one for the cause. */
static void rank_0_is_silent(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)mine;
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 1, &n);
    work(group, t);
    if (rank == 0) ranks_sleep(2.5 * ranks_timeout);
    if (rank == CULPRIT) gd_fail(ctx, GD_ERROR_DEVICE, "rank 0 is silent");
    if (rank != 0 && rank != CULPRIT) work(group, t);
}

TEST_CASE("silence of rank 0", 0, NULL, NULL)

LOOP_TEST(the_silence_of_rank_0_is_named_too, 3)
{
    n = 1000;
    call = 2 * _i;
    ranks_timeout = 1;
    ranks_run(RANKS, rank_0_is_silent);
    for (int r = 1; r < RANKS; r++) {
        rank_failed(r, "rank 0 is silent");
        ck_assert_double_lt(outcomes[r].seconds, 2.5);
    }
}

/* A rank that waits for the silent one, in another call, is not silent. */
static void wait_in_two_calls(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    int own = 1, all[RANKS];
    (void)mine;
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 1, &n);
    if (rank == CULPRIT)
        ranks_sleep(2.5 * ranks_timeout);
    else if (rank == 0)
        gd_group_all_gather_bytes(group, &own, sizeof own, all);
    else
        gd_group_all_reduce(group, t, false);
}

TEST(who_waits_is_not_silent)
{
    n = 1000;
    ranks_timeout = 1;
    ranks_run(RANKS, wait_in_two_calls);
    for (int r = 0; r < RANKS; r++)
        if (r != CULPRIT) rank_failed(r, "rank 2 is silent");
}

/* ---- Other calls ---------------------------------------------------------------------------- */

static void differ(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)mine;
    int64_t size = rank == CULPRIT && what == 1 ? 164 : 64;
    int own[2] = {0}, all[2 * RANKS];
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 1, &size);
    gd_tensor_fill(t, 1);
    if (what < 2) {
        if (rank == CULPRIT && what == 0)
            gd_group_all_gather(group, t);
        else
            gd_group_reduce_scatter(group, t, true);
    } else {
        gd_group_all_gather_bytes(group, own, rank == CULPRIT ? sizeof own : sizeof *own, all);
    }
    ranks_sleep(0.05); /* no rank leaves before the others have compared */
}

TEST_CASE("faults", 0, NULL, NULL)

LOOP_TEST(ranks_that_do_different_things_find_out, 3)
{
    what = _i;
    ranks_timeout = 5;
    ranks_run(RANKS, differ);
    int named = 0;
    for (int r = 0; r < RANKS; r++) {
        rank_failed(r, "must make the same calls");
        named += strstr(outcomes[r].error, "rank 2 is in ") != NULL;
    }
    ck_assert_int_ge(named, 1);
}

/* ---- Meeting -------------------------------------------------------------------------------- */

static void nothing(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)ctx, (void)group, (void)rank, (void)mine;
}

TEST_CASE("meeting", 0, NULL, NULL)

TEST(who_does_not_come_is_named)
{
    pid_t child[4] = {0};
    gd_group_options o = {.ranks = 4, .timeout = 0.5};
    ranks_prepare();
    o.listener = ranks_listen(&o.port);
    for (int r = 0; r < 4; r++) {
        if (r == 2) continue;
        child[r] = fork();
        if (child[r]) continue;
        o.rank = r;
        if (r > 0) close(o.listener);
        rank_main(o, nothing);
        ranks_exit();
    }
    close(o.listener);
    for (int r = 0; r < 4; r++)
        if (r != 2) waitpid(child[r], NULL, 0);
    rank_failed(0, "group_create: rank 2 has not connected within 0.5 s (3 of 4 have)");
    rank_failed(1, "group_create: rank 2 has not connected within 0.5 s");
    rank_failed(3, "group_create: rank 2 has not connected within 0.5 s");
}

TEST(rank_0_that_is_not_there_is_named)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
    int port;
    const int reserved = port_reserve(&port);
    gd_group_create(ctx, &(gd_group_options){.rank = 1, .ranks = 2, .port = port, .timeout = 0.3});
    ck_assert_error(ctx, "group_create: rank 1 cannot reach rank 0 at 127.0.0.1:");
    close(reserved);
    gd_context_free(ctx);
}

/* Rank 0 does not wait for its timeout, and does not blame another rank. */
TEST(connections_that_cannot_be_accepted_are_an_error)
{
    gd_group_options o = {.ranks = 2, .timeout = 2};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct rlimit before, none;
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
    o.listener = ranks_listen(&o.port);
    a.sin_port = htons((uint16_t)o.port);
    const int wire = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(wire, (struct sockaddr *)&a, sizeof a), 0);
    const int next = dup(wire); /* the descriptor that the connection would get */
    close(next);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)next;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    const double begun = ranks_now();
    ck_assert_ptr_null(gd_group_create(ctx, &o));
    ck_assert_double_lt(ranks_now() - begun, 1);
    setrlimit(RLIMIT_NOFILE, &before);
    ck_assert_error(ctx, "group_create: rank 0 cannot accept connections for 127.0.0.1:");
    close(wire);
    gd_context_free(ctx);
}

/* ---- The environment ------------------------------------------------------------------------ */

static const char *const known[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_USE_AGENT_STORE",
                                    "TORCHELASTIC_RUN_ID",
                                    "GRADUS_GROUP_SECRET",
                                    "PMIX_NAMESPACE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "SLURM_PROCID",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_NTASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_STEP_NUM_NODES",
                                    "SLURM_STEP_ID",
                                    "SLURM_JOB_ID"};

typedef struct environment {
    const char *set; /* "NAME=value ..." */
    int rank, ranks, local;
    const char *host;
    int port;
    const char *problem;
} environment;

static const environment environments[] = {
    {"", 0, 1, 0, "", 0, ""},
    {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=n1 MASTER_PORT=1234", 3, 8, 1, "n1", 1234, ""},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=1234 TORCHELASTIC_USE_AGENT_STORE=True", 0, 2,
     0, "n1", 1235, ""},
    {"RANK=0 WORLD_SIZE=2 TORCHELASTIC_USE_AGENT_STORE=True", 0, 2, 0, "", 0, ""},
    {"RANK=3 WORLD_SIZE=8", 3, 8, 3, "", 0, ""},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 MASTER_ADDR=m", 1,
     2, 0, "m", 0, ""},
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1", 1, 2, 1, "", 0, ""},
    /* A program in a batch script is a single process, whatever SLURM_NTASKS is. */
    {"SLURM_PROCID=0 SLURM_NTASKS=16 SLURM_JOB_ID=5", 0, 1, 0, "", 0, ""},
    {"SLURM_PROCID=9 SLURM_STEP_NUM_TASKS=16 SLURM_LOCALID=1 SLURM_STEP_NODELIST=gpu[07-08,11] "
     "SLURM_JOB_ID=123456",
     9, 16, 1, "gpu07", 23456, ""},
    {"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=a,b SLURM_JOB_ID=1 MASTER_PORT=77",
     1, 2, 1, "a", 77, ""},
    {"RANK=x WORLD_SIZE=2", 0, 2, 0, "", 0, "RANK is \"x\", wanted a whole number of at least 0"},
    {"RANK=0 WORLD_SIZE=0", 0, 1, 0, "", 0, "WORLD_SIZE is \"0\", wanted a whole number"},
    {"WORLD_SIZE=2", 0, 1, 0, "", 0, "WORLD_SIZE is set, but RANK is not"},
    {"RANK=0 WORLD_SIZE=2 GRADUS_GROUP_SECRET=256", 0, 2, 0, "", 0,
     "GRADUS_GROUP_SECRET has 256 bytes, wanted at most 255"},
};

/* A value of "256" stands for a text of that length. */
static void set_variable(const char *word)
{
    char *value = strchr(word, '=');
    char name[300] = "", text[257];
    snprintf(name, sizeof name, "%.*s", (int)(value - word), word);
    memset(text, 'x', 256);
    text[256] = '\0';
    setenv(name, strcmp(value, "=256") ? value + 1 : text, 1);
}

static gd_group_options environment_of(const char *variables)
{
    char set[300];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) unsetenv(known[i]);
    snprintf(set, sizeof set, "%s", variables);
    for (char *word = strtok(set, " "); word; word = strtok(NULL, " ")) set_variable(word);
    return gd_group_environment();
}

TEST_CASE("environment", 0, NULL, NULL)

LOOP_TEST(the_environment_says_who_one_is, sizeof environments / sizeof *environments)
{
    const environment *e = &environments[_i];
    const gd_group_options o = environment_of(e->set);
    ck_assert_msg(strstr(o.problem, e->problem) != NULL, "the problem is \"%s\"", o.problem);
    ck_assert_int_eq(o.problem[0] != 0, e->problem[0] != 0);
    ck_assert_int_eq(o.ranks, e->ranks);
    ck_assert_str_eq(o.host, e->host);
    ck_assert_int_eq(o.port, e->port);
    if (o.problem[0]) return;
    ck_assert_int_eq(o.rank, e->rank);
    ck_assert_int_eq(o.local_rank, e->local);
}

typedef struct origin {
    const char *set, *run, *secret;
    bool several_hosts;
} origin;

static const origin origins[] = {
    {"RANK=0 WORLD_SIZE=2", "", "", false},
    {"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=abc SLURM_JOB_ID=5 "
     "SLURM_STEP_ID=1",
     "abc", "", false},
    {"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 TORCHELASTIC_RUN_ID=none SLURM_JOB_ID=5 "
     "SLURM_STEP_ID=1 PMIX_NAMESPACE=p",
     "5.1", "", true},
    {"RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none SLURM_JOB_ID=5 PMIX_NAMESPACE=p "
     "GRADUS_GROUP_SECRET=s3",
     "p", "s3", false},
    {"RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none SLURM_JOB_ID=5", "", "", false},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 SLURM_JOB_ID=5 "
     "SLURM_STEP_ID=1 PMIX_NAMESPACE=prterun-a-1@1",
     "prterun-a-1@1", "", true},
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 SLURM_JOB_ID=5 SLURM_STEP_ID=1", "5.1", "", false},
    {"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_JOB_ID=5 SLURM_STEP_ID=0",
     "5.0", "", true},
};

LOOP_TEST(the_environment_says_which_run_it_is, sizeof origins / sizeof *origins)
{
    const origin *e = &origins[_i];
    const gd_group_options o = environment_of(e->set);
    ck_assert_str_eq(o.problem, "");
    ck_assert_str_eq(o.run, e->run);
    ck_assert_str_eq(o.secret, e->secret);
    ck_assert_int_eq(o.several_hosts, e->several_hosts);
}

CHECK_MAIN("group faults", 0)
