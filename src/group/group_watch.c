/* group_watch.c - how a rank learns of the end of another one, and the others of its own.
 *
 * While a rank waits it looks at the files of the others now and then: a rank that fails
 * writes why, a rank that dies loses its lock, and a rank that waits changes its file, so that
 * the one that is silent can be named. A lock counts only after it was seen: not every file
 * system has locks. */
#include "group/group_files.h"
#include "platform/clock.h"
#include "platform/file.h"

#include <stdio.h>
#include <string.h>

typedef enum peer_state { PEER_IN, PEER_LEFT, PEER_FAILED, PEER_GONE, PEER_UNKNOWN } peer_state;

/* How a rank is. Its lock is looked at before what it wrote: a rank that has lost it
 * writes no more. */
static peer_state state_of(gd_group *group, int rank, gd_rank_file *f)
{
    gd_peer *p = &group->peers[rank];
    char why[GD_GROUP_FAULT];
    if (p->file < 0) {
        const int file = gd_group_open(group, gd_rank_name_of(rank).text, sizeof *f, why);
        if (file < 0) return PEER_UNKNOWN;
        if (!gd_rank_read(file, f))
            gd_os_close(file);
        else
            gd_rank_keep(group, rank, file, f);
        if (p->file < 0) return PEER_UNKNOWN;
    }
    const int locked = gd_os_is_locked(p->file);
    const bool read = gd_rank_read(p->file, f);
    p->locks = p->locks || locked > 0;
    if (read && f->state != GD_RANK_IN) return f->state == GD_RANK_LEFT ? PEER_LEFT : PEER_FAILED;
    if (locked == 0 && p->locks) return PEER_GONE;
    return read ? PEER_IN : PEER_UNKNOWN;
}

/* Changes this rank's file when it begins to wait, and four times in the timeout: it is
 * not silent. */
static void show_life(gd_group *group, double since, double now)
{
    gd_rank_file own;
    if (group->transport->is_missing || (group->waiting == since && now < group->beat)) return;
    group->waiting = since;
    group->beat = now + group->timeout / 4;
    if (!gd_rank_read(group->file, &own)) return;
    own.beat++;
    gd_rank_write(group, &own, group->several_hosts);
}

/* `text` is the reason, which the others read in this rank's file. */
static gd_status abort_group(gd_group *group, const char *text)
{
    gd_rank_file own;
    if (!group->aborted) {
        group->aborted = true;
        if (group->file >= 0 && gd_rank_read(group->file, &own)) {
            own.state = GD_RANK_FAILED;
            snprintf(own.why, sizeof own.why, "%s", text);
            gd_rank_write(group, &own, true);
        }
        if (group->state && group->transport->abort) group->transport->abort(group);
    }
    return gd_fail(group->ctx, GD_ERROR_DEVICE, "%s: %s", group->who, text);
}

gd_status gd_group_abort(gd_group *group, int rank, const char *why)
{
    char text[GD_GROUP_WHY];
    snprintf(text, sizeof text, "rank %d %.570s", rank, why);
    return abort_group(group, text);
}

gd_status gd_group_look(gd_group *group, double since)
{
    const gd_transport *transport = group->transport;
    const double now = gd_os_now();
    const bool late = now >= since + group->timeout;
    gd_rank_file f;
    if (now < group->look || gd_failed(group->ctx)) return gd_error_status(group->ctx);
    group->look = now + 0.05 + 1e-3 * group->ranks;
    show_life(group, since, now);
    for (int r = 0; r < group->ranks; r++) {
        if (r == group->rank) continue;
        gd_peer *p = &group->peers[r];
        const peer_state state = state_of(group, r, &f);
        /* Of a rank that waits the file changes; on the CPU the shared memory shows more. */
        const bool known = transport->is_missing != NULL;
        const bool missing = known ? transport->is_missing(group, r) : p->moved < since;
        const bool needed = missing || !known; /* else the call can end without that rank */
        if (state == PEER_FAILED && needed) return abort_group(group, f.why);
        if (state == PEER_LEFT && (late || (known && missing)))
            return gd_group_abort(group, r, "has left");
        if (state == PEER_GONE && needed) return gd_group_abort(group, r, "is gone");
        if (state == PEER_IN && f.beat != p->beat) {
            p->beat = f.beat;
            p->moved = now;
        } else if (late && missing) {
            return gd_group_abort(group, r, "is silent");
        }
    }
    if (now < since + 2 * group->timeout) return GD_OK;
    return gd_group_abort(group, group->rank, "has waited for too long");
}

void gd_group_leave(gd_group *group)
{
    gd_rank_file own;
    const char *error = gd_error(group->ctx);
    if (group->file >= 0 && !group->aborted && gd_rank_read(group->file, &own)) {
        own.state = error ? GD_RANK_FAILED : GD_RANK_LEFT;
        if (error)
            snprintf(own.why, sizeof own.why, "rank %d has failed: %.500s", group->rank, error);
        gd_rank_write(group, &own, error || group->several_hosts);
    }
    if (group->file >= 0 && !error) gd_group_remove_files(group);
}

void gd_group_close(gd_group *group)
{
    for (int r = 0; group->peers && r < group->ranks; r++) {
        gd_os_close(group->peers[r].file);
    }
    gd_os_close(group->file);
    gd_os_close(group->folder);
}

/* ---- The same calls ------------------------------------------------------------------------- */

gd_group_call gd_group_call_of(const gd_group *group, uint64_t bytes, uint32_t number)
{
    gd_group_call call = {.bytes = bytes, .number = number};
    snprintf(call.name, sizeof call.name, "%s", group->who);
    return call;
}

gd_status gd_group_compare(gd_group *group, int rank, const gd_group_call *ours,
                           const gd_group_call *theirs)
{
    char problem[200];
    if (!memcmp(ours, theirs, sizeof *ours)) return GD_OK;
    snprintf(problem, sizeof problem,
             "is in %.19s (%u) with %llu bytes, wanted %.19s (%u) with %llu: all ranks must make "
             "the same calls",
             theirs->name, (unsigned)theirs->number, (unsigned long long)theirs->bytes, ours->name,
             (unsigned)ours->number, (unsigned long long)ours->bytes);
    return gd_group_abort(group, rank, problem);
}
