/* group_meet.c - how the ranks of a group meet in a folder.
 *
 * Files of an earlier start may be there, and where several hosts share a file system a file may
 * show a minute late. So nothing depends on a clock or on the age of a file. A rank believes a
 * .start that has the rank's own number, and copies the number of the start to its own file. Rank 0
 * writes .start again whenever a rank has another number, waits until all have the start's, and
 * then writes that to its own file, too: for this the others wait. */
#include "group/group_files.h"
#include "platform/clock.h"
#include "platform/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The contents of .start, before the number of each rank. */
typedef struct start_file {
    char magic[8], version[16];
    int64_t ranks;
    uint8_t start[GD_GROUP_NUMBER];
    char id[GD_GROUP_ID];
} start_file;

typedef struct meeting {
    gd_group *group;
    gd_rank_file own;
    start_file *start; /* with the numbers of the ranks behind it */
    size_t bytes;      /* of it */
    double begun;
    char why[GD_GROUP_FAULT]; /* what was wrong with the last file that could not be read */
} meeting;

static uint8_t *number_of(const meeting *m, int rank)
{
    return (uint8_t *)(m->start + 1) + (size_t)rank * GD_GROUP_NUMBER;
}

static bool is_set(const uint8_t number[GD_GROUP_NUMBER])
{
    static const uint8_t none[GD_GROUP_NUMBER];
    return memcmp(number, none, sizeof none) != 0;
}

/* Waits a little, longer as time passes. False after the timeout. */
static bool wait_more(const meeting *m)
{
    const double waited = gd_os_now() - m->begun;
    gd_os_nap(fmin(fmax(waited / 8, 1e-3), 0.25));
    return waited < m->group->timeout;
}

/* The error of a meeting for which a rank was waited in vain. */
static gd_status nobody_came(const meeting *m, int rank, int came)
{
    const gd_group *group = m->group;
    char why[2 * GD_GROUP_FAULT], some[40] = "";
    if (came > 0) snprintf(some, sizeof some, " (%d of %d have)", came, group->ranks);
    snprintf(why, sizeof why, "has not come within %g s%s%s%s", group->timeout, some,
             m->why[0] ? ": " : "", m->why);
    return gd_group_abort(m->group, rank, why);
}

/* Writes the number of the start to this rank's file: it is part of it. */
static gd_status join_start(meeting *m)
{
    memcpy(m->own.start, m->group->start, sizeof m->own.start);
    if (gd_rank_write(m->group, &m->own, true)) return GD_OK;
    return gd_group_fail_in(m->group, gd_rank_name_of(m->group->rank).text, strerror(errno));
}

/* Rank 0: whether the number of a rank is another one than .start has. */
static bool see_rank(meeting *m, int rank)
{
    gd_group *group = m->group;
    gd_rank_file f;
    const gd_rank_name name = gd_rank_name_of(rank);
    const int file = gd_group_open(group, name.text, sizeof f, m->why);
    if (file < 0) return false;
    const bool read = gd_rank_read(file, &f) && is_set(f.own);
    if (!read || f.ranks != group->ranks || strcmp(f.version, m->own.version) != 0) {
        if (read)
            snprintf(m->why, sizeof m->why, "%s is of a group of %d ranks and gradus %s", name.text,
                     f.ranks, f.version);
        gd_os_close(file);
        return false;
    }
    const bool is_new = memcmp(number_of(m, rank), f.own, sizeof f.own) != 0;
    if (is_new) memcpy(number_of(m, rank), f.own, sizeof f.own);
    gd_rank_keep(group, rank, file, &f);
    return is_new;
}

static gd_status wait_for_ranks(meeting *m)
{
    gd_group *group = m->group;
    for (;;) {
        int missing = 0, came = 1;
        bool changed = false;
        for (int r = 1; r < group->ranks; r++) {
            if (group->peers[r].file < 0) changed = see_rank(m, r) || changed;
            if (group->peers[r].file >= 0)
                came++;
            else if (!missing)
                missing = r;
        }
        if (changed) {
            const int file = gd_group_make(group, ".start", m->start, m->bytes, 0);
            if (file < 0) return gd_group_fail_in(group, ".start", strerror(errno));
            gd_os_close(file);
        }
        if (!missing) return join_start(m);
        if (!wait_more(m)) {
            see_rank(m, missing); /* what is wrong with its file */
            join_start(m);        /* those that have come read why it ends */
            return nobody_came(m, missing, came);
        }
    }
}

