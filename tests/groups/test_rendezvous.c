/* test_rendezvous.c - no stranger joins or ends a group, whatever it says; a rank has one place; a
 * crowd of strangers uses up neither time nor descriptors. */
/* Build: all symbols, a test for each case. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <sys/resource.h>

#include "stranger.h"

/* ---- One stranger --------------------------------------------------------------------------- */

/* Like those of stranger.h; what they say about the outcome must hold. */
static void speaks_http(int wire)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: gradus\r\n\r\n";
    give(wire, request, sizeof request);
    ck_assert(was_closed(wire));
}

static void sends_noise(int wire)
{
    makes_noise(wire);
    ck_assert(was_closed(wire));
}

static void says_hello_alone(int wire)
{
    talk t;
    fill_hello(&t);
    give(wire, &t.rank, sizeof t.rank);
    ck_assert(take(wire, &t.listener, sizeof t.listener));
}

static void makes_half_a_claim(int wire)
{
    talk t;
    fill_hello(&t);
    give(wire, &t.rank, sizeof t.rank);
    ck_assert(take(wire, &t.listener, sizeof t.listener));
    fill_claim(&t, group.run, group.secret, 1, 2, gd_version());
    give(wire, &t.claim, 30);
}

static const uint8_t nothing[32];

/* Nothing that the listener says depends on its run's id, until the newcomer has proved that it knows
 * it: the verdict has no proof, by which a stranger could tell whether a guess is right. */
static void is_of_another_run(int wire)
{
    talk t;
    fill_hello(&t);
    give(wire, &t.rank, sizeof t.rank);
    ck_assert(take(wire, &t.listener, sizeof t.listener));
    fill_claim(&t, "job 8", group.secret, 1, 2, gd_version());
    give(wire, &t.claim, sizeof t.claim);
    ck_assert(take(wire, &t.verdict, sizeof t.verdict));
    ck_assert_int_eq(t.verdict.kind, 3);
    ck_assert_int_eq(t.verdict.problem[0], 0);
    ck_assert_mem_eq(t.verdict.proof, nothing, sizeof nothing);
    ck_assert(was_closed(wire));
}

/* Takes what the listener has said as the key to the run. */
static void repeats_what_it_hears(int wire)
{
    talk t;
    fill_hello(&t);
    give(wire, &t.rank, sizeof t.rank);
    ck_assert(take(wire, &t.listener, sizeof t.listener));
    const int second = knock();
    t.rank = t.listener;
    give(second, &t.rank, sizeof t.rank);
    ck_assert(take(second, &t.listener, sizeof t.listener));
    t.claim.rank = 1;
    t.claim.ranks = 2;
    memcpy(t.claim.version, gd_version(), strlen(gd_version()));
    gd_hmac_sha256("", 0, &t, offsetof(talk, claim.run_proof), t.claim.run_proof);
    gd_hmac_sha256("", 0, &t, offsetof(talk, claim.proof), t.claim.proof);
    give(second, &t.claim, sizeof t.claim);
    ck_assert(take(second, &t.verdict, sizeof t.verdict));
    ck_assert_int_eq(t.verdict.kind, 3);
    close(second);
}

static void guesses_the_secret(int wire)
{
    talk t;
    ck_assert_int_eq(claim_as(wire, 1, 2, gd_version(), "password", &t), 1);
    ck_assert_mem_eq(t.verdict.proof, nothing, sizeof nothing);
    ck_assert(was_closed(wire));
}

/* It learns no proof from the verdict that it could use itself. */
static void mirrors_the_proof(int wire)
{
    talk t, again;
    claim_as(wire, 1, 2, gd_version(), "password", &t);
    const int second = knock();
    fill_hello(&again);
    memcpy(again.rank.nonce, t.listener.nonce, sizeof t.listener.nonce);
    give(second, &again.rank, sizeof again.rank);
    ck_assert(take(second, &again.listener, sizeof again.listener));
    ck_assert(memcmp(again.listener.nonce, t.listener.nonce, 16) != 0);
    fill_claim(&again, group.run, "password", 1, 2, gd_version());
    memcpy(again.claim.proof, t.verdict.proof, 32);
    give(second, &again.claim, sizeof again.claim);
    ck_assert(take(second, &again.verdict, sizeof again.verdict));
    ck_assert_int_eq(again.verdict.kind, 1);
}

