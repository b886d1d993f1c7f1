/* fingerprint.c - see fingerprint.h. */
#include "fingerprint.h"
#include "fnv.h"
#include "paths.h"
#include "text_file.h"
#include "platform/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    gd_os_status status;
    const int file = gd_os_open(gd_os_here, path, GD_OS_READ | GD_OS_NO_WAIT, 0);
    bool fine = file >= 0 && gd_os_status_of(file, &status);
    if (fine && status.kind != GD_OS_IS_FILE) {
        errno = EINVAL;
        fine = false;
    }
    if (fine) {
        const int64_t size = status.size;
        add(h, &size, sizeof size);
        fine = add_pieces(h, file, size, stride);
    }
    const int why = errno;
    if (file >= 0) gd_os_close(file);
    errno = why;
    return fine;
}

bool fingerprint_files(const char *const *paths, int count, int64_t whole, uint64_t *print,
                       int *failed)
{
    gd_os_status status;
    hash h;
    int64_t all = 0;
    bool fine = begin(&h);
    if (!fine) errno = ENOMEM;
    for (*failed = 0; fine && *failed < count; *failed += fine) {
        fine = gd_os_status_at(gd_os_here, paths[*failed], true, &status);
        if (fine) all += status.size;
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

static bool is_model(const char *path)
{
    const char *name = paths_name(path);
    return ends_in(name, ".json") || ends_in(name, ".safetensors");
}

bool fingerprint_model(const char *folder, int64_t whole, uint64_t *print)
{
    paths found = {0};
    uint64_t parts[2] = {FNV_BEGIN, 0};
    int failed;
    bool fine = paths_in_folder(&found, folder, is_model);
    for (size_t i = 0; fine && i < found.count; i++) {
        const char *name = paths_name(found.name[i]);
        parts[0] = fnv1a(parts[0], name, strlen(name) + 1);
    }
    fine = fine && fingerprint_files((const char *const *)found.name, (int)found.count, whole,
                                     &parts[1], &failed);
    const int why = errno;
    if (fine) *print = fingerprint_bytes(parts, sizeof parts);
    paths_free(&found);
    errno = why;
    return fine;
}
