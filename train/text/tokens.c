/* tokens.c - see tokens.h. */
#define _POSIX_C_SOURCE 200809L /* glob */
#include "tokens.h"
#include "text_file.h"
#include "token_format.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reading ids -------------------------------------------------------------------------- */

/* It is opened each time: there may be more shards than descriptors. Opening a pipe must not
 * wait. */
static int open_shard(const char *path)
{
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

static uint64_t id_at(const token_shard *shard, const unsigned char *p)
{
    uint64_t id = p[0];
    for (int k = 1; k < shard->width; k++) id |= (uint64_t)p[k] << 8 * k;
    return id;
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
    const int why = errno;
    if (file >= 0) close(file);
    errno = why;
    return bad;
}

int64_t tokens_at(const token_shard *shard, int64_t at)
{
    unsigned char bytes[8] = {0};
    const size_t width = (size_t)shard->width;
    const int64_t begin = shard->begin + at * shard->width;
    const int file = shard->path ? open_shard(shard->path) : -1;
    if (!shard->path) memcpy(bytes, (const unsigned char *)shard->ids + begin, width);
    if (file >= 0 && !text_file_at(file, bytes, width, begin)) memset(bytes, 0, sizeof bytes);
    if (file >= 0) close(file);
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
    struct stat status;
    unsigned char first[TOKEN_FORMAT_FIRST];
    token_format format;
    *why = '\0';
    if (file < 0 || fstat(file, &status))
        snprintf(why, TOKEN_FORMAT_WHY, "%s", strerror(errno));
    else if (!S_ISREG(status.st_mode))
        snprintf(why, TOKEN_FORMAT_WHY, "it is not a regular file");
    else if (status.st_size == 0)
        snprintf(why, TOKEN_FORMAT_WHY, "it is empty");
    if (*why) return false;
    const size_t size = (size_t)status.st_size;
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
                           .begin = format.begin};
    return !format.headerless || width || check_width(file, size, why);
}

static bool open_file(token_shard *shard, const char *path, int width, int64_t vocab,
                      char why[TOKEN_FORMAT_WHY])
{
    const int file = open_shard(path);
    bool fine = understand(shard, file, width, vocab, why);
    if (fine && !(shard->path = strdup(path))) {
        snprintf(why, TOKEN_FORMAT_WHY, "%s", strerror(errno));
        fine = false;
    }
    if (!fine) *shard = (token_shard){0};
    if (file >= 0) close(file);
    return fine;
}

bool tokens_open(token_source *source, const char *pattern, int width, int64_t vocab,
                 char message[TOKENS_MESSAGE])
{
    *source = (token_source){0};
    glob_t found;
    /* A file's own name may look like a pattern that does not match it. */
    int trouble = glob(pattern, access(pattern, F_OK) ? 0 : GLOB_NOCHECK, NULL, &found);
    if (trouble) {
        snprintf(message, TOKENS_MESSAGE, "%.200s: %s", pattern,
                 trouble == GLOB_NOMATCH ? "no such file" : "cannot search for it");
        return false;
    }
    source->shard = calloc(found.gl_pathc, sizeof *source->shard);
    bool fine = source->shard != NULL;
    if (!fine) snprintf(message, TOKENS_MESSAGE, "out of memory: %zu files", found.gl_pathc);
    for (size_t i = 0; fine && i < found.gl_pathc; i++) {
        char why[TOKEN_FORMAT_WHY];
        fine = open_file(&source->shard[i], found.gl_pathv[i], width, vocab, why);
        source->shards += fine;
        source->length += source->shard[i].length;
        if (!fine) snprintf(message, TOKENS_MESSAGE, "%.200s: %s", found.gl_pathv[i], why);
    }
    globfree(&found);
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
