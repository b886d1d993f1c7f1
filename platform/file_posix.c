/* file_posix.c - see file.h: what the library needs. */
#define _POSIX_C_SOURCE 200809L /* openat, pread */
#define _FILE_OFFSET_BITS 64    /* off_t, where it could have 32 */
#include "platform/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    return !close(file);
}

/* ---- What it is ----------------------------------------------------------------------------- */

static void translate(const struct stat *from, gd_os_status *to)
{
    const mode_t kind = from->st_mode & S_IFMT;
    *to = (gd_os_status){.kind = GD_OS_IS_OTHER,
                         .size = from->st_size,
                         .names = (int64_t)from->st_nlink,
                         .mode = from->st_mode & 07777,
                         .volume = (uint64_t)from->st_dev,
                         .number = (uint64_t)from->st_ino};
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

/* A write may be partial. */
bool gd_os_write(int file, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        const ssize_t written = write(file, at, bytes < MOST ? bytes : MOST);
        if (written < 0 && errno == EINTR) continue;
        if (written == 0) errno = ENOSPC;
        if (written <= 0) return false;
        at += written;
        bytes -= (size_t)written;
    }
    return true;
}

bool gd_os_write_at(int file, const void *data, size_t bytes, int64_t at)
{
    for (const char *from = data; bytes > 0;) {
        const ssize_t written = pwrite(file, from, bytes < MOST ? bytes : MOST, at);
        if (written < 0 && errno == EINTR) continue;
        if (written == 0) errno = ENOSPC;
        if (written <= 0) return false;
        from += written;
        at += written;
        bytes -= (size_t)written;
    }
    return true;
}

bool gd_os_skip(int file, size_t bytes)
{
    /* In parentheses: wasi-libc also has a macro of this name, which is not standard C. */
    const off_t end = (lseek)(file, (off_t)bytes, SEEK_CUR);
    return end >= 0 && !ftruncate(file, end);
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