static void does_not_fit(int wire, int rank, int ranks, const char *version, const char *why)
{
    talk t;
    ck_assert_int_eq(claim_as(wire, rank, ranks, version, group.secret, &t), 2);
    t.verdict.problem[139] = '\0';
    ck_assert_str_eq(t.verdict.problem, why);
    ck_assert(was_closed(wire));
}

static void says_it_is_rank_0(int wire)
{
    does_not_fit(wire, 0, 2, gd_version(), "rank 0 is not between 1 and 1");
}

static void says_it_is_rank_9(int wire)
{
    does_not_fit(wire, 9, 2, gd_version(), "rank 9 is not between 1 and 1");
}

static void says_it_is_rank_minus_5(int wire)
{
    does_not_fit(wire, -5, 2, gd_version(), "rank -5 is not between 1 and 1");
}

static void counts_three_ranks(int wire)
{
    does_not_fit(wire, 1, 3, gd_version(), "rank 1 was started with 3 ranks, rank 0 with 2");
}

static void is_of_another_version(int wire)
{
    char why[100];
    snprintf(why, sizeof why, "rank 1 runs gradus 9.9.9, rank 0 runs %s", gd_version());
    does_not_fit(wire, 1, 2, "9.9.9", why);
}

static void has_a_version_without_end(int wire)
{
    char why[100];
    snprintf(why, sizeof why, "rank 1 runs gradus AAAAAAAAAAAAAAA, rank 0 runs %s", gd_version());
    does_not_fit(wire, 1, 2, "AAAAAAAAAAAAAAAA", why);
}

typedef struct stranger {
    void (*act)(int wire);
    const char *notice;
} stranger;

static const stranger strangers[] = {
    {is_silent, ""},
    {speaks_http, ""},
    {sends_noise, ""},
    {says_half_a_hello, ""},
    {says_hello_and_is_reset, ""},
    {says_hello_alone, ""},
    {makes_half_a_claim, ""},
    {is_of_another_run, "from 127.0.0.1 is rejected: it is of another run\n"},
    {repeats_what_it_hears, "from 127.0.0.1 is rejected: it is of another run\n"},
    {guesses_the_secret, "rejected: it does not know the secret of this run\n"},
    {mirrors_the_proof, "rejected: it does not know the secret of this run\n"},
    {says_it_is_rank_0, "rejected: rank 0 is not between 1 and 1\n"},
    {says_it_is_rank_9, "rejected: rank 9 is not between 1 and 1\n"},
    {says_it_is_rank_minus_5, "rejected: rank -5 is not between 1 and 1\n"},
    {counts_three_ranks, "rejected: rank 1 was started with 3 ranks, rank 0 with 2\n"},
    {is_of_another_version, "rejected: rank 1 runs gradus 9.9.9, rank 0 runs "},
    {has_a_version_without_end, "rejected: rank 1 runs gradus AAAAAAAAAAAAAAA, rank 0 "},
};
enum { STRANGERS = sizeof strangers / sizeof *strangers };

TEST_CASE("strangers", 0, NULL, NULL)

LOOP_TEST(no_stranger_joins_or_ends_a_group, STRANGERS *MODES)
{
    const stranger *s = &strangers[_i / MODES];
    const int mode = _i % MODES;
    prepare(2, mode);
    const pid_t rank_0 = start_rank_0();
    const int wire = knock();
    ck_assert_int_ge(wire, 0);
    s->act(wire);
    come_together(rank_0);
    close(wire);
    const char *notices = outcomes[0].notices;
    ck_assert_msg(strstr(notices, s->notice) != NULL, "\"%s\" without \"%s\"", notices, s->notice);
    ck_assert_int_eq(strstr(notices, "has neither an id nor a secret") != NULL, mode == OPEN);
    ck_assert_int_eq(strstr(notices, "has an id but no secret") != NULL, mode == WITH_ID);
    ck_assert_str_eq(outcomes[1].notices, "");
}

