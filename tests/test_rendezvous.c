/* test_rendezvous.c - who may join a group: ids and secrets, strangers of all kinds, the interfaces
 * at which rank 0 listens. The protocol is spoken here by code of its own. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, getifaddrs */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "group/group.h"
#include "platform/socket.h"
#include "port.h"
#include "ranks.h"

/* ---- The protocol, spoken by a stranger ----------------------------------------------------- */

typedef struct hello {
    char magic[8];
    uint8_t nonce[16], run[32];
} hello;

typedef struct talk {
    hello rank, listener;
    struct {
        int32_t rank, ranks;
        char version[16];
        uint8_t proof[32];
    } claim;
    struct {
        int32_t kind; /* 0: welcome, 1: another secret, 2: does not fit */
        char problem[140];
        uint8_t proof[32];
    } verdict;
} talk;

static const char run_id[] = "job 7", secret_text[] = "0b5c 40 digits nobody can guess 77aa";
static gd_group_options group; /* the group under test */

static int knock(void)
{
    const struct sockaddr_in a = port_address(group.port);
    const int wire = socket(AF_INET, SOCK_STREAM, 0);
    if (wire < 0 || connect(wire, (const struct sockaddr *)&a, sizeof a)) {
        close(wire);
        return -1;
    }
    return wire;
}

/* Whether all of it came before the other end closed, or two seconds were over. */
static bool take(int wire, void *data, size_t bytes)
{
    for (char *at = data; bytes > 0;) {
        struct pollfd one = {.fd = wire, .events = POLLIN};
        if (poll(&one, 1, 2000) <= 0) return false;
        const ssize_t got = recv(wire, at, bytes, 0);
        if (got <= 0) return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

static void give(int wire, const void *data, size_t bytes)
{
    send(wire, data, bytes, MSG_NOSIGNAL);
}

static void fill_hello(talk *t, const char *run)
{
    memset(t, 0, sizeof *t);
    memcpy(t->rank.magic, "gdgroup2", 8);
    memset(t->rank.nonce, 'n', sizeof t->rank.nonce);
    gd_hmac_sha256("run", 3, run, strlen(run), t->rank.run);
}

static void fill_claim(talk *t, const char *secret, int rank, int ranks, const char *version)
{
    t->claim.rank = rank;
    t->claim.ranks = ranks;
    memcpy(t->claim.version, version, strlen(version));
    gd_hmac_sha256(secret, strlen(secret), t, offsetof(talk, claim.proof), t->claim.proof);
}

/* The kind of the verdict on a claim; -1: none came. The wire stays open. */
static int claim_as(int wire, int rank, int ranks, const char *version, const char *secret, talk *t)
{
    fill_hello(t, group.run);
    give(wire, &t->rank, sizeof t->rank);
    if (!take(wire, &t->listener, sizeof t->listener)) return -1;
    fill_claim(t, secret, rank, ranks, version);
    give(wire, &t->claim, sizeof t->claim);
    return take(wire, &t->verdict, sizeof t->verdict) ? t->verdict.kind : -1;
}

static bool was_closed(int wire)
{
    char rest;
    struct pollfd one = {.fd = wire, .events = POLLIN};
    return poll(&one, 1, 8000) > 0 && recv(wire, &rest, 1, 0) <= 0;
}

/* ---- A group among strangers ---------------------------------------------------------------- */

static void be_there(gd_context *ctx, gd_group *g, int rank, outcome *mine)
{
    int own = rank, all[RANKS_MOST] = {0};
    gd_group_all_gather_bytes(g, &own, sizeof own, all);
    note(mine, gd_error(ctx) ? 0 : all[gd_group_ranks(g) - 1]);
}

enum { OPEN, WITH_ID, WITH_SECRET, MODES };

static void prepare(int ranks, int mode)
{
    ranks_prepare();
    group = (gd_group_options){.ranks = ranks, .timeout = 6};
    if (mode >= WITH_ID) snprintf(group.run, sizeof group.run, "%s", run_id);
    if (mode == WITH_SECRET) snprintf(group.secret, sizeof group.secret, "%s", secret_text);
    group.listener = ranks_listen(&group.port);
}

static pid_t start(gd_group_options o, int rank)
{
    fflush(NULL);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child) return child;
    o.rank = rank;
    if (rank > 0 && o.listener > 0) {
        close(o.listener);
        o.listener = 0;
    }
    rank_main(o, be_there);
    ranks_exit();
    return 0;
}

static pid_t start_rank_0(void)
{
    const pid_t child = start(group, 0);
    close(group.listener);
    group.listener = 0;
    return child;
}

/* Rank 1 of two joins at once, and all is well. */
static void come_together(pid_t rank_0)
{
    const pid_t rank_1 = start(group, 1);
    waitpid(rank_1, NULL, 0);
    waitpid(rank_0, NULL, 0);
    for (int r = 0; r < 2; r++) {
        ck_assert_msg(outcomes[r].ended && !outcomes[r].error[0], "rank %d: %s", r,
                      outcomes[r].error);
        ck_assert_double_eq(outcomes[r].number[0], 1);
    }
    ck_assert_double_lt(outcomes[1].seconds, 2);
}

/* What a stranger does with a new connection; what it says about the outcome must hold. */
static void is_silent(int wire)
{
    (void)wire;
}

static void speaks_http(int wire)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: gradus\r\n\r\n";
    give(wire, request, sizeof request);
    ck_assert(was_closed(wire));
}

