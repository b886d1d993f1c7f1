/* fingerprint.c - see fingerprint.h. */
#include "fingerprint.h"
#include "fnv.h"
#include "text_file.h"
#include "platform/file.h"

#include <errno.h>
#include <stdlib.h>

#ifdef GD_HAVE_XXHASH
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

struct fingerprint {
#ifdef GD_HAVE_XXHASH
    XXH3_state_t *state;
#else
    uint64_t state;
#endif
};

fingerprint *fingerprint_begin(void)
{
    fingerprint *f = calloc(1, sizeof *f);
#ifdef GD_HAVE_XXHASH
    if (f) f->state = XXH3_createState();
    if (f && f->state && XXH3_64bits_reset(f->state) == XXH_OK) return f;
    fingerprint_end(f);
    f = NULL;
#else
    if (f) f->state = FNV_BEGIN;
#endif
    if (!f) errno = ENOMEM;
    return f;
}

void fingerprint_add(fingerprint *f, const void *data, size_t bytes)
{
#ifdef GD_HAVE_XXHASH
    if (bytes > 0) XXH3_64bits_update(f->state, data, bytes);
#else
    f->state = fnv1a(f->state, data, bytes);
#endif
}

uint64_t fingerprint_end(fingerprint *f)
{
#ifdef GD_HAVE_XXHASH
    const uint64_t print = f && f->state ? XXH3_64bits_digest(f->state) : 0;
    if (f) XXH3_freeState(f->state);
#else
    const uint64_t print = f ? f->state : 0;
#endif
    free(f);
    return print;
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

/* It is read, not mapped: a mapped file that shrinks meanwhile would be a SIGBUS. */
bool fingerprint_add_file(fingerprint *f, int file, int64_t size, int64_t stride)
{
    enum { PIECE = 1 << 20 };
    char *piece = malloc(PIECE);
    bool fine = piece != NULL;
    for (int64_t i = 0; fine && i * PIECE < size; i++) {
        const int64_t left = size - i * PIECE;
        const size_t bytes = (size_t)(left < PIECE ? left : PIECE);
        if (i % stride != 0 && left > PIECE) continue;
        fine = text_file_at(file, piece, bytes, i * PIECE);
        if (fine) fingerprint_add(f, piece, bytes);
    }
    const int why = errno;
    free(piece);
    errno = why;
    return fine;
}

static bool add_named(fingerprint *f, const char *path, int64_t stride)
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
        fingerprint_add(f, &size, sizeof size);
        fine = fingerprint_add_file(f, file, size, stride);
    }
    gd_os_close(file);
    return fine;
}

bool fingerprint_files(const char *const *paths, int count, int64_t whole, uint64_t *print,
                       int *failed)
{
    gd_os_status status;
    int64_t all = 0;
    fingerprint *f = fingerprint_begin();
    bool fine = f != NULL;
    for (*failed = 0; fine && *failed < count; *failed += fine) {
        fine = gd_os_status_at(gd_os_here, paths[*failed], true, &status);
        if (fine) all += status.size;
    }
    const int64_t stride = all > whole ? (all + whole - 1) / whole : 1;
    if (fine) {
        for (*failed = 0; fine && *failed < count; *failed += fine)
            fine = add_named(f, paths[*failed], stride);
    }
    const int why = errno;
    *print = fingerprint_end(f);
    errno = why;
    return fine;
}
