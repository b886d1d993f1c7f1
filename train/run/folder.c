/* folder.c - see folder.h. */
#include "folder.h"
#include "platform/file.h"
#include "text_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool folder_copy(char path[FOLDER_PATH], const char *from)
{
    size_t length = strlen(from);
    errno = ENAMETOOLONG;
    if (length >= FOLDER_PATH) return false;
    memcpy(path, from, length + 1);
    return true;
}

bool folder_join(char path[FOLDER_PATH], const char *folder, const char *name)
{
    const char *last = gd_os_last_slash(folder), *slash = last && !last[1] ? "" : "/";
    int length = snprintf(path, FOLDER_PATH, "%s%s%s", folder, slash, name);
    if (length >= 0 && length < FOLDER_PATH) return true;
    errno = ENAMETOOLONG;
    return false;
}

bool folder_parent(char parent[FOLDER_PATH], const char *path)
{
    const char *slash = gd_os_last_slash(path);
    if (!folder_copy(parent, slash ? path : ".")) return false;
    if (slash) parent[slash == path ? 1 : slash - path] = '\0';
    return true;
}

const char *folder_reason(void)
{
    switch (errno) {
    case EINVAL:
        return "it is not a regular file";
    case ELOOP:
        return "it is a link";
    case EMLINK:
        return "it has another name, too (a hard link)";
    default:
        return strerror(errno);
    }
}

/* ---- Calls of the system -------------------------------------------------------------------- */

/* Closes it after a failure. */
static bool close_failed(int file)
{
    gd_os_close(file);
    return false;
}

/* What is at a name, links not followed; GD_OS_IS_NOTHING: nothing, or, with errno, not known. */
static gd_os_kind kind_at(int folder, const char *name)
{
    gd_os_status status;
    if (gd_os_status_at(folder, name, false, &status)) return status.kind;
    if (errno == ENOENT) errno = 0;
    return GD_OS_IS_NOTHING;
}

/* Whether what is at a name is the opened file or folder. */
static bool is_named(int folder, const char *name, bool follow, int file)
{
    gd_os_status opened, found;
    return gd_os_status_of(file, &opened) && gd_os_status_at(folder, name, follow, &found) &&
           opened.volume == found.volume && opened.number == found.number;
}

/* ---- Folders ------------------------------------------------------------------------------ */

/* Flushes the folder that a path is in. */
static bool flush_parent(const char *path)
{
    char parent[FOLDER_PATH];
    if (!folder_parent(parent, path)) return false;
    const int folder = gd_os_open(gd_os_here, parent, GD_OS_READ | GD_OS_FOLDER, 0);
    if (folder < 0) return errno == EACCES; /* one that cannot be listed was there before */
    if (!gd_os_flush_folder(folder)) return close_failed(folder);
    return gd_os_close(folder);
}

bool folder_make_path(const char *path)
{
    gd_os_status status;
    if (gd_os_make_folder(gd_os_here, path)) return flush_parent(path);
    if (errno != EEXIST || !gd_os_status_at(gd_os_here, path, true, &status)) return false;
    errno = ENOTDIR;
    return status.kind == GD_OS_IS_FOLDER;
}

bool folder_make_all(const char *path)
{
    char part[FOLDER_PATH], *slash;
    if (!folder_copy(part, path)) return false;
    while ((slash = gd_os_last_slash(part)) && slash > part && !slash[1]) *slash = '\0';
    const size_t whole = strlen(part);
    bool made;
    while (!(made = folder_make_path(part)) && errno == ENOENT &&
           (slash = gd_os_last_slash(part)) && slash > part)
        *slash = '\0'; /* first the folder that it is in */
    while (made && strlen(part) < whole) {
        part[strlen(part)] = '/';
        made = folder_make_path(part);
    }
    return made;
}

bool folder_open(open_folder *f, const char *path, bool links)
{
    *f = (open_folder){.links = links};
    const int folder = gd_os_open(gd_os_here, path, GD_OS_READ | GD_OS_FOLDER, 0);
    if (folder < 0) return false;
    if (!folder_copy(f->path, path)) return close_failed(folder);
    f->descriptor = folder;
    return true;
}

bool folder_enter(open_folder *f, const open_folder *in, const char *name)
{
    *f = (open_folder){0};
    const int folder =
        gd_os_open(in->descriptor, name, GD_OS_READ | GD_OS_FOLDER | GD_OS_NO_LINK, 0);
    if (folder < 0) {
        if (errno == ENOTDIR && kind_at(in->descriptor, name) == GD_OS_IS_LINK) errno = ELOOP;
        return false;
    }
    if (!folder_join(f->path, in->path, name)) return close_failed(folder);
    f->descriptor = folder;
    return true;
}