static void makes_noise(int wire)
{
    char noise[5000];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)(i * 7919 >> 3);
    give(wire, noise, sizeof noise);
}

static void sends_noise(int wire)
{
    makes_noise(wire);
    ck_assert(was_closed(wire));
}

static void says_half_a_hello(int wire)
{
    talk t;
    fill_hello(&t, group.run);
    give(wire, &t.rank, 20);
}

static void says_hello_and_is_reset(int wire)
{
    talk t;
    const struct linger now = {1, 0};
    fill_hello(&t, group.run);
    give(wire, &t.rank, sizeof t.rank);
    setsockopt(wire, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(wire);
}

static void says_hello_alone(int wire)
{
    talk t;
    fill_hello(&t, group.run);
    give(wire, &t.rank, sizeof t.rank);
    ck_assert(take(wire, &t.listener, sizeof t.listener));
}

static void makes_half_a_claim(int wire)
{
    talk t;
    fill_hello(&t, group.run);
    give(wire, &t.rank, sizeof t.rank);
    ck_assert(take(wire, &t.listener, sizeof t.listener));
    fill_claim(&t, group.secret, 1, 2, gd_version());
    give(wire, &t.claim, 30);
}

static void is_of_another_run(int wire)
{
    talk t;
    fill_hello(&t, "job 8");
    give(wire, &t.rank, sizeof t.rank);
    ck_assert(take(wire, &t.listener, sizeof t.listener));
    ck_assert(was_closed(wire));
}

static void guesses_the_secret(int wire)
{
    talk t;
    ck_assert_int_eq(claim_as(wire, 1, 2, gd_version(), "password", &t), 1);
    ck_assert(was_closed(wire));
}

/* It learns no proof from the verdict that it could use itself. */
static void mirrors_the_proof(int wire)
{
    talk t, again;
    claim_as(wire, 1, 2, gd_version(), "password", &t);
    const int second = knock();
    fill_hello(&again, group.run);
    memcpy(again.rank.nonce, t.listener.nonce, sizeof t.listener.nonce);
    give(second, &again.rank, sizeof again.rank);
    ck_assert(take(second, &again.listener, sizeof again.listener));
    ck_assert(memcmp(again.listener.nonce, t.listener.nonce, 16) != 0);
    fill_claim(&again, "password", 1, 2, gd_version());
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
    {is_of_another_run, "from 127.0.0.1 is turned away: it is of another run\n"},
    {guesses_the_secret, "turned away: it does not know the secret of this run\n"},
    {mirrors_the_proof, "turned away: it does not know the secret of this run\n"},
    {says_it_is_rank_0, "turned away: rank 0 is not between 1 and 1\n"},
    {says_it_is_rank_9, "turned away: rank 9 is not between 1 and 1\n"},
    {says_it_is_rank_minus_5, "turned away: rank -5 is not between 1 and 1\n"},
    {counts_three_ranks, "turned away: rank 1 was started with 3 ranks, rank 0 with 2\n"},
    {is_of_another_version, "turned away: rank 1 runs gradus 9.9.9, rank 0 runs "},
    {has_a_version_without_end, "turned away: rank 1 runs gradus AAAAAAAAAAAAAAA, rank 0 "},
};
enum { STRANGERS = sizeof strangers / sizeof *strangers };

START_TEST(no_stranger_joins_or_ends_a_group)
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
    ck_assert_str_eq(outcomes[1].notices, "");
}
END_TEST

