/* fingerprint.c - see fingerprint.h. */
#define _XOPEN_SOURCE 700 /* scandir */
#include "fingerprint.h"
#include "fnv.h"
#include "text_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef GD_HAVE_XXHASH
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

enum { PIECE = 1 << 20 };

/* ---- The hash ------------------------------------------------------------------------------- */

typedef struct hash {
#ifdef GD_HAVE_XXHASH
    XXH3_state_t *state;
#else
    uint64_t state;
#endif
    char *room; /* [PIECE] */
} hash;

static bool begin(hash *h)
{
    *h = (hash){.room = malloc(PIECE)};
#ifdef GD_HAVE_XXHASH
    h->state = XXH3_createState();
    if (h->state) XXH3_64bits_reset(h->state);
    return h->room && h->state;
#else
    h->state = FNV_BEGIN;
    return h->room != NULL;
#endif
}

static void add(hash *h, const void *data, size_t bytes)
{
#ifdef GD_HAVE_XXHASH
    XXH3_64bits_update(h->state, data, bytes);
#else
    h->state = fnv1a(h->state, data, bytes);
#endif
}

static uint64_t end(hash *h)
{
    free(h->room);
#ifdef GD_HAVE_XXHASH
    const uint64_t print = h->state ? XXH3_64bits_digest(h->state) : 0;
    XXH3_freeState(h->state);
    return print;
#else
    return h->state;
#endif
}

uint64_t fingerprint_bytes(const void *data, size_t bytes)
{
#ifdef GD_HAVE_XXHASH
    return XXH3_64bits(data, bytes);
#else
    return fnv1a(FNV_BEGIN, data, bytes);
#endif
}

/* ---- Files ---------------------------------------------------------------------------------- */

/* One of `stride` pieces, and the last. */
static bool add_pieces(hash *h, int file, int64_t size, int64_t stride)
{
    for (int64_t i = 0; i * PIECE < size; i++) {
        const int64_t left = size - i * PIECE;
        const size_t bytes = (size_t)(left < PIECE ? left : PIECE);
        if (i % stride != 0 && left > PIECE) continue;
        if (!text_file_at(file, h->room, bytes, i * PIECE)) return false;
        add(h, h->room, bytes);
    }
    return true;
}

static bool add_file(hash *h, const char *path, int64_t stride)
{
    struct stat status;
    const int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    bool fine = file >= 0 && !fstat(file, &status);
    if (fine && !S_ISREG(status.st_mode)) {
        errno = EINVAL;
        fine = false;
    }
    if (fine) {
        const int64_t size = status.st_size;
        add(h, &size, sizeof size);
        fine = add_pieces(h, file, size, stride);
    }
    const int why = errno;
    if (file >= 0) close(file);
    errno = why;
    return fine;
}

bool fingerprint_files(const char *const *paths, int count, int64_t whole, uint64_t *print,
                       int *failed)
{
    struct stat status;
    hash h;
    int64_t all = 0;
    bool fine = begin(&h);
    if (!fine) errno = ENOMEM;
    for (*failed = 0; fine && *failed < count; *failed += fine) {
        fine = !stat(paths[*failed], &status);
        if (fine) all += status.st_size;
    }
    const int64_t stride = all > whole ? (all + whole - 1) / whole : 1;
    if (fine) {
        for (*failed = 0; fine && *failed < count; *failed += fine)
            fine = add_file(&h, paths[*failed], stride);
    }
    const int why = errno;
    *print = end(&h);
    errno = why;
    return fine;
}

/* ---- A model -------------------------------------------------------------------------------- */

static bool ends_in(const char *name, const char *ending)
{
    const size_t length = strlen(name), last = strlen(ending);
    return length > last && !strcmp(name + length - last, ending);
}

static int is_of_model(const struct dirent *entry)
{
    return ends_in(entry->d_name, ".json") || ends_in(entry->d_name, ".safetensors");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

bool fingerprint_model(const char *folder, int64_t whole, uint64_t *print)
{
    enum { PATH = 4096 };
    struct dirent **entry = NULL;
    int count = scandir(folder, &entry, is_of_model, by_name), failed;
    uint64_t parts[2] = {FNV_BEGIN, 0};
    if (count < 0) return false;
    const char **paths = calloc((size_t)count + 1, sizeof *paths);
    char *room = malloc((size_t)(count + 1) * PATH);
    bool fine = paths && room;
    if (!fine) errno = ENOMEM;
    for (int i = 0; fine && i < count; i++) {
        paths[i] = room + (size_t)i * PATH;
        parts[0] = fnv1a(parts[0], entry[i]->d_name, strlen(entry[i]->d_name) + 1);
        fine = snprintf(room + (size_t)i * PATH, PATH, "%s/%s", folder, entry[i]->d_name) < PATH;
        if (!fine) errno = ENAMETOOLONG;
    }
    fine = fine && fingerprint_files(paths, count, whole, &parts[1], &failed);
    const int why = errno;
    *print = fingerprint_bytes(parts, sizeof parts);
    for (int i = 0; i < count; i++) free(entry[i]);
    free(entry);
    free(paths);
    free(room);
    errno = why;
    return fine;
}