bool folder_make(const open_folder *in, const char *name)
{
    return gd_os_make_folder(in->descriptor, name);
}

void folder_close(open_folder *f)
{
    if (f->path[0]) gd_os_close(f->descriptor);
    for (int i = 0; i < f->held; i++) gd_os_close(f->hold[i].descriptor);
    *f = (open_folder){0};
}

bool folder_is_there(const open_folder *f)
{
    return is_named(gd_os_here, f->path, true, f->descriptor);
}

bool folder_flush(const open_folder *f)
{
    return gd_os_flush_folder(f->descriptor);
}

/* ---- Entries ------------------------------------------------------------------------------- */

static int compare_numbers(const void *left, const void *right)
{
    const int64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* The number after the prefix; -1 if it is not such a name. */
static int64_t number_of(const char *name, const char *prefix)
{
    size_t length = strlen(prefix), digits = 0;
    if (strncmp(name, prefix, length) != 0) return -1;
    int64_t number = 0;
    for (name += length; name[digits] >= '0' && name[digits] <= '9' && digits < 18; digits++) {
        number = 10 * number + (name[digits] - '0');
    }
    return digits >= 8 && name[digits] == '\0' ? number : -1;
}

typedef struct numbers {
    const char *prefix;
    int64_t *found, count, room;
} numbers;

static bool add_number(void *user, int folder, const char *name)
{
    numbers *n = user;
    const int64_t number = number_of(name, n->prefix);
    (void)folder;
    if (number < 0) return true;
    if (n->count == n->room) {
        n->room = n->room ? 2 * n->room : 64;
        int64_t *grown = realloc(n->found, (size_t)n->room * sizeof *grown);
        if (!grown) return false;
        n->found = grown;
    }
    n->found[n->count++] = number;
    return true;
}

int64_t folder_list(const open_folder *in, const char *prefix, int64_t **found)
{
    numbers n = {.prefix = prefix};
    *found = NULL;
    if (!gd_os_each_name(in->descriptor, add_number, &n)) {
        const int why = errno;
        free(n.found);
        errno = why;
        return -1;
    }
    if (n.count) qsort(n.found, (size_t)n.count, sizeof *n.found, compare_numbers);
    *found = n.found;
    return n.count;
}

/* ---- Files -------------------------------------------------------------------------------- */

/* What the file must be, before and after it is opened: opening a device may do something, and
 * between the two calls there may be another. */
static bool check_kind(const gd_os_status *status, folder_use use)
{
    const bool regular = status->kind == GD_OS_IS_FILE;
    const bool written = use == FOLDER_WRITE || use == FOLDER_KEEP || use == FOLDER_APPEND;
    if (regular && (!written || status->names <= 1)) return true;
    errno = regular ? EMLINK : status->kind == GD_OS_IS_LINK ? ELOOP : EINVAL;
    return false;
}

static int open_checked(const open_folder *in, const char *name, folder_use use)
{
    static const int how[] = {GD_OS_READ, GD_OS_WRITE, GD_OS_WRITE | GD_OS_NEW,
                              GD_OS_READ | GD_OS_WRITE | GD_OS_MAKE,
                              GD_OS_WRITE | GD_OS_MAKE | GD_OS_APPEND};
    const bool links = in->links && use == FOLDER_READ;
    gd_os_status status;
    if (gd_os_status_at(in->descriptor, name, links, &status)) {
        if (!check_kind(&status, use)) return -1;
    } else if (errno != ENOENT) {
        return -1;
    }
    const int file = gd_os_open(in->descriptor, name,
                                how[use] | GD_OS_NO_WAIT | (links ? 0 : GD_OS_NO_LINK), 0666);
    if (file >= 0 && (!gd_os_status_of(file, &status) || !check_kind(&status, use))) {
        gd_os_close(file);
        return -1;
    }
    return file;
}

int folder_file(open_folder *in, const char *name, folder_use use)
{
    int file = -1, held = 0;
    while (held < in->held && strcmp(in->hold[held].name, name) != 0) held++;
    if (use == FOLDER_READ && held < in->held)
        file = gd_os_duplicate(in->hold[held].descriptor);
    else
        file = open_checked(in, name, use);
    if (file < 0 && errno != ENOENT && !in->trouble) in->trouble = errno;
    return file;
}

void folder_hold(open_folder *f, const char *const *names)
{
    for (; *names && f->held < FOLDER_HELD; names++) {
        const int file = open_checked(f, *names, FOLDER_READ);
        if (file < 0) continue; /* who needs it gets the reason */
        f->hold[f->held].name = *names;
        f->hold[f->held++].descriptor = file;
    }
}

bool folder_has(const open_folder *in, const char *name)
{
    for (int i = 0; i < in->held; i++) {
        if (!strcmp(in->hold[i].name, name)) return true;
    }
    return kind_at(in->descriptor, name) != 0 || errno != 0;
}

/* Reads a whole file into memory. */
static char *read_all(int file, size_t limit, size_t *length)
{
    gd_os_status status;
    if (!gd_os_status_of(file, &status)) return NULL;
    errno = EFBIG;
    *length = (size_t)status.size;
    char *text = *length <= limit ? malloc(*length + 1) : NULL;
    if (text) text[*length] = '\0';
    if (!text || text_file_at(file, text, *length, 0)) return text;
    const int why = errno;
    free(text);
    errno = why;
    return NULL;
}

char *folder_read_text(open_folder *in, const char *name, size_t limit, size_t *length)
{
    const int file = folder_file(in, name, FOLDER_READ);
    if (file < 0) return NULL;
    char *text = read_all(file, limit, length);
    gd_os_close(file);
    if (!text && errno != EFBIG && !in->trouble) in->trouble = errno;
    return text;
}

bool folder_end_file(int file)
{
    if (!gd_os_flush(file)) return close_failed(file);
    return gd_os_close(file);
}

bool folder_link(const open_folder *in, const char *name, const char *target)
{
    char fresh[FOLDER_NAME];
    const int at = in->descriptor;
    errno = ENAMETOOLONG;
    if (snprintf(fresh, sizeof fresh, ".%s", name) >= FOLDER_NAME) return false;
    const gd_os_kind kinds[] = {kind_at(at, name), kind_at(at, fresh)};
    for (int i = 0; i < 2; i++) {
        if (kinds[i] == GD_OS_IS_NOTHING || kinds[i] == GD_OS_IS_LINK) continue;
        errno = EEXIST;
        return false;
    }
    if (kinds[1] && !gd_os_remove(at, fresh)) return false;
    return gd_os_link(at, fresh, target) && gd_os_rename(at, fresh, name) && gd_os_flush_folder(at);
}

/* ---- Replacing and removing folders of files ---------------------------------------------- */

static const char replaced[] = ".replaced."; /* before the name of a folder that is put aside */

static bool is_own(const char *const *own, const char *name)
{
    while (*own && strcmp(*own, name) != 0) own++;
    return *own != NULL;
}

/* A folder that has the name of a file stays: it is not the run's own. */
static bool remove_own(void *user, int folder, const char *name)
{
    if (!is_own(user, name) || gd_os_remove(folder, name)) return true;
    return errno == ENOENT || kind_at(folder, name) == GD_OS_IS_FOLDER;
}

/* Renames what is not the run's own. */
static bool keep_rest(const open_folder *in, const char *name, const char *label,
                      char rest[FOLDER_NAME])
{
    for (int i = 1; i < 10000; i++) {
        int length = i == 1 ? snprintf(rest, FOLDER_NAME, "%s.rest", label)
                            : snprintf(rest, FOLDER_NAME, "%s.rest-%d", label, i);
        errno = ENAMETOOLONG;
        if (length >= FOLDER_NAME) return false;
        if (kind_at(in->descriptor, rest)) continue;
        return !errno && gd_os_rename(in->descriptor, name, rest);
    }
    errno = EEXIST;
    return false;
}

bool folder_clear(const open_folder *in, const char *name, const char *label,
                  const char *const *own, char rest[FOLDER_NAME])
{
    const gd_os_kind kind = kind_at(in->descriptor, name);
    if (!kind) return errno == 0;
    if (kind != GD_OS_IS_FOLDER) return keep_rest(in, name, label, rest);
    open_folder within;
    if (!folder_enter(&within, in, name)) return keep_rest(in, name, label, rest);
    const bool removed = gd_os_each_name(within.descriptor, remove_own, (void *)(uintptr_t)own) &&
                         gd_os_remove_folder(in->descriptor, name);
    folder_close(&within);
    return removed || keep_rest(in, name, label, rest);
}

/* Flushes both to the disk before the old one is removed: a power failure must leave one of
 * them whole. */
static bool replace_in_two(const open_folder *in, const char *from, const char *to,
                           const char *const *own, char rest[FOLDER_NAME])
{
    char aside[FOLDER_NAME];
    const int at = in->descriptor, length = snprintf(aside, sizeof aside, "%s%s", replaced, to);
    errno = ENAMETOOLONG;
    if (length >= FOLDER_NAME || !folder_clear(in, aside, to, own, rest) ||
        !gd_os_rename(at, to, aside))
        return false;
    if (!gd_os_rename(at, from, to)) {
        const int why = errno;
        gd_os_rename(at, aside, to); /* if that fails, too, folder_repair does it */
        errno = why;
        return false;
    }
    return gd_os_flush_folder(at) && folder_clear(in, aside, to, own, rest);
}

/* What takes the place of the user's own folder has its permissions, and those of its files. */
static void keep_access(const open_folder *in, const char *from, const char *to,
                        const char *const *own)
{
    open_folder old = {0}, fresh = {0};
    gd_os_status was, is;
    if (folder_enter(&old, in, to) && folder_enter(&fresh, in, from) &&
        gd_os_status_of(old.descriptor, &was) && gd_os_status_of(fresh.descriptor, &is) &&
        was.owner == is.owner) {
        gd_os_set_access(fresh.descriptor, &was);
        for (; *own; own++) {
            const bool there = gd_os_status_at(old.descriptor, *own, false, &was) &&
                               was.kind == GD_OS_IS_FILE && was.owner == is.owner;
            const int file = there ? open_checked(&fresh, *own, FOLDER_WRITE) : -1;
            if (file >= 0) gd_os_set_access(file, &was);
            gd_os_close(file);
        }
    }
    folder_close(&old);
    folder_close(&fresh);
}

bool folder_replace(const open_folder *in, const char *from, const char *to, const char *const *own,
                    char rest[FOLDER_NAME])
{
    const int at = in->descriptor;
    const gd_os_kind kind = kind_at(at, to);
    if (!kind && errno) return false;
    if (kind && kind != GD_OS_IS_FOLDER && !keep_rest(in, to, to, rest)) return false;
    if (kind == GD_OS_IS_FOLDER) keep_access(in, from, to, own);
    if (gd_os_rename(at, from, to)) return gd_os_flush_folder(at);
    if (errno != ENOTEMPTY && errno != EEXIST) return false;
    if (!gd_os_exchange(at, from, to)) return replace_in_two(in, from, to, own, rest);
    return gd_os_flush_folder(at) && folder_clear(in, from, to, own, rest);
}

bool folder_remove(const open_folder *in, const char *name, const char *removing,
                   const char *const *own, char rest[FOLDER_NAME])
{
    const int at = in->descriptor;
    if (!folder_clear(in, removing, "unfinished", own, rest)) return false;
    const gd_os_kind kind = kind_at(at, name);
    if (!kind) return errno == 0;
    if (kind != GD_OS_IS_FOLDER) return true;
    return gd_os_rename(at, name, removing) && gd_os_flush_folder(at) &&
           folder_clear(in, removing, name, own, rest);
}

typedef struct repair {
    const open_folder *in;
    const char *prefix;
    const char *const *own;
} repair;

static bool repair_one(void *user, int at, const char *aside)
{
    const repair *r = user;
    const size_t prefix = sizeof replaced - 1;
    const char *name = aside + prefix;
    char rest[FOLDER_NAME];
    if (strncmp(aside, replaced, prefix) != 0 || number_of(name, r->prefix) < 0 ||
        kind_at(at, aside) != GD_OS_IS_FOLDER)
        return true;
    if (kind_at(at, name)) return folder_clear(r->in, aside, name, r->own, rest);
    return !errno && gd_os_rename(at, aside, name);
}

bool folder_repair(const open_folder *in, const char *prefix, const char *const *own)
{
    repair r = {in, prefix, own};
    return gd_os_each_name(in->descriptor, repair_one, &r);
}

/* ---- Locks -------------------------------------------------------------------------------- */

int folder_lock(const open_folder *in, const char *name)
{
    gd_os_status status;
    if (!gd_os_status_of(in->descriptor, &status)) return -1;
    const unsigned mode =
        0600u | (status.mode & 0020 ? 0060u : 0) | (status.mode & 0002 ? 0006u : 0);
    for (int attempt = 0; attempt < 100; attempt++) {
        const gd_os_kind kind = kind_at(in->descriptor, name);
        if (kind && kind != GD_OS_IS_FILE) errno = kind == GD_OS_IS_LINK ? ELOOP : EINVAL;
        if (kind ? kind != GD_OS_IS_FILE : errno != 0) return -1;
        const int how = GD_OS_READ | GD_OS_WRITE | GD_OS_MAKE | GD_OS_NO_LINK | GD_OS_NO_WAIT;
        const int file = gd_os_open(in->descriptor, name, how, mode);
        if (file < 0) return -1;
        status.mode = mode;
        if (!kind) gd_os_set_access(file, &status); /* whatever the umask; only a convenience */
        if (!gd_os_lock(file)) {
            gd_os_close(file);
            return -1;
        }
        if (is_named(in->descriptor, name, false, file)) return file; /* not removed meanwhile */
        gd_os_close(file);
    }
    errno = EWOULDBLOCK;
    return -1;
}

void folder_unlock(const open_folder *in, const char *name, int lock)
{
    if (is_named(in->descriptor, name, false, lock)) gd_os_remove(in->descriptor, name);
    gd_os_close(lock);
}
