/* file_more_posix.c - see file.h: what the programs need beyond the library. */
#define _GNU_SOURCE          /* syscall, fcntl's locks of open files */
#define _FILE_OFFSET_BITS 64 /* off_t, where it could have 32 */
#include "platform/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

/* ---- Opening -------------------------------------------------------------------------------- */

int gd_os_duplicate(int file)
{
    return fcntl(file, F_DUPFD_CLOEXEC, 0);
}

FILE *gd_os_stream_of(int file, const char *mode)
{
    return fdopen(file, mode);
}

int64_t gd_os_stream_at(FILE *file)
{
    return ftello(file);
}

/* ---- Bytes ---------------------------------------------------------------------------------- */

ptrdiff_t gd_os_write_some(int file, const void *data, size_t bytes)
{
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    struct sigaction before;
    ssize_t written;
    sigaction(SIGPIPE, &ignored, &before);
    do written = write(file, data, bytes);
    while (written < 0 && errno == EINTR);
    const int why = errno;
    sigaction(SIGPIPE, &before, NULL);
    errno = why;
    return written;
}

bool gd_os_cut(int file, int64_t size)
{
    return !ftruncate(file, size) && lseek(file, size, SEEK_SET) >= 0;
}

bool gd_os_wait_for_bytes(int file, double seconds)
{
    struct pollfd one = {.fd = file, .events = POLLIN};
    int ready;
    do ready = poll(&one, 1, seconds < 0 ? -1 : (int)(1e3 * seconds));
    while (ready < 0 && errno == EINTR && seconds < 0);
    return ready != 0;
}

void gd_os_set_waiting(int file)
{
    fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
}

/* ---- Names ---------------------------------------------------------------------------------- */

/* Not every C library has renameat2, nor every kernel, nor every file system this flag. */
bool gd_os_exchange(int folder, const char *from, const char *to)
{
#if defined(__APPLE__) && defined(RENAME_SWAP)
    return !renameatx_np(folder, from, folder, to, RENAME_SWAP);
#elif defined(__linux__) && defined(SYS_renameat2)
    enum { EXCHANGE = 1 << 1 }; /* RENAME_EXCHANGE */
    return !syscall(SYS_renameat2, folder, from, folder, to, EXCHANGE);
#else
    (void)folder, (void)from, (void)to;
    errno = ENOSYS;
    return false;
#endif
}

bool gd_os_link(int folder, const char *name, const char *target)
{
    return !symlinkat(target, folder, name);
}

bool gd_os_each_name(int folder, gd_os_action *action, void *user)
{
    const int again = gd_os_open(folder, ".", GD_OS_READ | GD_OS_FOLDER, 0);
    DIR *list = again < 0 ? NULL : fdopendir(again);
    bool fine = list != NULL, more = fine;
    while (more) {
        errno = 0;
        const struct dirent *entry = readdir(list);
        more = entry != NULL;
        if (!more) fine = errno == 0;
        if (!more || !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        more = fine = action(user, folder, entry->d_name);
    }
    const int why = errno;
    if (list)
        closedir(list);
    else if (again >= 0)
        close(again);
    errno = why;
    return fine;
}

/* A file's own name may look like a pattern that does not match it. */
bool gd_os_find_paths(const char *pattern, char ***paths, size_t *count)
{
    glob_t found;
    *paths = NULL, *count = 0;
    const int trouble = glob(pattern, access(pattern, F_OK) ? 0 : GLOB_NOCHECK, NULL, &found);
    if (trouble) {
        errno = trouble == GLOB_NOMATCH ? 0 : trouble == GLOB_NOSPACE ? ENOMEM : EIO;
        return false;
    }
    *paths = calloc(found.gl_pathc, sizeof **paths);
    bool fine = *paths != NULL;
    for (; fine && *count < found.gl_pathc; *count += fine)
        fine = ((*paths)[*count] = strdup(found.gl_pathv[*count])) != NULL;
    globfree(&found);
    if (fine) return true;
    gd_os_free_paths(*paths, *count);
    errno = ENOMEM;
    return false;
}

void gd_os_free_paths(char **paths, size_t count)
{
    for (size_t i = 0; i < count; i++) free(paths[i]);
    free(paths);
}

/* ---- Locks ---------------------------------------------------------------------------------- */

/* A lock of an open file, or where there are none of those, of the process. */
#ifdef F_OFD_SETLK
enum { SET_LOCK = F_OFD_SETLK, GET_LOCK = F_OFD_GETLK };
#else
enum { SET_LOCK = F_SETLK, GET_LOCK = F_GETLK };
#endif

/* Locks of fcntl, not of flock: who may only read a file can have its flock, but not a write lock.
 * With a read lock it could keep ours away, so a read lock does not count. */
bool gd_os_lock(int file)
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

int gd_os_is_locked(int file)
{
    struct flock one = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (fcntl(file, GET_LOCK, &one)) return -1;
    return one.l_type == F_WRLCK;
}

/* ---- Memory and temporary folders ----------------------------------------------------------- */

void *gd_os_map(int file, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void gd_os_unmap(void *memory, size_t bytes)
{
    if (memory) munmap(memory, bytes);
}

#ifdef __linux__

void gd_os_wait_for_word(const uint32_t *word, uint32_t value, double seconds)
{
    const struct timespec most = {(time_t)seconds,
                                  (long)(1e9 * (seconds - (double)(time_t)seconds))};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &most, NULL, 0);
}

void gd_os_wake_for_word(const uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#else

/* Nobody is woken, so nobody sleeps for long. */
void gd_os_wait_for_word(const uint32_t *word, uint32_t value, double seconds)
{
    const struct timespec moment = {0, 50000};
    (void)word, (void)value, (void)seconds;
    nanosleep(&moment, NULL);
}

void gd_os_wake_for_word(const uint32_t *word)
{
    (void)word;
}

#endif

bool gd_os_make_temporary(char *path, size_t size)
{
    const char *in = getenv("TMPDIR");
    errno = ENAMETOOLONG;
    const int length = snprintf(path, size, "%s/gradus-XXXXXX", in && *in ? in : "/tmp");
    return length > 0 && (size_t)length < size && mkdtemp(path) != NULL;
}