/* Reads .start; true if it has this rank's number. */
static bool read_start(meeting *m)
{
    const gd_group *group = m->group;
    const int file = gd_group_open(group, ".start", m->bytes, m->why);
    if (file < 0) return false;
    const bool fine = gd_os_read_at(file, m->start, m->bytes, 0) == (ptrdiff_t)m->bytes &&
                      !memcmp(m->start->magic, gd_group_magic, sizeof gd_group_magic) &&
                      m->start->ranks == group->ranks &&
                      !memcmp(m->start->version, m->own.version, sizeof m->own.version);
    gd_os_close(file);
    return fine && !memcmp(number_of(m, group->rank), m->own.own, GD_GROUP_NUMBER);
}

/* Whether rank 0 has seen all. Keeps its file open. */
static bool is_complete(meeting *m)
{
    gd_group *group = m->group;
    gd_rank_file f;
    const int file = gd_group_open(group, gd_rank_name_of(0).text, sizeof f, m->why);
    if (file < 0) return false;
    if (gd_rank_read(file, &f)) return gd_rank_keep(group, 0, file, &f);
    gd_os_close(file);
    return false;
}

/* The first rank that had not come when rank 0 last wrote .start. */
static int first_missing(const meeting *m)
{
    for (int r = 1; is_set(m->group->start) && r < m->group->ranks; r++) {
        if (!is_set(number_of(m, r))) return r;
    }
    return 0;
}

static gd_status wait_for_start(meeting *m)
{
    gd_group *group = m->group;
    for (;;) {
        if (read_start(m) && memcmp(group->start, m->start->start, sizeof group->start) != 0) {
            memcpy(group->start, m->start->start, sizeof group->start);
            memcpy(group->id, m->start->id, sizeof group->id);
            if (join_start(m)) return group->ctx->status;
        }
        if (is_set(group->start) && is_complete(m)) return GD_OK;
        if (!wait_more(m)) return nobody_came(m, first_missing(m), 0);
    }
}

static gd_status draw(const gd_group *group, uint8_t number[GD_GROUP_NUMBER])
{
    if (gd_os_random(number, GD_GROUP_NUMBER)) return GD_OK;
    return gd_fail(group->ctx, GD_ERROR_IO, "%s: the system has no random numbers: %s", group->who,
                   strerror(errno));
}

static gd_status meet(meeting *m)
{
    gd_group *group = m->group;
    gd_rank_file *own = &m->own;
    memcpy(own->magic, gd_group_magic, sizeof gd_group_magic);
    snprintf(own->version, sizeof own->version, "%s", GD_VERSION_STRING);
    gd_os_host(group->host);
    memcpy(own->host, group->host, sizeof own->host);
    own->ranks = group->ranks;
    if (gd_group_take_file(group) || draw(group, own->own)) return group->ctx->status;
    if (group->rank == 0) {
        if (draw(group, group->start)) return group->ctx->status;
        if (group->transport->prepare && group->transport->prepare(group))
            return group->ctx->status;
        memcpy(m->start->magic, gd_group_magic, sizeof gd_group_magic);
        memcpy(m->start->version, own->version, sizeof own->version);
        memcpy(m->start->start, group->start, sizeof group->start);
        memcpy(m->start->id, group->id, sizeof group->id);
        m->start->ranks = group->ranks;
    }
    if (!gd_rank_write(group, own, true))
        return gd_group_fail_in(group, gd_rank_name_of(group->rank).text, strerror(errno));
    m->begun = gd_os_now();
    return group->rank == 0 ? wait_for_ranks(m) : wait_for_start(m);
}

gd_status gd_group_meet(gd_group *group, const char *folder)
{
    meeting m = {.group = group, .bytes = sizeof *m.start + (size_t)group->ranks * GD_GROUP_NUMBER};
    group->folder = gd_os_open(gd_os_here, folder, GD_OS_READ | GD_OS_FOLDER, 0);
    if (group->folder < 0) return gd_group_fail_in(group, folder, strerror(errno));
    m.start = gd_host_allocate(group->ctx, m.bytes, "a group");
    if (m.start) {
        memset(m.start, 0, m.bytes);
        if (!meet(&m)) gd_group_look(group, gd_os_now()); /* opens the files of all */
    }
    gd_host_release(group->ctx, m.start, m.bytes);
    return gd_error_status(group->ctx);
}
