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

bool folder_has(const char *path)
{
    return access(path, F_OK) == 0;
}

bool folder_make(const char *path)
{
    struct stat status;
    if (!mkdir(path, 0777)) return true;
    if (errno != EEXIST || stat(path, &status)) return false;
    errno = ENOTDIR;
    return S_ISDIR(status.st_mode);
}

bool folder_make_all(const char *path)
{
    char part[FOLDER_PATH];
    if (!folder_copy(part, path)) return false;
    for (char *slash = part; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        if (!folder_make(part)) return false;
        *slash = '/';
    }
    return folder_make(part);
}

/* Some file systems cannot flush a folder, and say EINVAL. */
bool folder_flush(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return false;
    bool flushed = !fsync(descriptor) || errno == EINVAL;
    int why = errno;
    close(descriptor);
    errno = why;
    return flushed;
}

bool folder_remove(const char *path)
{
    DIR *list = opendir(path);
    if (!list) return errno == ENOENT;
    bool removed = true;
    for (struct dirent *entry; removed && (entry = readdir(list));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        removed = !unlinkat(dirfd(list), entry->d_name, 0) || errno == ENOENT;
    }
    closedir(list);
    return removed && !rmdir(path);
}

/* Not every C library has renameat2, nor every kernel. */
static bool exchange(const char *from, const char *to)
{
#ifdef SYS_renameat2
    enum { EXCHANGE = 1 << 1 }; /* RENAME_EXCHANGE */
    return !syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, EXCHANGE);
#else
    (void)from, (void)to;
    errno = ENOSYS;
    return false;
#endif
}

bool folder_replace(const char *from, const char *to)
{
    if (!rename(from, to)) return true;
    if (errno != ENOTEMPTY && errno != EEXIST) return false;
    if (!exchange(from, to)) return false;
    return folder_remove(from);
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

int64_t folder_list(const char *path, const char *prefix, int64_t **numbers)
{
    DIR *list = opendir(path);
    int64_t count = 0, room = 0;
    *numbers = NULL;
    if (!list) return -1;
    for (struct dirent *entry; (entry = readdir(list));) {
        int64_t number = number_of(entry->d_name, prefix);
        if (number < 0) continue;
        if (count == room) {
            room = room ? 2 * room : 64;
            int64_t *grown = realloc(*numbers, (size_t)room * sizeof *grown);
            if (!grown) {
                free(*numbers);
                closedir(list);
                *numbers = NULL;
                errno = ENOMEM;
                return -1;
            }
            *numbers = grown;
        }
        (*numbers)[count++] = number;
    }
    closedir(list);
    if (count) qsort(*numbers, (size_t)count, sizeof **numbers, compare_numbers);
    return count;
}

bool folder_write_text(const char *path, const char *text)
{
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0) return false;
    size_t left = strlen(text);
    while (left > 0) {
        ssize_t written = write(descriptor, text, left);
        if (written < 0 && errno != EINTR) break;
        if (written > 0) {
            text += written;
            left -= (size_t)written;
        }
    }
    bool whole = left == 0 && !fsync(descriptor);
    int why = errno;
    whole = !close(descriptor) && whole;
    if (left > 0) errno = why;
    return whole;
}

char *folder_read_text(const char *path, size_t limit, size_t *length)
{
    struct stat status = {0};
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (descriptor < 0) return NULL;
    char *text = NULL;
    ssize_t got = 1;
    *length = 0;
    if (fstat(descriptor, &status)) {
        got = -1;
    } else if (!S_ISREG(status.st_mode)) {
        errno = EINVAL;
    } else if ((uintmax_t)status.st_size > limit) {
        errno = EFBIG;
    } else {
        text = malloc((size_t)status.st_size + 1);
    }
    for (size_t room = (size_t)status.st_size; text && room > *length && got > 0;) {
        got = read(descriptor, text + *length, room - *length);
        if (got > 0) *length += (size_t)got;
        if (got < 0 && errno == EINTR) got = 1;
    }
    int why = errno;
    close(descriptor);
    if (text && got < 0) {
        free(text);
        text = NULL;
    }
    if (text) text[*length] = '\0';
    errno = why;
    return text;
}

const char *folder_read_reason(void)
{
    return errno == EINVAL ? "it is not a regular file" : strerror(errno);
}
