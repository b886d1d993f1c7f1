/* tokens.c - see tokens.h. */
#define _POSIX_C_SOURCE 200809L /* glob, pread */
#include "tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LLMC_HEADER = 256 * 4, LOOKED_AT = 4096, REASON = 256 };

/* The first two numbers in llm.c's files for GPT-2 and for Llama 3. */
static const struct {
    int32_t magic, version;
    int width;
} llmc_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

/* ---- Reading ids -------------------------------------------------------------------------- */

/* Ids [at, at + count) as they are in the file. It is opened each time: there may be more shards
 * than descriptors, and a mapped file that shrinks would be a SIGBUS. */
static bool read_file(const token_shard *shard, int64_t at, int64_t count, unsigned char *bytes)
{
    const size_t wanted = (size_t)(count * shard->width);
    const off_t begin = (off_t)(shard->begin + at * shard->width);
    int file = open(shard->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return false;
    size_t done = 0;
    while (done < wanted) {
        const ssize_t got = pread(file, bytes + done, wanted - done, begin + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = ENODATA;
        if (got <= 0) break;
        done += (size_t)got;
    }
    int why = errno;
    close(file);
    errno = why;
    return done == wanted;
}

/* What comes from a file stands at the end of `ids` and is widened from there to its beginning. */
int64_t tokens_read(const token_shard *shard, int64_t at, int64_t count, int64_t vocab,
                    int32_t *ids)
{
    const int width = shard->width;
    const unsigned char *p;
    int64_t bad = -1;
    if (shard->path) {
        unsigned char *bytes = (unsigned char *)ids + count * (4 - width);
        if (!read_file(shard, at, count, bytes)) return TOKENS_UNREADABLE;
        p = bytes;
    } else {
        p = (const unsigned char *)shard->ids + at * width;
    }
    for (int64_t i = 0; i < count; i++, p += width) {
        uint32_t id = p[0];
        for (int k = 1; k < width; k++) id |= (uint32_t)p[k] << 8 * k;
        if (id >= vocab && bad < 0) bad = i;
        ids[i] = (int32_t)id;
    }
    return bad;
}

/* ---- Files -------------------------------------------------------------------------------- */

static int32_t word_at(const unsigned char *p)
{
    return (int32_t)(p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

/* Two letters are an id that may be in the vocabulary, so a text given by mistake would be trained
 * on without a message. A file of only printable bytes and blanks counts as a text. */
static bool is_text(const unsigned char *bytes, size_t size)
{
    enum { ENOUGH = 64 };
    if (size < ENOUGH) return false;
    for (size_t i = 0; i < size && i < LOOKED_AT; i++) {
        bool blank = bytes[i] >= '\t' && bytes[i] <= '\r';
        if (!blank && (bytes[i] < ' ' || bytes[i] > '~')) return false;
    }
    return true;
}

/* The shard of a file without a header. */
static bool understand_raw(token_shard *shard, const unsigned char *bytes, size_t size,
                           char why[REASON])
{
    if (is_text(bytes, size)) {
        snprintf(why, REASON, "it is a text, wanted token ids; use --data FILE for a text");
        return false;
    }
    shard->width = 2;
    shard->length = (int64_t)(size / 2);
    if (size % 2 == 0) return true;
    snprintf(why, REASON, "it has %zu bytes, wanted an even number for uint16 ids", size);
    return false;
}

/* The shard of a file of `size` bytes that begins with these; false, and why, if it is not a token
 * file. The first 16 bits of the marks are beyond the ids of GPT-2, so that no file of nanoGPT has
 * them. */
static bool understand(token_shard *shard, const unsigned char *bytes, size_t size,
                       char why[REASON])
{
    const size_t kinds = sizeof llmc_kinds / sizeof *llmc_kinds;
    const int32_t magic = size < 4 ? 0 : word_at(bytes);
    size_t kind = 0;
    while (kind < kinds && llmc_kinds[kind].magic != magic) kind++;
    if (kind == kinds) return understand_raw(shard, bytes, size, why);
    if (size < LLMC_HEADER) {
        snprintf(why, REASON, "it has %zu bytes, fewer than the header of llm.c", size);
        return false;
    }
    const int32_t version = word_at(bytes + 4), count = word_at(bytes + 8);
    shard->width = llmc_kinds[kind].width;
    shard->begin = LLMC_HEADER;
    shard->length = count;
    if (version != llmc_kinds[kind].version) {
        snprintf(why, REASON, "its header has version %d, wanted %d after %d", version,
                 llmc_kinds[kind].version, magic);
        return false;
    }
    if (count < 0 || (size_t)count * (size_t)shard->width != size - LLMC_HEADER) {
        snprintf(why, REASON, "its header says %d ids of %d bytes, but %zu bytes follow it", count,
                 shard->width, size - LLMC_HEADER);
        return false;
    }
    return true;
}

/* The first bytes of a file, and its size. */
static bool look_at(const char *path, unsigned char first[LOOKED_AT], size_t *size,
                    char why[REASON])
{
    struct stat status;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* opening a pipe must not wait */
    bool fine = file >= 0 && !fstat(file, &status);
    if (!fine) snprintf(why, REASON, "%s", strerror(errno));
    if (fine && !S_ISREG(status.st_mode)) {
        snprintf(why, REASON, "it is not a regular file");
        fine = false;
    } else if (fine && status.st_size == 0) {
        snprintf(why, REASON, "it is empty");
        fine = false;
    } else if (fine) {
        *size = (size_t)status.st_size;
        const size_t wanted = *size < LOOKED_AT ? *size : LOOKED_AT;
        fine = pread(file, first, wanted, 0) == (ssize_t)wanted;
        if (!fine) snprintf(why, REASON, "it cannot be read");
    }
    if (file >= 0) close(file);
    return fine;
}

static bool open_file(token_shard *shard, const char *path, char why[REASON])
{
    unsigned char first[LOOKED_AT];
    size_t size;
    *shard = (token_shard){0};
    if (!look_at(path, first, &size, why) || !understand(shard, first, size, why)) return false;
    shard->path = strdup(path);
    if (!shard->path) snprintf(why, REASON, "%s", strerror(errno));
    return shard->path != NULL;
}

bool tokens_open(token_source *source, const char *pattern, char message[TOKENS_MESSAGE])
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
        char why[REASON];
        fine = open_file(&source->shard[i], found.gl_pathv[i], why);
        source->shards += fine;
        source->length += source->shard[i].length;
        if (!fine) snprintf(message, TOKENS_MESSAGE, "%.200s: %s", found.gl_pathv[i], why);
    }
    globfree(&found);
    if (!fine) tokens_close(source);
    return fine;
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
