/* group_rendezvous.c - how the ranks of a group connect, and how strangers are kept out.
 *
 * A rank connects to a listener: that of rank 0, and in a mesh that of each lower rank. Any program can
 * do the same, so first both ends say who they are:
 *
 *     rank -> listener   hello: a random number
 *     listener -> rank   hello
 *     rank -> listener   claim: its number, the number of ranks, its version; and two proofs
 *     listener -> rank   verdict: accepted, or why not; and a proof
 *
 * A proof is the HMAC of everything said so far, by the run's id or by that and the group's secret:
 * neither is ever sent, and a proof is worth nothing on another connection. The listener compares the
 * claim's proofs before it believes anything else, and proves nothing to those who have not: an id such
 * as a job's number could be found from a proof. It rejects whoever does not fit and goes on waiting:
 * only its deadline ends the group.
 *
 * Strangers cost little: the listener serves all connections at once, and one in which nothing is proved
 * yet, a pending one, has a fixed size and HELLO_SECONDS. If there are too many, the oldest is closed; a
 * rank whose connection is closed connects again. */
#include "group/group.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "platform/socket.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PENDING = 255, HELLO_SECONDS = 5, PROBLEM = 140 };

static const uint64_t MAGIC = 0x3370756f72676467; /* "gdgroup3" */

typedef struct hello {
    uint64_t magic;
    uint8_t nonce[16];
} hello;

typedef struct claim {
    int32_t rank, ranks;
    char version[16];
    uint8_t run_proof[GD_HMAC_BYTES], proof[GD_HMAC_BYTES];
} claim;

enum { ACCEPTED, OTHER_SECRET, UNFIT, OTHER_RUN, VERDICTS };

typedef struct verdict {
    int32_t kind;
    char problem[PROBLEM];        /* why it is UNFIT */
    uint8_t proof[GD_HMAC_BYTES]; /* zeros for another run or secret */
} verdict;

/* What was said on a connection, in this order. Without padding, since all of it is hashed. */
typedef struct handshake {
    hello rank, listener;
    claim claim;
    verdict verdict;
} handshake;

_Static_assert(sizeof(handshake) == 2 * 24 + 88 + 4 + PROBLEM + 32, "a handshake has no padding");

/* What proofs are made with, and random numbers. */
typedef struct gate {
    uint8_t run[GD_HMAC_BYTES], key[GD_HMAC_BYTES]; /* keys: of the id; of the id and the secret */
    uint8_t seed[GD_HMAC_BYTES];                    /* of the random numbers, */
    uint64_t drawn;                                 /* which are counted */
} gate;

/* ---- Ids and proofs ------------------------------------------------------------------------- */

/* `run` [bytes] is the run's id. */
static gd_status open_gate(gd_group *group, gate *g, const void *run, size_t bytes)
{
    const char *secret = group->options.secret;
    *g = (gate){0};
    gd_hmac_sha256("run", 3, run, bytes, g->run);
    gd_hmac_sha256(g->run, sizeof g->run, secret, strlen(secret), g->key);
    if (gd_os_random(g->seed, sizeof g->seed)) return GD_OK;
    return gd_fail(group->ctx, GD_ERROR_IO, "%s: the system has no random numbers: %s", group->who,
                   strerror(errno));
}

static void make_hello(gate *g, hello *h)
{
    uint8_t random[GD_HMAC_BYTES];
    h->magic = MAGIC;
    g->drawn++;
    gd_hmac_sha256(g->seed, sizeof g->seed, &g->drawn, sizeof g->drawn, random);
    memcpy(h->nonce, random, sizeof h->nonce);
}

/* A proof covers the handshake before it: that of a verdict also the claim. */
static void prove(const uint8_t key[GD_HMAC_BYTES], const handshake *t, const uint8_t *before,
                  uint8_t proof[GD_HMAC_BYTES])
{
    gd_hmac_sha256(key, GD_HMAC_BYTES, t, (size_t)(before - (const uint8_t *)t), proof);
}

/* Takes the same time wherever they differ. */
static bool same(const uint8_t a[GD_HMAC_BYTES], const uint8_t b[GD_HMAC_BYTES])
{
    unsigned difference = 0;
    for (int i = 0; i < GD_HMAC_BYTES; i++) difference |= a[i] ^ b[i];
    return difference == 0;
}