/* A rank that has joined keeps its place, until its connection is gone. */
START_TEST(a_rank_has_one_place)
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
END_TEST

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

START_TEST(deadlines_hold_among_thousands)
{
    prepare(2, WITH_SECRET);
    group.timeout = 1.5;
    const pid_t crowd = start_crowd();
    const pid_t rank_0 = start_rank_0();
    waitpid(rank_0, NULL, 0);
    kill(crowd, SIGKILL);
    waitpid(crowd, NULL, 0);
    rank_failed(0, "group_create: rank 1 has not connected within 1.5 s (1 of 2 have); turned "
                   "away: ");
    rank_failed(0, " that said nothing or something else");
    ck_assert_double_lt(outcomes[0].seconds, 2.5);
}
END_TEST

START_TEST(a_rank_gets_through_a_crowd)
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
END_TEST

/* Descriptors that silent connections hold are taken back. */
START_TEST(strangers_do_not_use_up_descriptors)
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
END_TEST

START_TEST(nobody_connects_to_a_complete_group)
{
    prepare(2, WITH_SECRET);
    const int early = knock();
    come_together(start_rank_0());
    ck_assert(was_closed(early));
    ck_assert_int_eq(knock(), -1);
    close(early);
}
END_TEST

/* Two groups at one port: the ranks of the other one are told, at once. */
START_TEST(ranks_of_another_run_are_told)
{
    prepare(2, WITH_ID);
    const pid_t rank_0 = start_rank_0();
    gd_group_options other = group;
    other.run[0] = 'J';
    const pid_t strange = start(other, 1);
    waitpid(strange, NULL, 0);
    rank_failed(1, "group_create: rank 1 cannot join rank 0 at 127.0.0.1:");
    rank_failed(1, ": what listens there is of another run");
    ck_assert_double_lt(outcomes[1].seconds, 2);
    memset(&outcomes[1], 0, sizeof *outcomes);
    other = group;
    snprintf(other.secret, sizeof other.secret, "mine");
    waitpid(start(other, 1), NULL, 0);
    rank_failed(1, ": what listens there has another secret");
    memset(&outcomes[1], 0, sizeof *outcomes);
    other = group;
    other.ranks = 5;
    waitpid(start(other, 4), NULL, 0);
    rank_failed(4, ": rank 4 was started with 5 ranks, rank 0 with 2");
    come_together(rank_0);
}
END_TEST

/* Rank 0 says at its deadline who was turned away. */
START_TEST(the_reasons_are_told_at_the_deadline)
{
    prepare(3, WITH_ID);
    group.timeout = 1;
    const pid_t rank_0 = start_rank_0();
    gd_group_options other = group;
    other.ranks = 4;
    waitpid(start(other, 3), NULL, 0);
    snprintf(other.run, sizeof other.run, "other");
    waitpid(start(other, 3), NULL, 0);
    waitpid(start(other, 2), NULL, 0);
    waitpid(start(group, 2), NULL, 0);
    waitpid(rank_0, NULL, 0);
    static const char words[] =
        "rank 1 has not connected within 1 s (2 of 3 have); turned away: 2 of another run, 1 that "
        "did not fit (rank 3 was started with 4 ranks, rank 0 with 3)";
    rank_failed(0, words);
    rank_failed(2, words);
}
END_TEST

/* ---- A mesh --------------------------------------------------------------------------------- */

/* Waits until the descriptor is a socket that listens, and comes to it as several strangers, none
 * of whom waits for an answer: there is none before all ranks listen. */
static void *disturb(void *descriptor)
{
    static void (*const acts[])(int wire) = {is_silent, says_half_a_hello, makes_noise,
                                             says_hello_and_is_reset};
    const int listener = *(int *)descriptor;
    struct sockaddr_in a = {0};
    socklen_t size = sizeof a;
    const int port = group.port;
    int wire = -1;
    for (int i = 0; i < 900 && wire < 0; i++) { /* it has a port before it listens */
        size = sizeof a;
        ranks_sleep(0.001);
        if (getsockname(listener, (struct sockaddr *)&a, &size) || !a.sin_port) continue;
        group.port = ntohs(a.sin_port);
        wire = knock();
    }
    for (size_t i = 0; i < sizeof acts / sizeof *acts && wire >= 0; i++) {
        if (i > 0) wire = knock();
        if (wire >= 0) acts[i](wire);
    }
    group.port = port;
    return wire < 0 ? NULL : descriptor;
}

