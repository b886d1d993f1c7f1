/* test_rendezvous_others.c - ranks that do not belong together are told why, no stranger gets into a
 * mesh, what is not rank 0 is found out, and who listens in learns no secret. */
/* Build: all symbols, links Threads::Threads. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <pthread.h>

#include "platform/socket.h"
#include "stranger.h"

/* ---- Ranks of another run ------------------------------------------------------------------- */

/* Two groups at one port: the ranks of the other one are told, at once. */
TEST(ranks_of_another_run_are_told)
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

/* Rank 0 says at its deadline who was rejected. */
TEST(the_reasons_are_told_at_the_deadline)
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
        "rank 1 has not connected within 1 s (2 of 3 have); rejected: 2 of another run, 1 that "
        "did not fit (rank 3 was started with 4 ranks, rank 0 with 3)";
    rank_failed(0, words);
    rank_failed(2, words);
}

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

LOOP_TEST(no_stranger_joins_a_mesh, MODES)
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

/* ---- A listener that is not rank 0 ---------------------------------------------------------- */

enum { CLOSES, IS_NO_GROUP, ECHOES, IS_OF_ANOTHER_RUN, WELCOMES, IS_MUTE, IMPOSTORS };

static void pretend(int wire, int how)
{
    talk t;
    char text[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n                 ";
    fill_hello(&t);
    t.listener = t.rank;
    t.verdict.kind = how == IS_OF_ANOTHER_RUN ? 3 : 0;
    if (how == CLOSES) return;
    if (how == IS_MUTE) ranks_sleep(3);
    if (!take(wire, &t.rank, sizeof t.rank)) return;
    if (how == IS_NO_GROUP) give(wire, text, sizeof text);
    if (how == ECHOES) give(wire, &t.rank, sizeof t.rank);
    if (how == IS_OF_ANOTHER_RUN || how == WELCOMES) give(wire, &t.listener, sizeof t.listener);
    if ((how == IS_OF_ANOTHER_RUN || how == WELCOMES) && take(wire, &t.claim, sizeof t.claim))
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

LOOP_TEST(an_impostor_is_found_out, IMPOSTORS)
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

TEST(neither_secret_nor_id_is_sent_and_a_proof_counts_once)
{
    talk t;
    int port;
    uint8_t id[32];
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
    gd_hmac_sha256("run", 3, run_id, strlen(run_id), id);
    for (size_t i = 0; i + 8 < r->count; i++) { /* not even a part of it, or a hash of the id */
        ck_assert(memcmp(r->heard + i, secret_text + 5, 8) != 0);
        ck_assert(memcmp(r->heard + i, id, 8) != 0);
    }
    /* The same words once more. */
    prepare(2, WITH_SECRET);
    const pid_t again = start_rank_0();
    const int wire = knock();
    give(wire, r->said, sizeof t.rank);
    ck_assert(take(wire, &t.listener, sizeof t.listener));
    give(wire, r->said + sizeof t.rank, sizeof t.claim);
    ck_assert(take(wire, &t.verdict, sizeof t.verdict));
    ck_assert_int_eq(t.verdict.kind, 3);
    come_together(again);
    munmap(r, sizeof *r);
}

CHECK_MAIN("rendezvous of others", 0)