static bool proved(const uint8_t key[GD_HMAC_BYTES], const handshake *t,
                   const uint8_t proof[GD_HMAC_BYTES])
{
    uint8_t wanted[GD_HMAC_BYTES];
    prove(key, t, proof, wanted);
    return same(proof, wanted);
}

/* ---- The listener's end --------------------------------------------------------------------- */

/* A connection in which nothing is proved yet. */
typedef struct pending {
    int wire;
    double deadline;
    size_t got; /* bytes of the rank's hello and claim */
    handshake handshake;
} pending;

typedef struct admission {
    gd_group *group;
    gate *gate;
    int listener, *wire; /* [ranks]: of those that have joined */
    double next;         /* when to send a heartbeat again */
    int count;
    int rejected[VERDICTS], others; /* by verdict; those without one */
    char unfit[PROBLEM];            /* why the last one was */
    pending pending[MOST_PENDING];
} admission;

static void notice(gd_group *group, const char *sentence)
{
    const gd_group_options *o = &group->options;
    if (o->notice) o->notice(o->notice_user, sentence);
}

/* Counts a rejection; the user is told of the first one for each reason. */
static void reject(admission *l, pending *g, int kind, const char *why)
{
    char text[300];
    const gd_wire_address from = gd_wire_there(g->wire);
    g->handshake.verdict.kind = kind;
    if (l->rejected[kind]++ > 0) return;
    snprintf(text, sizeof text, "%s: a connection from %s is rejected: %s", l->group->who,
             gd_wire_name(&from).text, why);
    notice(l->group, text);
}

/* Closes the connection, unless it is a rank's by now. */
static void drop(admission *l, int index)
{
    gd_wire_close(&l->pending[index].wire);
    l->pending[index] = l->pending[--l->count];
}

static void drop_oldest(admission *l)
{
    int oldest = 0;
    for (int i = 1; i < l->count; i++) {
        if (l->pending[i].deadline < l->pending[oldest].deadline) oldest = i;
    }
    l->others++;
    drop(l, oldest);
}

/* Whether the ranks get their lines, which they keep until all have them. In a mesh a rank that has
 * joined may be done with the group before others have. */
static bool keeps_lines(const admission *l)
{
    return l->wire == l->group->line;
}

/* Whether a rank has joined. One whose line is gone may join again. */
static bool has_joined(const admission *l, int rank)
{
    char next[1];
    int *wire = &l->wire[rank];
    if (keeps_lines(l) && *wire >= 0 && gd_wire_peek(*wire, next, sizeof next) == GD_WIRE_GONE)
        gd_wire_close(wire);
    return *wire >= 0;
}

static int first_missing(const admission *l)
{
    int rank = l->group->rank + 1;
    while (rank < l->group->ranks && has_joined(l, rank)) rank++;
    return rank;
}

/* Whether a claim is that of a rank that is missing; if not, `problem` says why. */
static bool fits(const admission *l, const claim *c, char problem[PROBLEM])
{
    const gd_group *group = l->group;
    if (strncmp(c->version, gd_version(), sizeof c->version) != 0) {
        snprintf(problem, PROBLEM, "rank %d runs gradus %.15s, rank %d runs %s", c->rank,
                 c->version, group->rank, gd_version());
    } else if (c->ranks != group->ranks) {
        snprintf(problem, PROBLEM, "rank %d was started with %d ranks, rank %d with %d", c->rank,
                 c->ranks, group->rank, group->ranks);
    } else if (c->rank <= group->rank || c->rank >= group->ranks) {
        snprintf(problem, PROBLEM, "rank %d is not between %d and %d", c->rank, group->rank + 1,
                 group->ranks - 1);
    } else if (has_joined(l, c->rank)) {
        snprintf(problem, PROBLEM, "rank %d connected twice", c->rank);
    }
    return !problem[0];
}

static void decide(admission *l, pending *g)
{
    handshake *t = &g->handshake;
    verdict *v = &t->verdict;
    if (!proved(l->gate->run, t, t->claim.run_proof)) {
        reject(l, g, OTHER_RUN, "it is of another run");
    } else if (!proved(l->gate->key, t, t->claim.proof)) {
        reject(l, g, OTHER_SECRET, "it does not know the secret of this run");
    } else {
        if (!fits(l, &t->claim, v->problem)) reject(l, g, UNFIT, v->problem);
        if (v->kind == UNFIT) memcpy(l->unfit, v->problem, sizeof l->unfit);
        prove(l->gate->key, t, v->proof, v->proof);
    }
    if (!gd_wire_send(g->wire, v, sizeof *v, 0) || v->kind != ACCEPTED) return;
    l->wire[t->claim.rank] = g->wire;
    g->wire = -1;
}

