/* folder.c - see folder.h. */
#define _GNU_SOURCE /* syscall */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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
    size_t end = strlen(folder);
    const char *slash = end > 0 && folder[end - 1] == '/' ? "" : "/";
    int length = snprintf(path, FOLDER_PATH, "%s%s%s", folder, slash, name);
    if (length >= 0 && length < FOLDER_PATH) return true;
    errno = ENAMETOOLONG;
    return false;
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

static int open_at(int folder, const char *name, int flags, mode_t mode)
{
    int file;
    do file = openat(folder, name, flags | O_CLOEXEC, mode);
    while (file < 0 && errno == EINTR);
    return file;
}

/* Closes it after a failure, whose reason stays. */
static bool close_failed(int file)
{
    const int why = errno;
    if (file >= 0) close(file);
    errno = why;
    return false;
}

static bool flush(int file)
{
    int failed;
    do failed = fsync(file);
    while (failed && errno == EINTR);
    return !failed;
}

/* Some file systems cannot flush a folder, and say EINVAL. */
static bool flush_folder(int folder)
{
    return flush(folder) || errno == EINVAL;
}

/* What is at a name, links not followed; 0: nothing, or, with errno, not known. */
static mode_t kind_at(int folder, const char *name)
{
    struct stat status;
    if (!fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW)) return status.st_mode & S_IFMT;
    if (errno == ENOENT) errno = 0;
    return 0;
}

/* Whether what is at a name is the opened file or folder. */
static bool is_named(int folder, const char *name, int flags, int file)
{
    struct stat opened, found;
    return !fstat(file, &opened) && !fstatat(folder, name, &found, flags) &&
           opened.st_dev == found.st_dev && opened.st_ino == found.st_ino;
}

/* ---- Folders ------------------------------------------------------------------------------ */

/* Flushes the folder that a path is in. */
static bool flush_parent(const char *path)
{
    char parent[FOLDER_PATH];
    if (!folder_copy(parent, path)) return false;
    char *slash = strrchr(parent, '/');
    if (slash) slash[slash == parent] = '\0';
    int folder = open_at(AT_FDCWD, slash ? parent : ".", O_RDONLY | O_DIRECTORY, 0);
    if (folder < 0) return errno == EACCES; /* one that cannot be listed was there before */
    if (!flush_folder(folder)) return close_failed(folder);
    return !close(folder);
}

bool folder_make_path(const char *path)
{
    struct stat status;
    if (!mkdir(path, 0777)) return flush_parent(path);
    if (errno != EEXIST || stat(path, &status)) return false;
    errno = ENOTDIR;
    return S_ISDIR(status.st_mode);
}

bool folder_make_all(const char *path)
{
    char part[FOLDER_PATH];
    if (!folder_copy(part, path)) return false;
    size_t end = strlen(part);
    while (end > 1 && part[end - 1] == '/') part[--end] = '\0';
    for (char *slash = part; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        if (!folder_make_path(part)) return false;
        *slash = '/';
    }
    return folder_make_path(part);
}

bool folder_open(open_folder *f, const char *path, bool links)
{
    *f = (open_folder){.links = links};
    const int folder = open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
    if (folder < 0) return false;
    if (!folder_copy(f->path, path)) return close_failed(folder);
    f->descriptor = folder;
    return true;
}

