/* file_posix.c - see file.h: what the library needs. */
#define _XOPEN_SOURCE 700    /* openat, pread, S_ISVTX */
#define _FILE_OFFSET_BITS 64 /* off_t, where it could have 32 */
#include "platform/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __wasi__ /* where nobody owns anything */
#define fchown(file, owner, group) ((void)(file), (void)(owner), (void)(group), 0)
#define fchmod(file, mode) ((void)(file), (void)(mode), 0)
#define geteuid() ((uid_t)0)
#endif

_Static_assert(sizeof(off_t) == 8, "offsets have 64 bits");

const int gd_os_here = AT_FDCWD;

/* ---- Opening -------------------------------------------------------------------------------- */

int gd_os_open(int folder, const char *name, int how, unsigned mode)
{
    static const int bits[] = {0,        0,           O_CREAT,    O_CREAT | O_EXCL,
                               O_APPEND, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK};
    const bool both = how & GD_OS_READ && how & GD_OS_WRITE;
    int flags = O_CLOEXEC | O_NOCTTY | (both ? O_RDWR : how & GD_OS_WRITE ? O_WRONLY : O_RDONLY);
    for (int i = 0; i < 8; i++) flags |= how >> i & 1 ? bits[i] : 0;
    int file;
    do file = openat(folder, name, flags, (mode_t)mode);
    while (file < 0 && errno == EINTR);
    return file;
}

bool gd_os_close(int file)
{
    const int before = errno;
    if (file >= 0 && close(file)) return false;
    errno = before;
    return true;
}

/* ---- What it is ----------------------------------------------------------------------------- */

static void translate(const struct stat *from, gd_os_status *to)
{
    const mode_t kind = from->st_mode & S_IFMT;
#ifdef __APPLE__
    const long nanoseconds = from->st_mtimensec;
#else
    const long nanoseconds = from->st_mtim.tv_nsec;
#endif
    *to = (gd_os_status){.kind = GD_OS_IS_OTHER,
                         .size = from->st_size,
                         .names = (int64_t)from->st_nlink,
                         .mode = from->st_mode & 07777,
                         .owner = from->st_uid,
                         .group = from->st_gid,
                         .volume = (uint64_t)from->st_dev,
                         .number = (uint64_t)from->st_ino,
                         .written = (int64_t)from->st_mtime * 1000000000 + nanoseconds};
    if (kind == S_IFREG) to->kind = GD_OS_IS_FILE;
    if (kind == S_IFDIR) to->kind = GD_OS_IS_FOLDER;
    if (kind == S_IFLNK) to->kind = GD_OS_IS_LINK;
    if (kind == S_IFIFO) to->kind = GD_OS_IS_PIPE;
    if (kind == S_IFCHR || kind == S_IFBLK) to->kind = GD_OS_IS_DEVICE;
}

bool gd_os_status_of(int file, gd_os_status *status)
{
    struct stat found;
    if (fstat(file, &found)) return false;
    translate(&found, status);
    return true;
}

bool gd_os_status_at(int folder, const char *name, bool follow, gd_os_status *status)
{
    struct stat found;
    if (fstatat(folder, name, &found, follow ? 0 : AT_SYMLINK_NOFOLLOW)) return false;
    translate(&found, status);
    return true;
}

/* Follows only the caller's own link or that of the folder's owner in a folder where everybody may
 * put one, as Linux itself does where fs.protected_symlinks is set. */
bool gd_os_read_link(int folder, const char *name, char *target, size_t size)
{
    const mode_t anybody = S_ISVTX | S_IWOTH;
    struct stat in, link;
    if (fstatat(folder, ".", &in, 0) || fstatat(folder, name, &link, AT_SYMLINK_NOFOLLOW))
        return false;
    const bool planted =
        (in.st_mode & anybody) == anybody && link.st_uid != in.st_uid && link.st_uid != geteuid();
    const ssize_t length = planted ? -1 : readlinkat(folder, name, target, size - 1);
    if (planted) errno = EACCES;
    target[length < 0 ? 0 : length] = '\0';
    return length >= 0;
}

/* Only the administrator may give a file away, and others only to a group of their own. */
void gd_os_set_access(int file, const gd_os_status *like)
{
    struct stat now;
    unsigned mode = like->mode;
    const unsigned both = mode >> 3 & mode & 07;
    if (fchown(file, like->owner, like->group)) (void)!fchown(file, (uid_t)-1, like->group);
    if (fstat(file, &now)) return;
    if (now.st_uid != like->owner) mode &= 01777;
    if (now.st_gid != like->group) mode = (mode & 01700) | both << 3 | both;
    (void)!fchmod(file, (mode_t)mode);
}

/* ---- Bytes ---------------------------------------------------------------------------------- */

static const size_t MOST = (size_t)1 << 30; /* of one call; Linux and macOS have limits near 2^31 */

ptrdiff_t gd_os_read(int file, void *data, size_t bytes)
{
    ssize_t got;
    do got = read(file, data, bytes < MOST ? bytes : MOST);
    while (got < 0 && errno == EINTR);
    return got;
}

ptrdiff_t gd_os_read_at(int file, void *data, size_t bytes, int64_t at)
{
    ssize_t got;
    do got = pread(file, data, bytes < MOST ? bytes : MOST, at);
    while (got < 0 && errno == EINTR);
    return got;
}

/* A write may be partial. `at` moves along; NULL: the file's position. */
static bool write_all(int file, const void *data, size_t bytes, int64_t *at)
{
    for (const char *from = data; bytes > 0;) {
        const size_t most = bytes < MOST ? bytes : MOST;
        const ssize_t written = at ? pwrite(file, from, most, *at) : write(file, from, most);
        if (written < 0 && errno == EINTR) continue;
        if (written == 0) errno = ENOSPC;
        if (written <= 0) return false;
        from += written;
        bytes -= (size_t)written;
        if (at) *at += written;
    }
    return true;
}

bool gd_os_write(int file, const void *data, size_t bytes)
{
    return write_all(file, data, bytes, NULL);
}

bool gd_os_write_at(int file, const void *data, size_t bytes, int64_t at)
{
    return write_all(file, data, bytes, &at);
}

/* macOS's fsync leaves the data in the disk's own cache. Not every file system there can more. */
bool gd_os_flush(int file)
{
    int failed;
#ifdef F_FULLFSYNC
    if (fcntl(file, F_FULLFSYNC) != -1) return true;
#endif
    do failed = fsync(file);
    while (failed && errno == EINTR);
    return !failed;
}

/* Some file systems cannot flush a folder, and say EINVAL. */
bool gd_os_flush_folder(int folder)
{
    return gd_os_flush(folder) || errno == EINVAL;
}

/* ---- Names ---------------------------------------------------------------------------------- */

bool gd_os_make_folder(int folder, const char *name)
{
    return !mkdirat(folder, name, 0777);
}

bool gd_os_remove(int folder, const char *name)
{
    return !unlinkat(folder, name, 0);
}

bool gd_os_remove_folder(int folder, const char *name)
{
    return !unlinkat(folder, name, AT_REMOVEDIR);
}

bool gd_os_rename(int folder, const char *from, const char *to)
{
    return !renameat(folder, from, folder, to);
}

char *gd_os_last_slash(const char *path)
{
    return strrchr(path, '/');
}