/* Reads what has arrived on a pending connection; false if it is no longer pending. */
static bool receive_from(admission *l, pending *g)
{
    handshake *t = &g->handshake;
    const bool greeted = g->got >= sizeof t->rank;
    const size_t before = greeted ? sizeof t->rank : 0;
    const size_t whole = greeted ? sizeof t->claim : sizeof t->rank;
    char *target = greeted ? (char *)&t->claim : (char *)&t->rank;
    const ptrdiff_t moved =
        gd_wire_read(g->wire, target + g->got - before, before + whole - g->got);
    g->got += moved > 0 ? (size_t)moved : 0;
    if (moved < 0 || (g->got >= sizeof t->rank.magic && t->rank.magic != MAGIC)) {
        l->others++;
        return false;
    }
    if (g->got < before + whole) return true;
    if (greeted) {
        decide(l, g);
        return false;
    }
    make_hello(l->gate, &t->listener);
    return gd_wire_send(g->wire, &t->listener, sizeof t->listener, 0);
}

/* Accepts new connections. If descriptors or memory run out, the oldest pending one is closed; without
 * any, that is an error. */
static gd_status accept_new(admission *l)
{
    enum { AT_ONCE = 64 };
    const double now = gd_os_now();
    for (int i = 0; i < AT_ONCE; i++) {
        const int wire = gd_wire_accept(l->listener);
        const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (wire < 0 && !full) break;
        if (wire < 0 && l->count == 0) {
            return gd_fail(l->group->ctx, GD_ERROR_IO,
                           "%s: rank %d cannot accept connections for %s:%d: %s", l->group->who,
                           l->group->rank, l->group->options.host, l->group->options.port,
                           strerror(errno));
        }
        if (wire < 0 || l->count == MOST_PENDING) drop_oldest(l);
        if (wire < 0) continue;
        l->pending[l->count] =
            (pending){.wire = wire, .deadline = now + fmin(HELLO_SECONDS, l->group->timeout)};
        if (!receive_from(l, &l->pending[l->count++])) drop(l, l->count - 1);
    }
    return GD_OK;
}

static gd_status fail_for_missing(const admission *l)
{
    char text[500];
    const gd_group *group = l->group;
    int there = group->rank + 1;
    for (int i = group->rank + 1; i < group->ranks; i++) there += l->wire[i] >= 0;
    int used = snprintf(text, sizeof text, "has not connected within %g s (%d of %d have)",
                        group->timeout, there, group->ranks);
    const struct {
        int count;
        const char *what;
    } rejected[] = {{l->rejected[OTHER_RUN], "of another run"},
                    {l->rejected[OTHER_SECRET], "without the secret"},
                    {l->rejected[UNFIT], "that did not fit"},
                    {l->others, "that said nothing or something else"}};
    for (int i = 0; i < 4; i++) {
        if (rejected[i].count == 0) continue;
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%d %s",
                         strchr(text, ';') ? ", " : "; rejected: ", rejected[i].count,
                         rejected[i].what);
    }
    if (l->rejected[UNFIT]) snprintf(text + used, sizeof text - (size_t)used, " (%s)", l->unfit);
    return gd_group_abort(l->group, first_missing(l), text);
}

/* Sends heartbeats to the ranks that have joined, or looks whether one of them has failed. */
static gd_status keep_alive(admission *l)
{
    const double now = gd_os_now(), often = l->group->timeout / 4;
    if (now < l->next) return GD_OK;
    l->next = now + (keeps_lines(l) ? often : fmin(often, 0.25));
    if (!keeps_lines(l)) return gd_group_poll(l->group, 0);
    gd_group_heartbeat(l->group);
    return GD_OK;
}

