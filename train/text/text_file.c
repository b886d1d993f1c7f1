/* text_file.c - see text_file.h. */
#define _DEFAULT_SOURCE /* pread, the types of <sys/stat.h> */
#include "text_file.h"
#include "console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 16, PATIENCE = 1000 /* milliseconds */ };

/* Opens a file that can be read to its end; -1, and why, if it cannot. Opening a pipe does not wait
 * for a writer. */
static int open_text(const char *path, struct stat *status, const char **why)
{
    int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0 || fstat(file, status))
        *why = strerror(errno);
    else if (S_ISBLK(status->st_mode) || (S_ISCHR(status->st_mode) && !isatty(file)))
        *why = "it is a device, wanted a file or a pipe";
    if (*why && file >= 0) close(file);
    return *why ? -1 : file;
}

/* Waits until there is something in a pipe, with a message if that takes long. */
static void wait_for_text(int file, const char *option, const char *path)
{
    struct pollfd one = {.fd = file, .events = POLLIN};
    if (poll(&one, 1, PATIENCE) == 0) {
        console_message("%s %s: waiting for a writer", option, path);
        while (poll(&one, 1, -1) < 0 && errno == EINTR) continue;
    }
    fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
}

/* Reads to the end, but not past `most` bytes, into memory that grows; `room` is a first guess. */
static uint8_t *read_all(int file, size_t room, size_t most, size_t *used, const char **why)
{
    uint8_t *bytes = malloc(room + 1);
    *used = 0;
    for (ssize_t got = 1; bytes && got > 0 && *used <= most;) {
        if (*used == room) {
            uint8_t *grown = realloc(bytes, (room *= 2) + 1);
            if (!grown) free(bytes);
            bytes = grown;
        }
        got = bytes ? read(file, bytes + *used, room - *used) : 0;
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got < 0)
            *why = strerror(errno);
        else
            *used += (size_t)got;
    }
    if (!bytes) *why = "out of memory";
    if (*used > most) *why = strerror(EFBIG);
    return bytes;
}

bool text_file_at(int file, void *bytes, size_t count, int64_t at)
{
    for (char *room = bytes; count > 0;) {
        const ssize_t got = pread(file, room, count, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = ENODATA;
        if (got <= 0) return false;
        room += got;
        at += got;
        count -= (size_t)got;
    }
    return true;
}

const char *text_file_pointer(const void *text, size_t length)
{
    static const char mark[] = "version https://git-lfs.";
    enum { MOST = 1024 }; /* bytes of a pointer */
    return length > sizeof mark && length <= MOST && !memcmp(text, mark, sizeof mark - 1)
               ? "it is a Git LFS pointer; \"git lfs pull\" fetches the file itself"
               : NULL;
}

uint8_t *text_file_read(const char *option, const char *path, int64_t most, int64_t *length)
{
    struct stat status = {0};
    const char *why = NULL;
    uint8_t *bytes = NULL;
    size_t used = 0;
    int file = open_text(path, &status, &why);
    if (file >= 0) {
        bool regular = S_ISREG(status.st_mode);
        size_t room = regular && status.st_size > 0 ? (size_t)status.st_size : 0;
        if (!regular) wait_for_text(file, option, path);
        if ((int64_t)room > most)
            why = strerror(EFBIG);
        else
            bytes = read_all(file, room + PIECE, (size_t)most, &used, &why);
        close(file);
    }
    if (!why) why = text_file_pointer(bytes, used);
    if (!why) {
        bytes[used] = 0;
        *length = (int64_t)used;
        return bytes;
    }
    console_message("%s %s: %s", option, path, why);
    free(bytes);
    return NULL;
}