bool folder_enter(open_folder *f, const open_folder *in, const char *name)
{
    *f = (open_folder){0};
    const int folder = open_at(in->descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (folder < 0) {
        if (errno == ENOTDIR && kind_at(in->descriptor, name) == S_IFLNK) errno = ELOOP;
        return false;
    }
    if (!folder_join(f->path, in->path, name)) return close_failed(folder);
    f->descriptor = folder;
    return true;
}

bool folder_make(const open_folder *in, const char *name)
{
    return !mkdirat(in->descriptor, name, 0777);
}

void folder_close(open_folder *f)
{
    if (f->path[0]) close(f->descriptor);
    for (int i = 0; i < f->held; i++) close(f->hold[i].descriptor);
    *f = (open_folder){0};
}

bool folder_is_there(const open_folder *f)
{
    return is_named(AT_FDCWD, f->path, 0, f->descriptor);
}

bool folder_flush(const open_folder *f)
{
    return flush_folder(f->descriptor);
}

/* ---- Entries ------------------------------------------------------------------------------- */

/* Calls `action` with each name in a folder, until it returns false. */
static bool for_each_name(int folder, bool (*action)(void *user, int folder, const char *name),
                          void *user)
{
    const int again = open_at(folder, ".", O_RDONLY | O_DIRECTORY, 0);
    DIR *list = again < 0 ? NULL : fdopendir(again);
    if (!list) return close_failed(again);
    bool fine = true;
    while (fine) {
        errno = 0;
        const struct dirent *entry = readdir(list);
        if (!entry) fine = errno == 0;
        if (!entry) break;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        fine = action(user, folder, entry->d_name);
    }
    const int why = errno;
    closedir(list);
    errno = why;
    return fine;
}

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
    if (!for_each_name(in->descriptor, add_number, &n)) {
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
static bool check_kind(const struct stat *status, folder_use use)
{
    const bool regular = S_ISREG(status->st_mode);
    const bool written = use == FOLDER_WRITE || use == FOLDER_KEEP || use == FOLDER_APPEND;
    if (regular && (!written || status->st_nlink <= 1)) return true;
    errno = regular ? EMLINK : S_ISLNK(status->st_mode) ? ELOOP : EINVAL;
    return false;
}

static int open_checked(const open_folder *in, const char *name, folder_use use)
{
    static const int flags[] = {O_RDONLY, O_WRONLY, O_WRONLY | O_CREAT | O_EXCL, O_RDWR | O_CREAT,
                                O_WRONLY | O_CREAT | O_APPEND};
    const bool links = in->links && use == FOLDER_READ;
    struct stat status;
    if (!fstatat(in->descriptor, name, &status, links ? 0 : AT_SYMLINK_NOFOLLOW)) {
        if (!check_kind(&status, use)) return -1;
    } else if (errno != ENOENT) {
        return -1;
    }
    const int file = open_at(in->descriptor, name,
                             flags[use] | O_NONBLOCK | O_NOCTTY | (links ? 0 : O_NOFOLLOW), 0666);
    if (file >= 0 && (fstat(file, &status) || !check_kind(&status, use))) {
        close_failed(file);
        return -1;
    }
    return file;
}

int folder_file(open_folder *in, const char *name, folder_use use)
{
    int file = -1, held = 0;
    while (held < in->held && strcmp(in->hold[held].name, name) != 0) held++;
    if (use == FOLDER_READ && held < in->held)
        file = fcntl(in->hold[held].descriptor, F_DUPFD_CLOEXEC, 0);
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
    struct stat status;
    if (fstat(file, &status)) return NULL;
    errno = EFBIG;
    const size_t size = (size_t)status.st_size;
    char *text = size <= limit ? malloc(size + 1) : NULL;
    ssize_t got = 1;
    for (*length = 0; text && got > 0 && *length < size;) {
        got = pread(file, text + *length, size - *length, (off_t)*length);
        if (got > 0) *length += (size_t)got;
        if (got < 0 && errno == EINTR) got = 1;
    }
    if (text && got < 0) {
        const int why = errno;
        free(text);
        errno = why;
        return NULL;
    }
    if (text) text[*length] = '\0';
    return text;
}

char *folder_read_text(open_folder *in, const char *name, size_t limit, size_t *length)
{
    const int file = folder_file(in, name, FOLDER_READ);
    if (file < 0) return NULL;
    char *text = read_all(file, limit, length);
    close_failed(file);
    if (!text && errno != EFBIG && !in->trouble) in->trouble = errno;
    return text;
}

bool folder_write(int file, const void *bytes, size_t count)
{
    const size_t most = (size_t)1 << 30;
    const char *at = bytes;
    while (count > 0) {
        const ssize_t written = write(file, at, count < most ? count : most);
        if (written < 0 && errno == EINTR) continue;
        if (written == 0) errno = ENOSPC;
        if (written <= 0) return false;
        at += written;
        count -= (size_t)written;
    }
    return true;
}

bool folder_end_file(int file)
{
    if (!flush(file)) return close_failed(file);
    return !close(file);
}

bool folder_link(const open_folder *in, const char *name, const char *target)
{
    char fresh[FOLDER_NAME];
    const int at = in->descriptor;
    errno = ENAMETOOLONG;
    if (snprintf(fresh, sizeof fresh, ".%s", name) >= FOLDER_NAME) return false;
    const mode_t kinds[] = {kind_at(at, name), kind_at(at, fresh)};
    for (int i = 0; i < 2; i++) {
        if (kinds[i] == 0 || kinds[i] == S_IFLNK) continue;
        errno = EEXIST;
        return false;
    }
    if (kinds[1] && unlinkat(at, fresh, 0)) return false;
    return !symlinkat(target, at, fresh) && !renameat(at, fresh, at, name) && flush_folder(at);
}

/* ---- Replacing and removing folders of files ---------------------------------------------- */

static const char replaced[] = ".replaced."; /* before the name of a folder that is put aside */

static bool is_own(const char *const *own, const char *name)
{
    static const char end[] = ".tmp";
    const size_t length = strlen(name), tail = sizeof end - 1;
    for (; *own; own++) {
        const size_t begin = strlen(*own);
        if (strncmp(name, *own, begin) != 0) continue;
        if (!name[begin]) return true;
        if (name[begin] == '.' && length > begin + tail && !strcmp(name + length - tail, end))
            return true;
    }
    return false;
}

/* A folder that has the name of a file stays: it is not the run's own. */
static bool remove_own(void *user, int folder, const char *name)
{
    if (!is_own(user, name) || !unlinkat(folder, name, 0)) return true;
    return errno == ENOENT || kind_at(folder, name) == S_IFDIR;
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
        return !errno && !renameat(in->descriptor, name, in->descriptor, rest);
    }
    errno = EEXIST;
    return false;
}

static bool clear(const open_folder *in, const char *name, const char *label,
                  const char *const *own, char rest[FOLDER_NAME])
{
    const mode_t kind = kind_at(in->descriptor, name);
    if (!kind) return errno == 0;
    if (kind != S_IFDIR) return keep_rest(in, name, label, rest);
    open_folder within;
    if (!folder_enter(&within, in, name)) return keep_rest(in, name, label, rest);
    const bool removed = for_each_name(within.descriptor, remove_own, (void *)(uintptr_t)own) &&
                         !unlinkat(in->descriptor, name, AT_REMOVEDIR);
    folder_close(&within);
    return removed || keep_rest(in, name, label, rest);
}

bool folder_clear(const open_folder *in, const char *name, const char *label,
                  const char *const *own, char rest[FOLDER_NAME])
{
    rest[0] = '\0';
    return clear(in, name, label, own, rest);
}

/* Not every C library has renameat2, nor every kernel, nor every file system this flag. */
static bool exchange(int folder, const char *from, const char *to)
{
#ifdef SYS_renameat2
    enum { EXCHANGE = 1 << 1 }; /* RENAME_EXCHANGE */
    return !syscall(SYS_renameat2, folder, from, folder, to, EXCHANGE);
#else
    (void)folder, (void)from, (void)to;
    errno = ENOSYS;
    return false;
#endif
}

/* Both on the disk before the old one is removed: a power failure must leave one of them whole. */
static bool replace_in_two(const open_folder *in, const char *from, const char *to,
                           const char *const *own, char rest[FOLDER_NAME])
{
    char aside[FOLDER_NAME];
    const int at = in->descriptor, length = snprintf(aside, sizeof aside, "%s%s", replaced, to);
    errno = ENAMETOOLONG;
    if (length >= FOLDER_NAME || !clear(in, aside, to, own, rest) || renameat(at, to, at, aside))
        return false;
    if (renameat(at, from, at, to)) {
        const int why = errno;
        renameat(at, aside, at, to); /* if that fails, too, folder_repair does it */
        errno = why;
        return false;
    }
    return flush_folder(at) && clear(in, aside, to, own, rest);
}

bool folder_replace(const open_folder *in, const char *from, const char *to, const char *const *own,
                    char rest[FOLDER_NAME])
{
    const int at = in->descriptor;
    const mode_t kind = kind_at(at, to);
    rest[0] = '\0';
    if (!kind && errno) return false;
    if (kind && kind != S_IFDIR && !keep_rest(in, to, to, rest)) return false;
    if (!renameat(at, from, at, to)) return flush_folder(at);
    if (errno != ENOTEMPTY && errno != EEXIST) return false;
    if (!exchange(at, from, to)) return replace_in_two(in, from, to, own, rest);
    return flush_folder(at) && clear(in, from, to, own, rest);
}

bool folder_remove(const open_folder *in, const char *name, const char *removing,
                   const char *const *own, char rest[FOLDER_NAME])
{
    const int at = in->descriptor;
    rest[0] = '\0';
    if (!clear(in, removing, "unfinished", own, rest)) return false;
    const mode_t kind = kind_at(at, name);
    if (!kind) return errno == 0;
    if (kind != S_IFDIR) return true;
    return !renameat(at, name, at, removing) && flush_folder(at) &&
           clear(in, removing, name, own, rest);
}

typedef struct repair {
    const open_folder *in;
    const char *const *own;
} repair;

static bool repair_one(void *user, int at, const char *aside)
{
    const repair *r = user;
    const size_t prefix = sizeof replaced - 1;
    const char *name = aside + prefix;
    char rest[FOLDER_NAME];
    if (strncmp(aside, replaced, prefix) != 0 || kind_at(at, aside) != S_IFDIR) return true;
    if (kind_at(at, name)) return clear(r->in, aside, name, r->own, rest);
    return !errno && !renameat(at, aside, at, name);
}

bool folder_repair(const open_folder *in, const char *const *own)
{
    repair r = {in, own};
    return for_each_name(in->descriptor, repair_one, &r);
}

/* ---- Locks -------------------------------------------------------------------------------- */

/* A lock of an open file, or where there are none of those, of the process. */
#ifdef F_OFD_SETLK
enum { SET_LOCK = F_OFD_SETLK, GET_LOCK = F_OFD_GETLK };
#else
enum { SET_LOCK = F_SETLK, GET_LOCK = F_GETLK };
#endif

/* Locks of fcntl, not of flock: who may only read a file can have its flock, but not a write lock.
 * With a read lock it could keep ours away, so a read lock does not count. */
bool folder_lock_file(int file)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        struct flock first = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        if (!fcntl(file, SET_LOCK, &first) || (errno != EACCES && errno != EAGAIN)) return true;
        first.l_pid = 0;
        if (fcntl(file, GET_LOCK, &first) || first.l_type == F_RDLCK) return true;
        if (first.l_type == F_WRLCK) break; /* else it has just been unlocked */
    }
    errno = EWOULDBLOCK;
    return false;
}