/* Rank 0 listens, and strangers come while it waits for rank 2. */
static void make_a_mesh(gd_context *ctx, gd_group *g, int rank, outcome *mine)
{
    int peers[RANKS_MOST];
    int next = dup(STDIN_FILENO); /* the descriptor that the listener will get */
    pthread_t thread;
    void *disturbed = NULL;
    close(next);
    if (rank == 0 && pthread_create(&thread, NULL, disturb, &next)) return;
    if (rank == 2) ranks_sleep(1);
    gd_rendezvous_mesh(g, peers);
    if (rank == 0) pthread_join(thread, &disturbed);
    for (int r = 0; r < 3 && !gd_error(ctx); r++) {
        const int own = rank;
        if (peers[r] >= 0) give(peers[r], &own, sizeof own);
    }
    for (int r = 0; r < 3 && !gd_error(ctx); r++) {
        int other = rank;
        if (peers[r] >= 0 && !take(peers[r], &other, sizeof other)) other = -1;
        note(mine, other - r);
        gd_wire_close(&peers[r]);
    }
    note(mine, rank == 0 ? disturbed != NULL : 1);
}

START_TEST(no_stranger_joins_a_mesh)
{
    prepare(3, _i);
    pid_t child[3];
    for (int r = 2; r >= 0; r--) {
        child[r] = fork();
        if (child[r]) continue;
        gd_group_options own = group;
        own.rank = r;
        if (r > 0) own.listener = 0;
        rank_main(own, make_a_mesh);
        ranks_exit();
    }
    close(group.listener);
    for (int r = 0; r < 3; r++) waitpid(child[r], NULL, 0);
    for (int r = 0; r < 3; r++) {
        ck_assert_msg(!outcomes[r].error[0], "rank %d: %s", r, outcomes[r].error);
        ck_assert_double_lt(outcomes[r].seconds, 4);
        ck_assert_int_eq(outcomes[r].count, 4);
        for (int i = 0; i < 3; i++) ck_assert_double_eq(outcomes[r].number[i], 0);
        ck_assert_double_eq(outcomes[r].number[3], 1);
    }
}
END_TEST

/* ---- A listener that is not rank 0 ---------------------------------------------------------- */

enum { CLOSES, IS_NO_GROUP, ECHOES, IS_OF_ANOTHER_RUN, WELCOMES, IS_MUTE, IMPOSTORS };

