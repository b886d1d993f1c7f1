/* stranger.h - for tests of who may join a group: the protocol, spoken by code of its own, and a
 * group that strangers come to.
 *
 * The file that includes it defines _DEFAULT_SOURCE (MAP_ANONYMOUS). */
#ifndef GRADUS_TEST_STRANGER_H
#define GRADUS_TEST_STRANGER_H

#include <poll.h>

#include "group/group.h"
#include "port.h"
#include "ranks.h"

/* ---- The protocol, spoken by a stranger ----------------------------------------------------- */

typedef struct hello {
    char magic[8];
    uint8_t nonce[16];
} hello;

typedef struct talk {
    hello rank, listener;
    struct {
        int32_t rank, ranks;
        char version[16];
        uint8_t run_proof[32], proof[32];
    } claim;
    struct {
        int32_t kind; /* 0: welcome, 1: another secret, 2: does not fit, 3: another run */
        char problem[140];
        uint8_t proof[32];
    } verdict;
} talk;

static const char run_id[] = "job 7", secret_text[] = "0b5c 40 digits nobody can guess 77aa";
static gd_group_options group; /* the group under test */

static inline int knock(void)
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
static inline bool take(int wire, void *data, size_t bytes)
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

static inline void give(int wire, const void *data, size_t bytes)
{
    send(wire, data, bytes, MSG_NOSIGNAL);
}

static inline void fill_hello(talk *t)
{
    memset(t, 0, sizeof *t);
    memcpy(t->rank.magic, "gdgroup3", 8);
    memset(t->rank.nonce, 'n', sizeof t->rank.nonce);
}

static inline void fill_claim(talk *t, const char *run, const char *secret, int rank, int ranks,
                              const char *version)
{
    uint8_t id[32], key[32];
    t->claim.rank = rank;
    t->claim.ranks = ranks;
    memcpy(t->claim.version, version, strlen(version));
    gd_hmac_sha256("run", 3, run, strlen(run), id);
    gd_hmac_sha256(id, sizeof id, secret, strlen(secret), key);
    gd_hmac_sha256(id, sizeof id, t, offsetof(talk, claim.run_proof), t->claim.run_proof);
    gd_hmac_sha256(key, sizeof key, t, offsetof(talk, claim.proof), t->claim.proof);
}

/* The kind of the verdict on a claim; -1: none came. The wire stays open. */
static inline int claim_as(int wire, int rank, int ranks, const char *version, const char *secret,
                           talk *t)
{
    fill_hello(t);
    give(wire, &t->rank, sizeof t->rank);
    if (!take(wire, &t->listener, sizeof t->listener)) return -1;
    fill_claim(t, group.run, secret, rank, ranks, version);
    give(wire, &t->claim, sizeof t->claim);
    return take(wire, &t->verdict, sizeof t->verdict) ? t->verdict.kind : -1;
}

static inline bool was_closed(int wire)
{
    char rest;
    struct pollfd one = {.fd = wire, .events = POLLIN};
    return poll(&one, 1, 8000) > 0 && recv(wire, &rest, 1, 0) <= 0;
}

/* ---- A group among strangers ---------------------------------------------------------------- */

static inline void be_there(gd_context *ctx, gd_group *g, int rank, outcome *mine)
{
    int own = rank, all[RANKS_MOST] = {0};
    gd_group_all_gather_bytes(g, &own, sizeof own, all);
    note(mine, gd_error(ctx) ? 0 : all[gd_group_ranks(g) - 1]);
}

enum { OPEN, WITH_ID, WITH_SECRET, MODES };

static inline void prepare(int ranks, int mode)
{
    ranks_prepare();
    group = (gd_group_options){.ranks = ranks, .timeout = 6};
    if (mode >= WITH_ID) snprintf(group.run, sizeof group.run, "%s", run_id);
    if (mode == WITH_SECRET) snprintf(group.secret, sizeof group.secret, "%s", secret_text);
    group.listener = ranks_listen(&group.port);
}

static inline pid_t start(gd_group_options o, int rank)
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

static inline pid_t start_rank_0(void)
{
    const pid_t child = start(group, 0);
    close(group.listener);
    group.listener = 0;
    return child;
}

/* Rank 1 of two joins at once, and all is well. */
static inline void come_together(pid_t rank_0)
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

/* ---- What a stranger does with a new connection --------------------------------------------- */

static inline void is_silent(int wire)
{
    (void)wire;
}

static inline void makes_noise(int wire)
{
    char noise[5000];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)(i * 7919 >> 3);
    give(wire, noise, sizeof noise);
}

static inline void says_half_a_hello(int wire)
{
    talk t;
    fill_hello(&t);
    give(wire, &t.rank, 20);
}

static inline void says_hello_and_is_reset(int wire)
{
    talk t;
    const struct linger now = {1, 0};
    fill_hello(&t);
    give(wire, &t.rank, sizeof t.rank);
    setsockopt(wire, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(wire);
}

#endif
