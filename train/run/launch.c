/* launch.c - see launch.h. */
#include "launch.h"
#include "checksums.h"
#include "console.h"
#include "folder.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/process.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
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

/* Starts `ranks` processes: returns in each of them with its rank in *member, and in this one when
 * all have ended, with *status, as launch does. */
static launch_role start(train_options *o, int ranks, gd_group_options *member, int *status)
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

/* ---- Roles ---------------------------------------------------------------------------------- */

/* Each process sees only one GPU of its machine, that of its local rank. */
static bool choose_gpu(int local_rank)
{
    static const char name[] = "CUDA_VISIBLE_DEVICES";
    const char *list = getenv(name);
    char own[128];
    int count = 1;
    for (const char *at = list; at && (at = strchr(at, ',')); at++) count++;
    if (!list) {
        snprintf(own, sizeof own, "%d", local_rank);
        return gd_os_set_variable(name, own);
    }
    if (count == 1) return true; /* the launcher has chosen it */
    if (local_rank >= count) {
        console_message("%s has %d GPUs, but this process has local rank %d", name, count,
                        local_rank);
        return false;
    }
    for (; local_rank > 0; local_rank--) list = strchr(list, ',') + 1;
    snprintf(own, sizeof own, "%.*s", (int)strcspn(list, ","), list);
    return gd_os_set_variable(name, own);
}

launch_role launch(train_options *o, int *status)
{
    const int64_t wanted = o->gpus + o->processes; /* one of them is 0 */
    gd_group_options *member = &o->member;
    *member = gd_group_environment();
    *status = 2;
    if (wanted > 0 && (member->ranks > 1 || member->problem[0])) {
        console_message("--%s starts processes, but this one was started as one of several "
                        "(WORLD_SIZE or the like is set)",
                        o->gpus > 0 ? "gpus" : "processes");
        return LAUNCH_STARTER;
    }
    const bool several = wanted > 1 || member->ranks > 1;
    const bool meets_in_out = o->out && (member->ranks > 1 || !o->dry_run);
    if (several && meets_in_out && !folder_make_all(o->out)) {
        console_message("cannot make the folder %s: %s", o->out, folder_reason());
        return LAUNCH_STARTER;
    }
    member->folder = o->out;
    if (wanted > 1 && start(o, (int)wanted, member, status) == LAUNCH_STARTER)
        return LAUNCH_STARTER;
    if (member->ranks == 1 && !member->problem[0]) return LAUNCH_MEMBER;
    console_rank(member->rank);
    if (!member->folder && !member->problem[0]) {
        console_message("needs --out DIR, in which the %d processes meet", member->ranks);
        return LAUNCH_STARTER;
    }
    member->timeout = o->timeout;
    if (o->base.device == GD_CPU || choose_gpu(member->local_rank)) return LAUNCH_MEMBER;
    return LAUNCH_STARTER;
}

/* ---- The same run everywhere ---------------------------------------------------------------- */

enum { LINES = 20000 }; /* room for three paths */

static const char *text_or_none(const char *text)
{
    return text ? text : "(none)";
}

/* Appends a line to lines that `used` bytes fill. */
GD_PRINTF(3, 4)
static void add_line(char *lines, size_t *used, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(lines + *used, LINES - *used, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < LINES - *used) *used += (size_t)length;
}

static void add_print(char *lines, size_t *used, const char *what, uint64_t print)
{
    if (print)
        add_line(lines, used, "%s " FINGERPRINT_NAME " %016llx\n", what, (unsigned long long)print);
}

/* What must be equal on all ranks, a line each. Paths to the texts may differ between machines; the
 * texts themselves may not. */