static void pretend(int wire, int how)
{
    talk t;
    char text[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n                 ";
    fill_hello(&t, how == IS_OF_ANOTHER_RUN ? "other" : group.run);
    t.listener = t.rank;
    if (how == CLOSES) return;
    if (how == IS_MUTE) ranks_sleep(3);
    if (!take(wire, &t.rank, sizeof t.rank)) return;
    if (how == IS_NO_GROUP) give(wire, text, sizeof text);
    if (how == ECHOES) give(wire, &t.rank, sizeof t.rank);
    if (how == IS_OF_ANOTHER_RUN || how == WELCOMES) give(wire, &t.listener, sizeof t.listener);
    if (how == WELCOMES && take(wire, &t.claim, sizeof t.claim))
        give(wire, &t.verdict, sizeof t.verdict);
    ranks_sleep(0.1);
}

static const char *const exposed[IMPOSTORS] = {
    "cannot reach rank 0 at 127.0.0.1:",
    ": what listens there is not gradus, or of another version",
    "cannot reach rank 0 at 127.0.0.1:",
    ": what listens there is of another run",
    ": what listens there has another secret",
    ": what listens there is silent",
};

START_TEST(an_impostor_is_found_out)
{
    prepare(2, WITH_SECRET);
    group.timeout = 1;
    fflush(NULL);
    const pid_t impostor = fork();
    for (int wire; impostor == 0 && (wire = accept(group.listener, NULL, NULL)) >= 0; close(wire))
        pretend(wire, _i);
    waitpid(start(group, 1), NULL, 0);
    kill(impostor, SIGKILL);
    waitpid(impostor, NULL, 0);
    close(group.listener);
    rank_failed(1, exposed[_i]);
    ck_assert_double_lt(outcomes[1].seconds, 2);
}
END_TEST

/* ---- Listening in --------------------------------------------------------------------------- */

enum { HEARD = 1 << 16 };
typedef struct record {
    size_t count, from_rank;
    char heard[HEARD], said[HEARD]; /* in both directions; by the rank */
} record;

/* Passes on what rank 1 and rank 0 say to each other, and keeps it. */
static void relay(int listener, record *r)
{
    const int rank = accept(listener, NULL, NULL), host = knock();
    struct pollfd set[2] = {{.fd = rank, .events = POLLIN}, {.fd = host, .events = POLLIN}};
    for (bool open = true; open && poll(set, 2, 5000) > 0;) {
        for (int i = 0; i < 2; i++) {
            char piece[1024];
            if (!set[i].revents) continue;
            const ssize_t got = recv(set[i].fd, piece, sizeof piece, 0);
            open = open && got > 0 && r->count + sizeof piece < HEARD;
            if (!open) break;
            memcpy(r->heard + r->count, piece, (size_t)got);
            r->count += (size_t)got;
            if (i == 0) {
                memcpy(r->said + r->from_rank, piece, (size_t)got);
                r->from_rank += (size_t)got;
            }
            give(set[1 - i].fd, piece, (size_t)got);
        }
    }
}

START_TEST(the_secret_is_never_sent_and_a_proof_counts_once)
{
    talk t;
    int port;
    record *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    prepare(2, WITH_SECRET);
    const int listener = ranks_listen(&port), host = group.port;
    const pid_t rank_0 = start_rank_0();
    const pid_t spy = fork();
    if (spy == 0) {
        relay(listener, r);
        _exit(0);
    }
    close(listener);
    group.port = port;
    come_together(rank_0);
    group.port = host;
    kill(spy, SIGKILL);
    waitpid(spy, NULL, 0);
    ck_assert_uint_ge(r->count, sizeof(talk));
    for (size_t i = 0; i + 8 < r->count; i++) /* not even a part of it */
        ck_assert(memcmp(r->heard + i, secret_text + 5, 8) != 0);
    /* The same words once more. */
    prepare(2, WITH_SECRET);
    const pid_t again = start_rank_0();
    const int wire = knock();
    give(wire, r->said, sizeof t.rank);
    ck_assert(take(wire, &t.listener, sizeof t.listener));
    give(wire, r->said + sizeof t.rank, sizeof t.claim);
    ck_assert(take(wire, &t.verdict, sizeof t.verdict));
    ck_assert_int_eq(t.verdict.kind, 1);
    come_together(again);
    munmap(r, sizeof *r);
}
END_TEST

/* ---- Interfaces ----------------------------------------------------------------------------- */

/* Whether something listens at this address, of 127.0.0.0/8 or another interface. */
static bool is_open(struct in_addr host, int port)
{
    struct sockaddr_in a = port_address(port);
    const int wire = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_addr = host;
    const bool open = connect(wire, (struct sockaddr *)&a, sizeof a) == 0;
    close(wire);
    return open;
}

/* An address of this host that is no loopback address; false if it has none. */
static bool find_own(struct in_addr *own)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    ck_assert_int_eq(getifaddrs(&all), 0);
    for (const struct ifaddrs *at = all; at && !found; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET) continue;
        struct sockaddr_in a;
        memcpy(&a, at->ifa_addr, sizeof a);
        found = ntohl(a.sin_addr.s_addr) >> 24 != 127;
        *own = a.sin_addr;
    }
    freeifaddrs(all);
    return found;
}

typedef struct place {
    const char *host; /* "": an address of this host */
    bool several_hosts;
    bool open[3]; /* at 127.0.0.1, 127.0.0.2, its other address */
    const char *notice;
} place;

static const place places[] = {
    {"127.0.0.1", false, {true, false, false}, ""},
    {"localhost", false, {true, false, false}, ""},
    {"127.0.0.2", false, {false, true, false}, ""},
    {"127.0.0.1",
     true,
     {true, true, true},
     " of all interfaces: 127.0.0.1 is a loopback address, and the ranks are on several hosts\n"},
    {"", true, {false, false, true}, ""},
    {"", false, {false, false, true}, ""},
    {"203.0.113.77",
     true,
     {true, true, true},
     " of all interfaces: 203.0.113.77 is not an address of this host\n"},
};
enum { PLACES = sizeof places / sizeof *places };

