/* group_files.c - see group_files.h. */
#include "group/group_files.h"
#include "platform/clock.h"
#include "platform/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char gd_group_magic[8] = {'g', 'd', 'r', 'a', 'n', 'k', 's', '1'};

gd_rank_name gd_rank_name_of(int rank)
{
    gd_rank_name name;
    snprintf(name.text, sizeof name.text, ".rank-%d", rank);
    return name;
}

gd_status gd_group_fail_in(const gd_group *group, const char *name, const char *why)
{
    return gd_fail(group->ctx, GD_ERROR_IO, "%s: rank %d cannot meet the others in %s: %s",
                   group->who, group->rank, name, why);
}

/* ---- Any file -------------------------------------------------------------------------------- */

/* What is wrong with an opened file; NULL: nothing. The file that this rank has made shows what the
 * file system makes of its user and of the mode 600. */
static const char *fault_of(const gd_group *group, int file, size_t bytes)
{
    gd_os_status s;
    if (!gd_os_status_of(file, &s)) return strerror(errno);
    if (s.kind != GD_OS_IS_FILE) return "is not a regular file";
    if (s.names > 1) return "has another name, too (a hard link)";
    if (s.owner != group->owner) return "belongs to another user";
    if ((s.mode & 0777) != group->mode) return "may be read or written by other users";
    return (size_t)s.size == bytes ? NULL : "has the wrong size";
}

int gd_group_open(const gd_group *group, const char *name, size_t bytes, char why[GD_GROUP_FAULT])
{
    const int file = gd_os_open(group->folder, name,
                                GD_OS_READ | GD_OS_WRITE | GD_OS_NO_LINK | GD_OS_NO_WAIT, 0);
    const char *fault = file >= 0         ? fault_of(group, file, bytes)
                        : errno == ELOOP  ? "is a link"
                        : errno != ENOENT ? strerror(errno)
                                          : "";
    why[0] = '\0';
    if (!fault) return file;
    gd_os_close(file);
    if (fault[0]) snprintf(why, GD_GROUP_FAULT, "%s %s", name, fault);
    return -1;
}

int gd_group_make(const gd_group *group, const char *name, const void *data, size_t bytes,
                  size_t zeros)
{
    static const char none[4096];
    char fresh[40];
    snprintf(fresh, sizeof fresh, "%s.new", name);
    gd_os_remove(group->folder, fresh); /* of a rank that was killed */
    const int how = GD_OS_READ | GD_OS_WRITE | GD_OS_NEW | GD_OS_NO_LINK;
    const int file = gd_os_open(group->folder, fresh, how, 0600);
    bool fine = file >= 0 && gd_os_write(file, data, bytes);
    /* Zeros are written, not skipped: a full disk must not show only when the memory is used. */
    for (size_t part; fine && zeros > 0; zeros -= part) {
        part = zeros < sizeof none ? zeros : sizeof none;
        fine = gd_os_write(file, none, part);
    }
    if (fine && gd_os_flush(file) && gd_os_rename(group->folder, fresh, name)) return file;
    const int why = errno;
    if (file >= 0) gd_os_close(file), gd_os_remove(group->folder, fresh);
    errno = why;
    return -1;
}

/* ---- Files of ranks -------------------------------------------------------------------------- */

bool gd_rank_write(const gd_group *group, const gd_rank_file *own, bool flush)
{
    return gd_os_write_at(group->file, own, sizeof *own, 0) && (!flush || gd_os_flush(group->file));
}

bool gd_rank_read(int file, gd_rank_file *f)
{
    const bool whole = gd_os_read_at(file, f, sizeof *f, 0) == sizeof *f;
    f->host[GD_OS_HOST - 1] = f->why[GD_GROUP_WHY - 1] = f->version[sizeof f->version - 1] = '\0';
    return whole && !memcmp(f->magic, gd_group_magic, sizeof gd_group_magic);
}

bool gd_rank_keep(gd_group *group, int rank, int file, const gd_rank_file *f)
{
    if (memcmp(f->start, group->start, sizeof f->start) != 0) {
        gd_os_close(file);
        return false;
    }
    group->peers[rank].file = file;
    group->peers[rank].locks = gd_os_is_locked(file) > 0;
    group->several_hosts = group->several_hosts || strcmp(f->host, group->host) != 0;
    return true;
}

/* ---- The file of this rank ------------------------------------------------------------------ */

/* Whether a name leads to the opened file. */
static bool leads_to(int folder, const char *name, int file)
{
    gd_os_status opened, found;
    return gd_os_status_of(file, &opened) && gd_os_status_at(folder, name, false, &found) &&
           opened.volume == found.volume && opened.number == found.number;
}

/* Removes the file of an earlier run. False, with EWOULDBLOCK, if its rank lives. */
static bool clear_earlier(const gd_group *group, const char *name)
{
    gd_os_status s;
    if (!gd_os_status_at(group->folder, name, false, &s)) return errno == ENOENT;
    errno = s.kind == GD_OS_IS_LINK ? ELOOP : EINVAL;
    if (s.kind != GD_OS_IS_FILE) return false;
    const int how = GD_OS_READ | GD_OS_WRITE | GD_OS_NO_LINK | GD_OS_NO_WAIT;
    const int file = gd_os_open(group->folder, name, how, 0);
    if (file < 0) return errno == ENOENT;
    const bool ended = gd_os_lock(file);
    const bool fine = ended && (!leads_to(group->folder, name, file) ||
                                gd_os_remove(group->folder, name) || errno == ENOENT);
    gd_os_close(file);
    return fine;
}

gd_status gd_group_take_file(gd_group *group)
{
    const gd_rank_name name = gd_rank_name_of(group->rank);
    const double deadline = gd_os_now() + fmin(group->timeout, 2);
    const int how = GD_OS_READ | GD_OS_WRITE | GD_OS_NEW | GD_OS_NO_LINK;
    gd_os_status s;
    for (;;) {
        const int file = gd_os_open(group->folder, name.text, how, 0600);
        if (file >= 0 && gd_os_lock(file) && leads_to(group->folder, name.text, file) &&
            gd_os_status_of(file, &s)) {
            group->file = file;
            group->owner = s.owner;
            group->mode = s.mode & 0777;
            return GD_OK;
        }
        if (file >= 0) gd_os_close(file); /* another rank of this number was faster */
        if (file < 0 && errno != EEXIST) return gd_group_fail_in(group, name.text, strerror(errno));
        if (clear_earlier(group, name.text)) continue;
        if (errno != EWOULDBLOCK || gd_os_now() > deadline) {
            const char *why = errno == ELOOP         ? "it is a link"
                              : errno == EINVAL      ? "it is not a regular file"
                              : errno == EWOULDBLOCK ? "another run has it locked"
                                                     : strerror(errno);
            return gd_group_fail_in(group, name.text, why);
        }
        gd_os_nap(0.02);
    }
}

void gd_group_remove_files(const gd_group *group)
{
    const gd_rank_name name = gd_rank_name_of(group->rank);
    if (!leads_to(group->folder, name.text, group->file)) return;
    if (group->rank == 0) gd_os_remove(group->folder, ".start");
    gd_os_remove(group->folder, name.text);
}