/* Waits until there is something to do. */
static void serve(admission *l, double deadline)
{
    int wires[1 + MOST_PENDING] = {l->listener};
    bool ready[1 + MOST_PENDING];
    const double now = gd_os_now();
    const double until = fmin(fmin(deadline, l->next), l->count ? now + 0.1 : HUGE_VAL);
    for (int i = 0; i < l->count; i++) wires[1 + i] = l->pending[i].wire;
    const bool any = gd_wire_wait(wires, 1 + l->count, until, ready);
    for (int i = l->count - 1; i >= 0;
         i--) { /* from the end, since the last one replaces one that is dropped */
        const bool late = l->pending[i].deadline < now;
        if (late) l->others++;
        if (late || (any && ready[1 + i] && !receive_from(l, &l->pending[i]))) drop(l, i);
    }
    if (any && ready[0]) accept_new(l);
}

/* Waits until every higher rank has a wire. */
static gd_status wait_for_ranks(gd_group *group, gate *g, int listener, int *wire, double deadline)
{
    admission *l = gd_host_allocate(group->ctx, sizeof *l, "a group");
    if (!l) return group->ctx->status;
    memset(l, 0, sizeof *l); /* a literal would be on the stack, unless an optimizer runs */
    l->group = group, l->gate = g, l->listener = listener, l->wire = wire;
    l->next = gd_os_now() + group->timeout / 4;
    while (first_missing(l) < group->ranks && !gd_failed(group->ctx)) {
        if (gd_os_now() >= deadline)
            fail_for_missing(l);
        else if (!keep_alive(l))
            serve(l, deadline);
    }
    while (l->count > 0) drop(l, 0);
    gd_host_release(group->ctx, l, sizeof *l);
    return gd_error_status(group->ctx);
}

/* ---- The rank's end ------------------------------------------------------------------------- */

typedef enum outcome { JOINED, WAS_REJECTED, LOST } outcome;

static outcome rejected_because(char problem[PROBLEM], const char *why)
{
    snprintf(problem, PROBLEM, "%s", why);
    return WAS_REJECTED;
}

/* Identifies this rank on a new connection. LOST: the connection was closed, which may happen if there
 * are many strangers. */
static outcome introduce(const gd_group *group, gate *g, int wire, double deadline,
                         char problem[PROBLEM])
{
    handshake t = {.claim = {.rank = group->rank, .ranks = group->ranks}};
    make_hello(g, &t.rank);
    if (!gd_wire_send(wire, &t.rank, sizeof t.rank, deadline) ||
        !gd_wire_receive(wire, &t.listener, sizeof t.listener.magic, deadline))
        return LOST;
    if (t.listener.magic != MAGIC)
        return rejected_because(problem, "what listens there is not gradus, or of another version");
    if (!gd_wire_receive(wire, t.listener.nonce, sizeof t.listener - sizeof t.listener.magic,
                         deadline))
        return LOST;
    /* TCP may connect a port without a listener to itself. */
    if (!memcmp(t.listener.nonce, t.rank.nonce, sizeof t.rank.nonce)) return LOST;
    snprintf(t.claim.version, sizeof t.claim.version, "%s", gd_version());
    prove(g->run, &t, t.claim.run_proof, t.claim.run_proof);
    prove(g->key, &t, t.claim.proof, t.claim.proof);
    if (!gd_wire_send(wire, &t.claim, sizeof t.claim, deadline) ||
        !gd_wire_receive(wire, &t.verdict, sizeof t.verdict, deadline))
        return LOST;
    if (t.verdict.kind == OTHER_RUN)
        return rejected_because(problem, "what listens there is of another run");
    if (t.verdict.kind == OTHER_SECRET || !proved(g->key, &t, t.verdict.proof))
        return rejected_because(problem, "what listens there has another secret");
    if (t.verdict.kind == ACCEPTED) return JOINED;
    t.verdict.problem[PROBLEM - 1] = '\0';
    return rejected_because(problem, t.verdict.problem);
}

/* Connects to a listener at one of several addresses, as often as it takes until the deadline: the
 * other end may not listen yet. LOST also with the error set. */
static outcome join(gd_group *group, gate *g, const gd_wire_address *at, int count, double deadline,
                    int *wire, char problem[PROBLEM])
{
    outcome got = LOST;
    for (int i = 0; got == LOST && !gd_failed(group->ctx); i++) {
        if (i > 0 && gd_os_now() >= deadline) break;
        *wire = gd_wire_connect(&at[i % count], fmin(deadline, gd_os_now() + 2));
        if (*wire < 0) {
            snprintf(problem, PROBLEM, "%s", strerror(errno));
        } else {
            got = introduce(group, g, *wire, deadline, problem);
            if (got == LOST) snprintf(problem, PROBLEM, "what listens there %s", gd_wire_why());
        }
        if (got == JOINED) break;
        gd_wire_close(wire);
        /* In a mesh the lower rank may have failed meanwhile. */
        if (wire != group->line) gd_group_poll(group, 0);
        gd_os_nap(1e-3 * (i < 4 ? 5 << i : 80));
    }
    return got;
}

