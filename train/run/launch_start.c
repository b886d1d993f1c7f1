/* launch_start.c - see launch_start.h. */
#include "launch_start.h"
#include "console.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "platform/socket.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Starting ------------------------------------------------------------------------------- */

/* A secret that only the processes that inherit it know. */
static bool make_secret(gd_group_options *member)
{
    unsigned char random[32];
    if (!gd_os_random(random, sizeof random)) return false;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(member->secret + 2 * i, 3, "%02x", random[i]);
    return true;
}

/* Divides the cores among the processes of a run on the CPU. */
static void share_threads(train_options *o, int ranks)
{
    const int each = gd_os_processors() / ranks;
    if (o->base.device == GD_CPU && o->base.threads == 0) o->base.threads = each > 0 ? each : 1;
}

/* ---- Waiting -------------------------------------------------------------------------------- */

typedef struct children {
    int64_t *child; /* [count]; 0: the process has ended */
    int count, left;
    int status;     /* of the first that failed, else 0 */
    bool signalled; /* it is that of one that a signal ended */
    bool ending;    /* the others were sent signals because one had failed */
    double failed;  /* when the first one failed (gd_os_now), else 0 */
} children;

static void for_all(const children *c, void (*act)(int64_t child))
{
    for (int i = 0; i < c->count; i++) {
        if (c->child[i] > 0) act(c->child[i]);
    }
}

/* A rank that fails because another was ended by a signal may be reaped before that one: a process
 * closes its connections before it counts as ended. So the signal is taken for the cause even if
 * another rank has failed before. */
static void note_end(children *c, int rank, int status, int signal)
{
    const bool cause = signal && !c->ending && !c->signalled;
    c->child[rank] = 0;
    c->left--;
    if (cause) {
        console_message("rank %d was ended by signal %d (%s)", rank, signal,
                        gd_os_signal_name(signal));
        c->signalled = true;
    }
    if (status == 0) return;
    if (c->status == 0 || cause) c->status = status;
    if (c->failed == 0) c->failed = gd_os_now();
}

static void reap(children *c)
{
    int status, signal;
    for (int64_t child; c->left > 0 && (child = gd_os_reap(&status, &signal)) > 0;) {
        for (int i = 0; i < c->count; i++) {
            if (c->child[i] == child) note_end(c, i, status, signal);
        }
    }
}

/* When a rank has failed, the ranks of its group get an error, print it, and exit. Ranks that have
 * not connected yet would wait for it, so they get SIGTERM, and later SIGKILL. */
static int wait_for_all(children *c, double timeout)
{
    while (c->left > 0) {
        const int number = gd_os_wait_signal();
        for (int i = 0; number && i < c->count; i++) {
            if (c->child[i] > 0) gd_os_signal(c->child[i], number);
        }
        reap(c);
        const double since = c->failed > 0 ? gd_os_now() - c->failed : 0;
        if (since <= 2) continue;
        c->ending = true;
        for_all(c, since > 4 + fmin(timeout, 10) ? gd_os_kill : gd_os_ask_to_stop);
    }
    return c->status;
}

/* ---- All of them --------------------------------------------------------------------------- */

launch_role launch_start(train_options *o, int ranks, gd_group_options *member, int *status)
{
    children c = {.child = calloc((size_t)ranks, sizeof *c.child)};
    *member = (gd_group_options){.ranks = ranks};
    member->listener = gd_wire_listen_here(&member->port);
    *status = EXIT_FAILURE;
    if (!c.child || member->listener < 0 || !make_secret(member)) {
        console_message("cannot start %d processes: %s", ranks, strerror(errno));
        gd_wire_close(&member->listener);
        free(c.child);
        return LAUNCH_STARTER;
    }
    share_threads(o, ranks);
    gd_os_hold_signals();
    for (; c.count < ranks; c.count++) {
        c.child[c.count] = gd_os_fork();
        if (c.child[c.count] < 0) {
            console_message("cannot start rank %d: %s", c.count, strerror(errno));
            c.ending = true;
            for_all(&c, gd_os_kill);
            break;
        }
        if (c.child[c.count] > 0) continue;
        member->rank = member->local_rank = c.count;
        if (c.count > 0) {
            gd_wire_close(&member->listener);
            member->listener = 0;
        }
        free(c.child);
        return LAUNCH_MEMBER;
    }
    gd_wire_close(&member->listener);
    c.left = c.count;
    if (c.count < ranks) c.status = EXIT_FAILURE;
    *status = wait_for_all(&c, o->timeout);
    free(c.child);
    return LAUNCH_STARTER;
}