START_TEST(rank_0_listens_where_its_address_is)
{
    const place *p = &places[_i];
    struct in_addr at[3] = {{htonl(0x7f000001)}, {htonl(0x7f000002)}, {0}};
    const bool has_own = find_own(&at[2]);
    int port;
    if (!p->host[0] && !has_own) return;
    prepare(2, WITH_ID);
    close(group.listener);
    group.listener = 0;
    const int reserved = port_reserve(&port);
    group.port = port;
    group.several_hosts = p->several_hosts;
    snprintf(group.host, sizeof group.host, "%s", p->host[0] ? p->host : inet_ntoa(at[2]));
    const pid_t rank_0 = start(group, 0);
    bool listens = false;
    for (int i = 0; i < 1000 && !listens; i++) {
        for (int k = 0; k < 3; k++) listens = listens || (p->open[k] && is_open(at[k], port));
        ranks_sleep(0.005);
    }
    ck_assert(listens);
    for (int k = 0; k < (has_own ? 3 : 2); k++)
        ck_assert_msg(is_open(at[k], port) == p->open[k], "%s at address %d", p->host, k);
    kill(rank_0, SIGKILL);
    waitpid(rank_0, NULL, 0);
    ck_assert_msg(strstr(outcomes[0].notices, p->notice) != NULL, "%s", outcomes[0].notices);
    if (!p->notice[0]) ck_assert_str_eq(outcomes[0].notices, "");
    close(reserved);
}
END_TEST

/* Ranks reach each other, too, where all connections take another interface. */
START_TEST(a_group_meets_at_another_interface)
{
    struct in_addr own;
    int port;
    if (!find_own(&own)) return;
    prepare(3, WITH_SECRET);
    close(group.listener);
    group.listener = 0;
    const int reserved = port_reserve(&port);
    group.port = port;
    snprintf(group.host, sizeof group.host, "%s", inet_ntoa(own));
    pid_t child[3];
    for (int r = 0; r < 3; r++) child[r] = start(group, r);
    for (int r = 0; r < 3; r++) waitpid(child[r], NULL, 0);
    for (int r = 0; r < 3; r++)
        ck_assert_msg(!outcomes[r].error[0], "rank %d: %s", r, outcomes[r].error);
    close(reserved);
}
END_TEST

START_TEST(texts_that_do_not_end_are_refused)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
    gd_group_options o[4] = {{.ranks = 2}, {.ranks = 2}, {.ranks = 2}, {.ranks = 2}}, all;
    memset(o[0].host, 'A', sizeof o->host);
    memset(o[1].run, 'A', sizeof o->run);
    memset(o[2].secret, 'A', sizeof o->secret);
    memset(o[3].problem, 'A', sizeof o->problem);
    memset(&all, 0xff, sizeof all);
    for (int i = 0; i < 5; i++) {
        ck_assert_ptr_null(gd_group_create(ctx, i < 4 ? &o[i] : &all));
        ck_assert_error(ctx, "group_create: a text of the options is not terminated");
    }
    gd_context_free(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rendezvous");
    TCase *alone = tcase_create("strangers");
    tcase_add_loop_test(alone, no_stranger_joins_or_ends_a_group, 0, STRANGERS * MODES);
    tcase_add_test(alone, a_rank_has_one_place);
    TCase *many = tcase_create("crowds");
    tcase_add_test(many, deadlines_hold_among_thousands);
    tcase_add_test(many, a_rank_gets_through_a_crowd);
    tcase_add_test(many, strangers_do_not_use_up_descriptors);
    tcase_add_test(many, nobody_connects_to_a_complete_group);
    TCase *others = tcase_create("others");
    tcase_add_test(others, ranks_of_another_run_are_told);
    tcase_add_test(others, the_reasons_are_told_at_the_deadline);
    tcase_add_loop_test(others, no_stranger_joins_a_mesh, 0, MODES);
    tcase_add_loop_test(others, an_impostor_is_found_out, 0, IMPOSTORS);
    tcase_add_test(others, the_secret_is_never_sent_and_a_proof_counts_once);
    TCase *where = tcase_create("interfaces");
    tcase_add_loop_test(where, rank_0_listens_where_its_address_is, 0, PLACES);
    tcase_add_test(where, a_group_meets_at_another_interface);
    tcase_add_test(where, texts_that_do_not_end_are_refused);
    suite_add_tcase(suite, alone);
    suite_add_tcase(suite, many);
    suite_add_tcase(suite, others);
    suite_add_tcase(suite, where);
    return check_main(suite);
}
