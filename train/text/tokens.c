/* tokens.c - see tokens.h. */
#include "tokens.h"
#include "paths.h"
#include "text_file.h"
#include "token_format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading ids -------------------------------------------------------------------------- */

/* It is opened each time: there may be more shards than descriptors. Opening a pipe must not
 * wait. */
static int open_shard(const char *path)
{
    return gd_os_open(gd_os_here, path, GD_OS_READ | GD_OS_NO_WAIT, 0);
}

static uint64_t id_at(const token_shard *shard, const unsigned char *p)
{
    uint64_t id = p[0];
    for (int k = 1; k < shard->width; k++) id |= (uint64_t)p[k] << 8 * k;
    return id;
}

/* Writing changes the time before the bytes: what was read before this is that of the file that was
 * found. */
static bool is_unchanged(const token_shard *shard, int file)
{
    gd_os_status now;
    const gd_os_status *was = &shard->found;
    return gd_os_status_of(file, &now) && now.volume == was->volume && now.number == was->number &&
           now.size == was->size && now.written == was->written;
}

int64_t tokens_read(const token_shard *shard, int64_t at, int64_t count, int64_t vocab,
                    int32_t *ids)
{
    enum { PIECE = 1 << 15 };
    unsigned char bytes[PIECE];
    const int64_t width = shard->width, most = shard->path ? PIECE / width : count;
    const int file = shard->path ? open_shard(shard->path) : -1;
    int64_t bad = shard->path && file < 0 ? TOKENS_UNREADABLE : -1;
    for (int64_t done = 0, n; done < count && bad != TOKENS_UNREADABLE; done += n) {
        const unsigned char *p = bytes;
        n = count - done < most ? count - done : most;
        if (!shard->path)
            p = (const unsigned char *)shard->ids + at * width;
        else if (!text_file_at(file, bytes, (size_t)(n * width),
                               shard->begin + (at + done) * width))
            bad = TOKENS_UNREADABLE;
        for (int64_t i = 0; i < n && bad != TOKENS_UNREADABLE; i++, p += width) {
            const uint64_t id = id_at(shard, p);
            if (id >= (uint64_t)vocab && bad < 0) bad = done + i;
            ids[done + i] = (int32_t)(uint32_t)id;
        }
    }
    if (file >= 0 && bad != TOKENS_UNREADABLE && !is_unchanged(shard, file)) bad = TOKENS_CHANGED;
    gd_os_close(file);
    return bad;
}

const char *tokens_reason(int64_t bad)
{
    if (bad == TOKENS_CHANGED) return "the file was replaced or changed after it was opened";
    return errno == ENODATA ? "the file ends before" : strerror(errno);
}

int64_t tokens_at(const token_shard *shard, int64_t at)
{
    unsigned char bytes[8] = {0};
    const size_t width = (size_t)shard->width;
    const int64_t begin = shard->begin + at * shard->width;
    const int file = shard->path ? open_shard(shard->path) : -1;
    if (!shard->path) memcpy(bytes, (const unsigned char *)shard->ids + begin, width);
    if (file >= 0 && !text_file_at(file, bytes, width, begin)) memset(bytes, 0, sizeof bytes);
    gd_os_close(file);
    uint64_t id = id_at(shard, bytes);
    if (shard->negative && width < 8 && bytes[width - 1] & 0x80) id |= ~(uint64_t)0 << 8 * width;
    return (int64_t)id;
}

/* ---- Files -------------------------------------------------------------------------------- */

/* Ids of 16 bits, of which every second is 0 and some are not, are halves of wider ones. In a file
 * of uint16 the first few show that they are not. */
static bool check_width(int file, size_t size, char why[TOKEN_FORMAT_WHY])
{
    enum { PIECE = 1 << 15, MOST = 1 << 28, ENOUGH = 4 };
    unsigned char bytes[PIECE];
    int64_t count[2] = {0, 0};
    for (size_t at = 0, n; at < size && at < MOST; at += n) {
        n = size - at < PIECE ? size - at : PIECE;
        if (!text_file_at(file, bytes, n, (int64_t)at)) {
            snprintf(why, TOKEN_FORMAT_WHY, "it cannot be read: %s", strerror(errno));
            return false;
        }
        if (!token_format_halves(bytes, n, count)) return true;
    }
    if (count[0] < ENOUGH) return true;
    const bool four = count[1] < count[0];
    snprintf(why, TOKEN_FORMAT_WHY,
             "it has no header, and %s of it are 0, as in a file of %s ids; --token-bytes %d reads "
             "it so, --token-bytes 2 as uint16",
             four ? "the upper halves" : "three of four uint16", four ? "uint32" : "int64",
             four ? 4 : 8);
    return false;
}

