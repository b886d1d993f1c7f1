/* group_gate.c - how a rank identifies itself on a new connection, and how strangers are kept out.
 *
 * Any program can connect to a listener, so first both ends say who they are:
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
#include "group/group_gate.h"
#include "platform/clock.h"
#include "platform/process.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PENDING = 255, HELLO_SECONDS = 5 };

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

/* SILENT is never sent: for those who said nothing or something else. */
enum { ACCEPTED, SILENT = ACCEPTED, OTHER_SECRET, UNFIT, OTHER_RUN, VERDICTS };

typedef struct verdict {
    int32_t kind;
    char problem[GD_GATE_PROBLEM]; /* why it is UNFIT */
    uint8_t proof[GD_HMAC_BYTES];  /* zeros for another run or secret */
} verdict;

/* What was said on a connection, in this order. Without padding, since all of it is hashed. */
typedef struct handshake {
    hello rank, listener;
    claim claim;
    verdict verdict;
} handshake;

_Static_assert(sizeof(handshake) == 2 * 24 + 88 + 4 + GD_GATE_PROBLEM + 32,
               "a handshake has no padding");

/* ---- Ids and proofs ------------------------------------------------------------------------- */

/* `run` [bytes] is the run's id. */
gd_status gd_gate_open(gd_group *group, gd_gate *g, const void *run, size_t bytes)
{
    const char *secret = group->options.secret;
    *g = (gd_gate){0};
    gd_hmac_sha256("run", 3, run, bytes, g->run);
    gd_hmac_sha256(g->run, sizeof g->run, secret, strlen(secret), g->key);
    if (gd_os_random(g->seed, sizeof g->seed)) return GD_OK;
    return gd_fail(group->ctx, GD_ERROR_IO, "%s: the system has no random numbers: %s", group->who,
                   strerror(errno));
}

static void make_hello(gd_gate *g, hello *h)
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
    gd_gate *gate;
    int listener, *wire; /* [ranks]: of those that have joined */
    double next;         /* when to send a heartbeat again */
    int count;
    int rejected[VERDICTS];      /* by verdict */
    char unfit[GD_GATE_PROBLEM]; /* why the last one was */
    pending pending[MOST_PENDING];
} admission;

void gd_group_notice(gd_group *group, const char *sentence)
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
    gd_group_notice(l->group, text);
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
    l->rejected[SILENT]++;
    drop(l, oldest);
}

/* Whether the ranks get their control connections, which they keep until all have them. In a mesh a rank that has
 * joined may be done with the group before others have. */
static bool keeps_control(const admission *l)
{
    return l->wire == l->group->control;
}