/* A rank that has joined keeps its place, until its connection is gone. */
TEST(a_rank_has_one_place)
{
    talk t;
    prepare(3, WITH_SECRET);
    const pid_t rank_0 = start_rank_0();
    const int one = knock(), two = knock();
    ck_assert_int_eq(claim_as(one, 1, 3, gd_version(), group.secret, &t), 0);
    ck_assert_int_eq(claim_as(two, 1, 3, gd_version(), group.secret, &t), 2);
    ck_assert_str_eq(t.verdict.problem, "rank 1 connected twice");
    close(one);
    close(two);
    const pid_t ranks[2] = {start(group, 1), start(group, 2)};
    for (int r = 0; r < 2; r++) waitpid(ranks[r], NULL, 0);
    waitpid(rank_0, NULL, 0);
    for (int r = 0; r < 3; r++)
        ck_assert_msg(!outcomes[r].error[0], "rank %d: %s", r, outcomes[r].error);
}

/* ---- Many strangers ------------------------------------------------------------------------- */

/* Connects as often as it can, and keeps the last few hundred connections open. */
static pid_t start_crowd(void)
{
    enum { KEPT = 400 };
    static int wire[KEPT];
    fflush(NULL);
    const pid_t child = fork();
    if (child) return child;
    for (int i = 0;; i = (i + 1) % KEPT) {
        if (wire[i] > 0) close(wire[i]);
        wire[i] = knock();
        if (i % 3 == 0 && wire[i] >= 0) says_half_a_hello(wire[i]);
        if (i % 7 == 0 && wire[i] >= 0) give(wire[i], "GET / HTTP/1.1\r\n\r\n", 18);
    }
}

TEST_CASE("crowds", 0, NULL, NULL)

TEST(deadlines_hold_among_thousands)
{
    prepare(2, WITH_SECRET);
    group.timeout = 1.5;
    const pid_t crowd = start_crowd();
    const pid_t rank_0 = start_rank_0();
    waitpid(rank_0, NULL, 0);
    kill(crowd, SIGKILL);
    waitpid(crowd, NULL, 0);
    rank_failed(0, "group_create: rank 1 has not connected within 1.5 s (1 of 2 have); rejected: ");
    rank_failed(0, " that said nothing or something else");
    ck_assert_double_lt(outcomes[0].seconds, 2.5);
}

TEST(a_rank_gets_through_a_crowd)
{
    prepare(2, WITH_SECRET);
    const pid_t crowd = start_crowd();
    ranks_sleep(0.3);
    const pid_t rank_0 = start_rank_0();
    ranks_sleep(0.3);
    const pid_t rank_1 = start(group, 1);
    waitpid(rank_1, NULL, 0);
    waitpid(rank_0, NULL, 0);
    kill(crowd, SIGKILL);
    waitpid(crowd, NULL, 0);
    for (int r = 0; r < 2; r++)
        ck_assert_msg(!outcomes[r].error[0], "rank %d: %s", r, outcomes[r].error);
}

/* Descriptors that silent connections hold are taken back. */
TEST(strangers_do_not_use_up_descriptors)
{
    enum { SILENT = 60 };
    int wire[SILENT];
    const struct rlimit few = {32, 32};
    prepare(2, WITH_SECRET);
    for (int i = 0; i < SILENT; i++) {
        wire[i] = knock();
        ck_assert_int_ge(wire[i], 0);
    }
    const pid_t rank_0 = fork();
    if (rank_0 == 0) {
        for (int i = 0; i < SILENT; i++) close(wire[i]);
        setrlimit(RLIMIT_NOFILE, &few);
        rank_main(group, be_there);
        ranks_exit();
    }
    close(group.listener);
    group.listener = 0;
    come_together(rank_0);
    for (int i = 0; i < SILENT; i++) close(wire[i]);
}

TEST(nobody_connects_to_a_complete_group)
{
    prepare(2, WITH_SECRET);
    const int early = knock();
    come_together(start_rank_0());
    ck_assert(was_closed(early));
    ck_assert_int_eq(knock(), -1);
    close(early);
}

CHECK_MAIN("rendezvous", 0)
