/* launch_start.c - see launch_start.h. */
#include "launch_start.h"
#include "console.h"
#include "folder.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/process.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Starting ------------------------------------------------------------------------------- */

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

static bool remove_file(void *user, int in, const char *name)
{
    (void)user;
    return gd_os_remove(in, name);
}

/* Removes the folder that was made for the ranks to meet in, and what ranks that failed
 * have left. */
static void remove_folder(const char *path)
{
    open_folder in;
    if (!folder_open(&in, path, false)) return;
    gd_os_each_name(in.descriptor, remove_file, NULL);
    folder_close(&in);
    gd_os_remove_folder(gd_os_here, path);
}

launch_role launch_start(train_options *o, int ranks, gd_group_options *member, int *status)
{
    static char made[FOLDER_PATH]; /* as long as the process lives, whose ranks have its name */
    children c = {.child = calloc((size_t)ranks, sizeof *c.child)};
    const bool meets_in_out = o->out && !o->dry_run;
    *member = (gd_group_options){.ranks = ranks, .folder = meets_in_out ? o->out : made};
    *status = EXIT_FAILURE;
    if (!c.child || (!meets_in_out && !gd_os_make_temporary(made, sizeof made))) {
        console_message("cannot start %d processes: %s", ranks, strerror(errno));
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
        free(c.child);
        return LAUNCH_MEMBER;
    }
    c.left = c.count;
    if (c.count < ranks) c.status = EXIT_FAILURE;
    *status = wait_for_all(&c, o->timeout);
    if (!meets_in_out) remove_folder(made);
    free(c.child);
    return LAUNCH_STARTER;
}