/* Whether a rank has joined. One whose control connection is gone may join again. */
static bool has_joined(const admission *l, int rank)
{
    char next[1];
    int *wire = &l->wire[rank];
    if (keeps_control(l) && *wire >= 0 && gd_wire_peek(*wire, next, sizeof next) == GD_WIRE_GONE)
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
static bool fits(const admission *l, const claim *c, char problem[GD_GATE_PROBLEM])
{
    const gd_group *group = l->group;
    if (strncmp(c->version, gd_version(), sizeof c->version) != 0) {
        snprintf(problem, GD_GATE_PROBLEM, "rank %d runs gradus %.15s, rank %d runs %s", c->rank,
                 c->version, group->rank, gd_version());
    } else if (c->ranks != group->ranks) {
        snprintf(problem, GD_GATE_PROBLEM, "rank %d was started with %d ranks, rank %d with %d",
                 c->rank, c->ranks, group->rank, group->ranks);
    } else if (c->rank <= group->rank || c->rank >= group->ranks) {
        snprintf(problem, GD_GATE_PROBLEM, "rank %d is not between %d and %d", c->rank,
                 group->rank + 1, group->ranks - 1);
    } else if (has_joined(l, c->rank)) {
        snprintf(problem, GD_GATE_PROBLEM, "rank %d connected twice", c->rank);
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
    const size_t whole = sizeof t->rank + (greeted ? sizeof t->claim : 0);
    char *to = (char *)t + g->got + (greeted ? sizeof t->listener : 0);
    const ptrdiff_t moved = gd_wire_read(g->wire, to, whole - g->got);
    g->got += moved > 0 ? (size_t)moved : 0;
    if (moved < 0 || (g->got >= sizeof t->rank.magic && t->rank.magic != MAGIC)) {
        l->rejected[SILENT]++;
        return false;
    }
    if (g->got < whole) return true;
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
    static const char *const who[VERDICTS] = {[SILENT] = "that said nothing or something else",
                                              [OTHER_SECRET] = "without the secret",
                                              [UNFIT] = "that did not fit",
                                              [OTHER_RUN] = "of another run"};
    for (int i = VERDICTS - 1; i >= 0; i--) {
        if (l->rejected[i])
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%d %s",
                             strchr(text, ';') ? ", " : "; rejected: ", l->rejected[i], who[i]);
    }
    if (l->rejected[UNFIT]) snprintf(text + used, sizeof text - (size_t)used, " (%s)", l->unfit);
    return gd_group_abort(l->group, first_missing(l), text);
}

/* Sends heartbeats to the ranks that have joined, or looks whether one of them has failed. */
static gd_status keep_alive(admission *l)
{
    const double now = gd_os_now(), often = l->group->timeout / 4;
    if (now < l->next) return GD_OK;
    l->next = now + (keeps_control(l) ? often : fmin(often, 0.25));
    if (!keeps_control(l)) return gd_group_poll(l->group, 0);
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
    /* From the end, since the last one replaces one that is dropped. */
    for (int i = l->count - 1; i >= 0; i--) {
        const bool late = l->pending[i].deadline < now;
        if (late) l->rejected[SILENT]++;
        if (late || (any && ready[1 + i] && !receive_from(l, &l->pending[i]))) drop(l, i);
    }
    if (any && ready[0]) accept_new(l);
}

/* Waits until every higher rank has a wire. */
gd_status gd_gate_admit(gd_group *group, gd_gate *g, int listener, int *wire, double deadline)
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

static gd_outcome rejected_because(char problem[GD_GATE_PROBLEM], const char *why)
{
    snprintf(problem, GD_GATE_PROBLEM, "%s", why);
    return GD_GATE_REJECTED;
}

/* Identifies this rank on a new connection. GD_GATE_LOST: the connection was closed, which may happen if there
 * are many strangers. */
static gd_outcome introduce(const gd_group *group, gd_gate *g, int wire, double deadline,
                            char problem[GD_GATE_PROBLEM])
{
    handshake t = {.claim = {.rank = group->rank, .ranks = group->ranks}};
    make_hello(g, &t.rank);
    if (!gd_wire_send(wire, &t.rank, sizeof t.rank, deadline) ||
        !gd_wire_receive(wire, &t.listener, sizeof t.listener.magic, deadline))
        return GD_GATE_LOST;
    if (t.listener.magic != MAGIC)
        return rejected_because(problem, "what listens there is not gradus, or of another version");
    if (!gd_wire_receive(wire, t.listener.nonce, sizeof t.listener - sizeof t.listener.magic,
                         deadline))
        return GD_GATE_LOST;
    /* TCP may connect a port without a listener to itself. */
    if (!memcmp(t.listener.nonce, t.rank.nonce, sizeof t.rank.nonce)) return GD_GATE_LOST;
    snprintf(t.claim.version, sizeof t.claim.version, "%s", gd_version());
    prove(g->run, &t, t.claim.run_proof, t.claim.run_proof);
    prove(g->key, &t, t.claim.proof, t.claim.proof);
    if (!gd_wire_send(wire, &t.claim, sizeof t.claim, deadline) ||
        !gd_wire_receive(wire, &t.verdict, sizeof t.verdict, deadline))
        return GD_GATE_LOST;
    if (t.verdict.kind == OTHER_RUN)
        return rejected_because(problem, "what listens there is of another run");
    if (t.verdict.kind == OTHER_SECRET || !proved(g->key, &t, t.verdict.proof))
        return rejected_because(problem, "what listens there has another secret");
    if (t.verdict.kind == ACCEPTED) return GD_GATE_JOINED;
    t.verdict.problem[GD_GATE_PROBLEM - 1] = '\0';
    return rejected_because(problem, t.verdict.problem);
}

/* Connects to a listener at one of several addresses, as often as it takes until the deadline: the
 * other end may not listen yet. GD_GATE_LOST also with the error set. */
gd_outcome gd_gate_join(gd_group *group, gd_gate *g, const gd_wire_address *at, int count,
                        double deadline, int *wire, char problem[GD_GATE_PROBLEM])
{
    gd_outcome got = GD_GATE_LOST;
    for (int i = 0; got == GD_GATE_LOST && !gd_failed(group->ctx); i++) {
        if (i > 0 && gd_os_now() >= deadline) break;
        *wire = gd_wire_connect(&at[i % count], fmin(deadline, gd_os_now() + 2));
        if (*wire < 0) {
            snprintf(problem, GD_GATE_PROBLEM, "%s", strerror(errno));
        } else {
            got = introduce(group, g, *wire, deadline, problem);
            if (got == GD_GATE_LOST)
                snprintf(problem, GD_GATE_PROBLEM, "what listens there %s", gd_wire_why());
        }
        if (got == GD_GATE_JOINED) break;
        gd_wire_close(wire);
        /* In a mesh the lower rank may have failed meanwhile. */
        if (wire != group->control) gd_group_poll(group, 0);
        gd_os_nap(1e-3 * (i < 4 ? 5 << i : 80));
    }
    return got;
}
