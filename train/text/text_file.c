/* text_file.c - see text_file.h. */
#include "text_file.h"
#include "console.h"
#include "files/file_kind.h"
#include "platform/file.h"
#include "platform/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16, PATIENCE = 1 /* seconds */ };

/* Opens a file that can be read to its end; -1, and why, if it cannot. Opening a pipe does not wait
 * for a writer. */
static int open_text(const char *path, gd_os_status *status, const char **why)
{
    const int file = gd_os_open(gd_os_here, path, GD_OS_READ | GD_OS_NO_WAIT, 0);
    if (file < 0 || !gd_os_status_of(file, status))
        *why = strerror(errno);
    else if (status->kind == GD_OS_IS_DEVICE && !gd_os_is_terminal(file))
        *why = "it is a device, wanted a file or a pipe";
    if (*why) gd_os_close(file);
    return *why ? -1 : file;
}

/* Waits until there is something in a pipe, with a message if that takes long. */
static void wait_for_text(int file, const char *option, const char *path)
{
    if (!gd_os_wait_for_bytes(file, PATIENCE)) {
        console_message("%s %s: waiting for a writer", option, path);
        gd_os_wait_for_bytes(file, -1);
    }
    gd_os_set_waiting(file);
}

/* Reads to the end, but not past `most` bytes, into memory that grows; `room` is a first guess. */
static uint8_t *read_all(int file, size_t room, size_t most, size_t *used, const char **why)
{
    uint8_t *bytes = malloc(room + 1);
    *used = 0;
    for (ptrdiff_t got = 1; bytes && got > 0 && *used <= most;) {
        if (*used == room) {
            uint8_t *grown = realloc(bytes, (room *= 2) + 1);
            if (!grown) free(bytes);
            bytes = grown;
        }
        got = bytes ? gd_os_read(file, bytes + *used, room - *used) : 0;
        if (got < 0)
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
        const ptrdiff_t got = gd_os_read_at(file, room, count, at);
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
    enum { MOST = 1024 }; /* bytes of a pointer */
    const char *kind = length <= MOST ? gd_file_kind(text, length) : NULL;
    return kind == gd_file_pointer ? kind : NULL;
}

uint8_t *text_file_read(const char *option, const char *path, int64_t most, int64_t *length)
{
    gd_os_status status = {0};
    const char *why = NULL;
    uint8_t *bytes = NULL;
    size_t used = 0;
    int file = open_text(path, &status, &why);
    if (file >= 0) {
        bool regular = status.kind == GD_OS_IS_FILE;
        size_t room = regular && status.size > 0 ? (size_t)status.size : 0;
        if (!regular) wait_for_text(file, option, path);
        if ((int64_t)room > most)
            why = strerror(EFBIG);
        else
            bytes = read_all(file, room + PIECE, (size_t)most, &used, &why);
        gd_os_close(file);
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

uint8_t *text_file_join(const char *option, const char *named, int64_t *length, paths *found,
                        int64_t **ends)
{
    uint8_t *all = NULL;
    int unended = 0;
    *length = 0;
    *found = (paths){0};
    *ends = NULL;
    if (!paths_find(found, named) || !(*ends = malloc(2 * found->count * sizeof **ends))) {
        console_message("%s %.200s: %s", option, named, paths_reason(found));
        return NULL;
    }
    for (size_t i = 0; i < found->count; i++) {
        int64_t more;
        const char *name = strcmp(found->name[i], "-") ? found->name[i] : "/dev/stdin";
        uint8_t *text = text_file_read(option, name, INT64_MAX - *length, &more);
        const int64_t mark =
            text && !memcmp(text, "\xef\xbb\xbf", more < 3 ? 0 : 3) && more >= 3 ? 3 : 0;
        if (text) memmove(text, text + mark, (size_t)((more -= mark) + 1));
        if (all && *length > 0 && all[*length - 1] != '\n' && unended++ == 0)
            console_notice(
                "%s does not end with a newline: its last line and the first of %s are one",
                found->name[i - 1], found->name[i]);
        if (text && !all) {
            all = text;
        } else if (text) {
            uint8_t *grown = realloc(all, (size_t)(*length + more) + 1);
            if (grown) memcpy((all = grown) + *length, text, (size_t)more + 1);
            free(text);
            text = grown;
            if (!grown) console_message("out of memory: the text");
        }
        if (!text) {
            free(all);
            return NULL;
        }
        (*ends)[i] = *length += more;
        (*ends)[found->count + i] = mark;
    }
    if (unended > 1) console_notice("and so for %d more", unended - 1);
    return all;
}