/* ---- The lines ------------------------------------------------------------------------------ */

static gd_status refuse(const gd_group *group, const char *what, const char *reason)
{
    const gd_group_options *o = &group->options;
    return gd_fail(group->ctx, GD_ERROR_IO, "%s: rank %d cannot %s %s:%d: %s", group->who,
                   group->rank, what, o->host, o->port, reason);
}

static gd_status find(const gd_group *group, gd_wire_address at[GD_WIRE_ADDRESSES], int *count)
{
    const gd_group_options *o = &group->options;
    const char *why = gd_wire_find(o->host, o->port, at, count);
    return why ? refuse(group, "find", why) : GD_OK;
}

/* Listens at the host's own address, so that no other interface is open: of several, at that of
 * IPv4, which every rank can reach. If the address is not of this host, or is a loopback address
 * that other hosts cannot reach, listens on all interfaces. */
static gd_status listen_at_host(gd_group *group)
{
    const gd_group_options *o = &group->options;
    gd_wire_address at[GD_WIRE_ADDRESSES];
    int count, first = 0;
    char text[500];
    if (find(group, at, &count)) return group->ctx->status;
    while (first < count && at[first].any.sa_family != AF_INET) first++;
    const gd_wire_address *own = &at[first < count ? first : 0];
    const bool hidden = o->several_hosts && gd_wire_is_loopback(own);
    errno = EADDRNOTAVAIL;
    if (!hidden) group->listener = gd_wire_listen(own);
    if (group->listener < 0 && errno == EADDRNOTAVAIL) {
        group->listener = gd_wire_listen_all(o->port);
        snprintf(text, sizeof text, "%s: rank 0 listens at port %d of all interfaces: %.255s is %s",
                 group->who, o->port, o->host,
                 hidden ? "a loopback address, and the ranks are on several hosts"
                        : "not an address of this host");
        if (group->listener >= 0) notice(group, text);
    }
    return group->listener < 0 ? refuse(group, "listen at", strerror(errno)) : GD_OK;
}

static void warn_if_open(gd_group *group)
{
    const gd_group_options *o = &group->options;
    char text[300];
    if (o->secret[0]) return;
    snprintf(text, sizeof text,
             "%s: the group has %s: any program that can reach port %d of rank 0%s can join it "
             "(GRADUS_GROUP_SECRET keeps strangers out)",
             group->who, o->run[0] ? "an id but no secret" : "neither an id nor a secret", o->port,
             o->run[0] ? " and knows or guesses the id" : "");
    notice(group, text);
}

gd_status gd_rendezvous_meet(gd_group *group)
{
    const gd_group_options *o = &group->options;
    const double deadline = gd_os_now() + group->timeout;
    gd_wire_address at[GD_WIRE_ADDRESSES];
    char problem[PROBLEM];
    int count;
    gate g;
    if (open_gate(group, &g, o->run, strlen(o->run))) return group->ctx->status;
    if (group->rank == 0) {
        if (group->listener < 0 && listen_at_host(group)) return group->ctx->status;
        warn_if_open(group);
        wait_for_ranks(group, &g, group->listener, group->line, deadline);
        gd_wire_close(&group->listener);
        return gd_error_status(group->ctx);
    }
    if (find(group, at, &count)) return group->ctx->status;
    const outcome got = join(group, &g, at, count, deadline, group->line, problem);
    if (got == JOINED) return GD_OK;
    return refuse(group, got == LOST ? "reach rank 0 at" : "join rank 0 at", problem);
}

/* ---- A mesh --------------------------------------------------------------------------------- */

/* The address at which a rank listens, as rank 0 sees it. A rank on the host of rank 0 has the address
 * by which the others reach rank 0. */
typedef struct endpoint {
    gd_wire_address at;
    int32_t beside_rank_0;
} endpoint;