static bool understand(token_shard *shard, int file, int width, int64_t vocab,
                       char why[TOKEN_FORMAT_WHY])
{
    gd_os_status status;
    unsigned char first[TOKEN_FORMAT_FIRST];
    token_format format;
    *why = '\0';
    if (file < 0 || !gd_os_status_of(file, &status))
        snprintf(why, TOKEN_FORMAT_WHY, "%s", strerror(errno));
    else if (status.kind != GD_OS_IS_FILE)
        snprintf(why, TOKEN_FORMAT_WHY, "it is not a regular file");
    else if (status.size == 0)
        snprintf(why, TOKEN_FORMAT_WHY, "it is empty");
    if (*why) return false;
    const size_t size = (size_t)status.size;
    if (!text_file_at(file, first, size < sizeof first ? size : sizeof first, 0)) {
        snprintf(why, TOKEN_FORMAT_WHY, "it cannot be read: %s", strerror(errno));
        return false;
    }
    if (!token_format_find(&format, width, first, size, why)) return false;
    if (format.headerless && !width && vocab > 65536) {
        snprintf(why, TOKEN_FORMAT_WHY,
                 "it has no header, and uint16 is too small for a vocabulary of %lld ids; wanted "
                 "--token-bytes 4 or 8, or 2 if it is that nevertheless",
                 (long long)vocab);
        return false;
    }
    *shard = (token_shard){.width = format.width,
                           .negative = format.negative,
                           .dtype = format.dtype,
                           .length = format.length,
                           .begin = format.begin,
                           .found = status};
    return !format.headerless || width || check_width(file, size, why);
}

static char *copy_text(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static bool open_file(token_shard *shard, const char *path, int width, int64_t vocab,
                      char why[TOKEN_FORMAT_WHY])
{
    const int file = open_shard(path);
    bool fine = understand(shard, file, width, vocab, why);
    if (fine && !(shard->path = copy_text(path))) {
        snprintf(why, TOKEN_FORMAT_WHY, "%s", strerror(ENOMEM));
        fine = false;
    }
    if (!fine) *shard = (token_shard){0};
    gd_os_close(file);
    return fine;
}

bool tokens_open(token_source *source, const char *pattern, int width, int64_t vocab,
                 char message[TOKENS_MESSAGE])
{
    *source = (token_source){0};
    paths found = {0};
    if (!paths_find(&found, pattern)) {
        snprintf(message, TOKENS_MESSAGE, "%.200s: %s", pattern, paths_reason(&found));
        paths_free(&found);
        return false;
    }
    source->shard = calloc(found.count, sizeof *source->shard);
    bool fine = source->shard != NULL;
    if (!fine) snprintf(message, TOKENS_MESSAGE, "out of memory: %zu files", found.count);
    for (size_t i = 0; fine && i < found.count; i++) {
        char why[TOKEN_FORMAT_WHY];
        fine = open_file(&source->shard[i], found.name[i], width, vocab, why);
        source->shards += fine;
        source->length += source->shard[i].length;
        if (!fine) snprintf(message, TOKENS_MESSAGE, "%.200s: %s", found.name[i], why);
    }
    paths_free(&found);
    if (!fine) tokens_close(source);
    return fine;
}

int tokens_width(int choice)
{
    static const int widths[] = {0, 2, 4, 8};
    return widths[choice];
}

bool tokens_own(token_source *source, void *ids, int width, int64_t length)
{
    *source = (token_source){.shard = calloc(1, sizeof *source->shard)};
    if (!source->shard) {
        free(ids);
        return false;
    }
    source->shard[0] = (token_shard){.ids = ids, .width = width, .length = length};
    source->shards = 1;
    source->length = length;
    return true;
}

void tokens_close(token_source *source)
{
    for (int i = 0; i < source->shards; i++) {
        token_shard *shard = &source->shard[i];
        free((void *)(uintptr_t)shard->ids);
        free(shard->path);
    }
    free(source->shard);
    *source = (token_source){0};
}