/* The run that had it locked has not removed it meanwhile. */
static bool is_lock(const open_folder *in, const char *name, int lock)
{
    return is_named(in->descriptor, name, AT_SYMLINK_NOFOLLOW, lock);
}

int folder_lock(const open_folder *in, const char *name)
{
    struct stat status;
    if (fstat(in->descriptor, &status)) return -1;
    const mode_t mode = (mode_t)(0600 | (status.st_mode & S_IWGRP ? 0060 : 0) |
                                 (status.st_mode & S_IWOTH ? 0006 : 0));
    for (int attempt = 0; attempt < 100; attempt++) {
        const mode_t kind = kind_at(in->descriptor, name);
        if (kind && kind != S_IFREG) errno = kind == S_IFLNK ? ELOOP : EINVAL;
        if (kind ? kind != S_IFREG : errno != 0) return -1;
        const int file = open_at(in->descriptor, name,
                                 O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode);
        if (file < 0) return -1;
        if (!kind) fchmod(file, mode); /* whatever the umask; only a convenience */
        if (!folder_lock_file(file)) {
            close_failed(file);
            return -1;
        }
        if (is_lock(in, name, file)) return file;
        close(file);
    }
    errno = EWOULDBLOCK;
    return -1;
}

void folder_unlock(const open_folder *in, const char *name, int lock)
{
    if (is_lock(in, name, lock)) unlinkat(in->descriptor, name, 0);
    close(lock);
}