/* Whether all ranks are on the host of rank 0. */
static bool all_beside(gd_group *group)
{
    int32_t beside = true;
    for (int rank = 1; group->rank == 0 && rank < group->ranks; rank++) {
        const gd_wire_address a = gd_wire_there(group->line[rank]);
        beside = beside && gd_wire_is_loopback(&a);
    }
    gd_group_broadcast_within(group, &beside, sizeof beside);
    return beside != 0;
}

/* Listens on the interface by which the lines go, if it is a single one. */
static int listen_beside(const gd_group *group, bool all_here)
{
    gd_wire_address own = {0};
    for (int i = 0; i < group->ranks; i++) {
        if (group->line[i] < 0) continue;
        gd_wire_address a = gd_wire_here(group->line[i]);
        if (!all_here && gd_wire_is_loopback(&a)) continue;
        gd_wire_set_port(&a, 0);
        if (!gd_wire_is_address(&own)) own = a;
        if (memcmp(&a, &own, sizeof a) != 0) return gd_wire_listen_all(0);
    }
    const int wire = gd_wire_is_address(&own) ? gd_wire_listen(&own) : -1;
    return wire >= 0 ? wire : gd_wire_listen_all(0);
}

/* The addresses at which this rank can reach the others, all [ranks]; ports [ranks] is scratch. */
static gd_status find_endpoints(gd_group *group, int listener, endpoint *all, int32_t *ports)
{
    const gd_wire_address here = gd_wire_here(listener);
    const int32_t mine = gd_wire_port(&here);
    if (gd_group_all_gather_within(group, &mine, sizeof mine, ports)) return group->ctx->status;
    for (int rank = 1; group->rank == 0 && rank < group->ranks; rank++) {
        all[rank].at = gd_wire_there(group->line[rank]);
        all[rank].beside_rank_0 = gd_wire_is_loopback(&all[rank].at);
    }
    gd_group_broadcast_within(group, all, (size_t)group->ranks * sizeof *all);
    const gd_wire_address first = group->rank > 0 ? gd_wire_there(group->line[0]) : here;
    for (int rank = 0; rank < group->ranks && !gd_failed(group->ctx); rank++) {
        if (rank == 0 || (group->rank > 0 && all[rank].beside_rank_0)) all[rank].at = first;
        if (ports[rank] < 1 || ports[rank] > 65535 || !gd_wire_is_address(&all[rank].at))
            return gd_group_abort(group, rank, "has no address");
        gd_wire_set_port(&all[rank].at, ports[rank]);
    }
    return gd_error_status(group->ctx);
}

/* Connects to the lower ranks, and waits for the higher ones. */
static gd_status join_all(gd_group *group, gate *g, int listener, const endpoint *all, int *peers)
{
    const double deadline = gd_os_now() + group->timeout;
    char problem[PROBLEM], text[PROBLEM + 30];
    for (int rank = 0; rank < group->rank; rank++) {
        if (join(group, g, &all[rank].at, 1, deadline, &peers[rank], problem) == JOINED) continue;
        if (gd_failed(group->ctx)) return group->ctx->status;
        snprintf(text, sizeof text, "cannot be reached: %s", problem);
        return gd_group_abort(group, rank, text);
    }
    return wait_for_ranks(group, g, listener, peers, deadline);
}

/* The id of a mesh is a random one, which rank 0 draws: who has seen only the run's id cannot join
 * it. */
gd_status gd_rendezvous_mesh(gd_group *group, int *peers)
{
    const size_t ranks = (size_t)group->ranks, bytes = ranks * (sizeof(endpoint) + sizeof(int32_t));
    uint8_t id[GD_HMAC_BYTES];
    gate g;
    for (int rank = 0; rank < group->ranks; rank++) peers[rank] = -1;
    if (open_gate(group, &g, NULL, 0)) return group->ctx->status;
    memcpy(id, g.seed, sizeof id);
    if (gd_group_broadcast_within(group, id, sizeof id) || open_gate(group, &g, id, sizeof id))
        return group->ctx->status;
    int listener = listen_beside(group, all_beside(group));
    endpoint *all = gd_host_allocate(group->ctx, bytes, "a group");
    if (listener < 0) refuse(group, "listen beside", strerror(errno));
    if (all && listener >= 0 &&
        !find_endpoints(group, listener, all, (int32_t *)(void *)(all + ranks)))
        join_all(group, &g, listener, all, peers);
    gd_wire_close(&listener);
    gd_host_release(group->ctx, all, bytes);
    return gd_error_status(group->ctx);
}