static void describe(const train_options *o, const gd_context *ctx, char lines[LINES])
{
    static const char *const paths[] = {"data", "tokens", "val-data"};
    options_item item;
    size_t used = 0;
    memset(lines, 0, LINES); /* all of it is sent */
    add_line(lines, &used, "the device is %s\n",
             gd_context_device(ctx) == GD_CPU ? "the CPU" : "a GPU");
    add_line(lines, &used, "--dry-run %d\n", o->dry_run);
    add_line(lines, &used, "--out %.4200s\n", text_or_none(o->out));
    add_line(lines, &used, "--resume %.4200s\n", text_or_none(o->resume));
    add_line(lines, &used, "--init %.4200s\n", text_or_none(o->init));
    for (int i = 0; options_saved(&o->base, i, &item); i++) {
        bool path = false;
        for (int k = 0; k < 3; k++) path = path || !strcmp(item.name, paths[k]);
        if (!path) add_line(lines, &used, "--%s %.100s\n", item.name, text_or_none(item.text));
    }
}

/* What says how a model computes, and of a checkpoint the checksums of all its files. The
 * parameters become rank 0's. */
static bool fingerprint_model(const char *folder, uint64_t *print)
{
    static const char *const names[] = {"config.json", "tokenizer.json", CHECKSUMS_LIST};
    char path[3][FOLDER_PATH];
    const char *paths[3];
    gd_os_status found;
    int count = 0, failed;
    for (int i = 0; i < 3; i++) {
        if (!folder_join(path[count], folder, names[i])) return false;
        paths[count] = path[count];
        count += gd_os_status_at(gd_os_here, path[count], true, &found);
    }
    return fingerprint_files(paths, count, FINGERPRINT_WHOLE, print, &failed);
}

/* What the ranks have read. */
static gd_status describe_files(const train_options *o, gd_context *ctx, const dataset *data,
                                const char *folder, char lines[LINES])
{
    size_t used = strlen(lines);
    uint64_t model = 0;
    if (folder[0] && !fingerprint_model(folder, &model))
        return gd_fail(ctx, GD_ERROR_IO, "cannot read the model in %s: %s", folder,
                       strerror(errno));
    add_print(lines, &used, "the model is", model);
    add_print(lines, &used, o->tokens ? "the token files are" : "the text is", data->files[0]);
    add_print(lines, &used, "the validation text is", data->files[1]);
    add_line(lines, &used, "the vocabulary has %lld tokens\n", (long long)data->tokenizer.vocab);
    return GD_OK;
}

/* Compares the lines with those of rank 0, which are not necessarily lines: another process sent
 * them. */
static gd_status compare_lines(gd_context *ctx, const char *ours, const char *theirs)
{
    while (*ours || *theirs) {
        const size_t a = strcspn(ours, "\n"), b = strcspn(theirs, "\n");
        if (a != b || memcmp(ours, theirs, a) != 0) {
            return gd_fail(ctx, GD_ERROR_ARGUMENT,
                           "this process differs from rank 0: %.*s, on rank 0 %.*s", (int)a, ours,
                           (int)b, theirs);
        }
        ours += a + (ours[a] == '\n');
        theirs += b + (theirs[b] == '\n');
    }
    return gd_error_status(ctx);
}

gd_status launch_compare(const train_options *o, gd_context *ctx, const dataset *data,
                         const char *folder)
{
    if (!o->group) return gd_error_status(ctx);
    char *mine = calloc(2, LINES);
    if (!mine) return gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: a message of each process");
    char *first = mine + LINES;
    describe(o, ctx, mine);
    if (data) describe_files(o, ctx, data, folder, mine);
    memcpy(first, mine, LINES);
    if (!gd_group_broadcast_bytes(o->group, first, LINES)) {
        first[LINES - 1] = '\0';
        compare_lines(ctx, mine, first);
    }
    free(mine);
    /* No rank continues before all have compared. */
    return gd_error(ctx) ? gd_error_status(ctx)
                         : gd_group_all_gather_bytes(o->group, NULL, 0, NULL);
}

int launch_vote(const train_options *o, int own)
{
    const int ranks = gd_group_ranks(o->group);
    unsigned char all[1024], mine = (unsigned char)own;
    if (ranks > 1 && gd_group_all_gather_bytes(o->group, &mine, 1, all)) return VOTE_TIME;
    for (int i = 0; ranks > 1 && i < ranks; i++) own |= all[i];
    return own;
}
