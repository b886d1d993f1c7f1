/* checksums.c - see checksums.h. */
#define _POSIX_C_SOURCE 200809L /* open, fstat */
#include "checksums.h"
#include "console.h"
#include "folder.h"

static const char list_name[] = "checksums.xxh3";

#ifdef GD_HAVE_XXHASH

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { LIST_BYTES = 1024 };

static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json",
                                    "tokenizer_config.json", "state.safetensors"};
enum { NAMES = sizeof names / sizeof *names };

static const char line[] = "XXH3 (%s) = %s\n";

static gd_status fail(gd_context *ctx, const char *what, const char *name, const char *folder)
{
    return gd_fail(ctx, GD_ERROR_IO, "cannot %s %s in %s: %s", what, name, folder,
                   folder_read_reason());
}

/* Read, not mapped: a mapped file that shrinks meanwhile would be a SIGBUS. */
static bool hash_descriptor(int file, uint64_t *hash)
{
    enum { PIECE = 1 << 20 };
    struct stat status;
    XXH3_state_t *state = XXH3_createState();
    char *piece = malloc(PIECE);
    ssize_t got = state && piece ? 1 : -1;
    if (got > 0 && (fstat(file, &status) || !S_ISREG(status.st_mode))) {
        errno = EINVAL;
        got = -1;
    }
    if (got > 0) XXH3_64bits_reset(state);
    while (got > 0) {
        got = read(file, piece, PIECE);
        if (got > 0) XXH3_64bits_update(state, piece, (size_t)got);
        if (got < 0 && errno == EINTR) got = 1;
    }
    if (got == 0) *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    free(piece);
    return got == 0;
}

bool checksums_of(char text[CHECKSUM_TEXT], const char *folder, const char *name)
{
    uint64_t hash = 0;
    char path[FOLDER_PATH];
    int file = folder_join(path, folder, name)
                   ? open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
                   : -1;
    if (file < 0) return false;
    bool fine = hash_descriptor(file, &hash);
    int why = errno;
    close(file);
    errno = why;
    if (fine) snprintf(text, CHECKSUM_TEXT, "%016llx", (unsigned long long)hash);
    return fine;
}

gd_status checksums_save(gd_context *ctx, const char *folder)
{
    char list[LIST_BYTES] = "", path[FOLDER_PATH], hash[CHECKSUM_TEXT];
    size_t used = 0;
    for (int i = 0; i < NAMES; i++) {
        if (checksums_of(hash, folder, names[i])) {
            used += (size_t)snprintf(list + used, sizeof list - used, line, names[i], hash);
        } else if (errno != ENOENT) {
            return fail(ctx, "read", names[i], folder);
        }
    }
    if (folder_join(path, folder, list_name) && folder_write_text(path, list)) return GD_OK;
    return fail(ctx, "write", list_name, folder);
}

gd_status checksums_verify(gd_context *ctx, const char *folder)
{
    char path[FOLDER_PATH];
    size_t length;
    char hash[CHECKSUM_TEXT], wanted[128];
    if (gd_error(ctx) || !folder_join(path, folder, list_name)) return gd_error_status(ctx);
    char *list = folder_read_text(path, LIST_BYTES, &length);
    if (!list) return errno == ENOENT ? GD_OK : fail(ctx, "read", list_name, folder);
    for (int i = 0; i < NAMES && !gd_error(ctx); i++) {
        if (!checksums_of(hash, folder, names[i])) {
            if (errno != ENOENT) fail(ctx, "read", names[i], folder);
            continue;
        }
        snprintf(wanted, sizeof wanted, line, names[i], hash);
        if (!strstr(list, wanted)) {
            gd_fail(ctx, GD_ERROR_IO,
                    "%s in %s does not match its checksum in %s: it is damaged, or was changed "
                    "after it was saved (remove %s to load it unchecked)",
                    names[i], folder, list_name, list_name);
        }
    }
    free(list);
    return gd_error_status(ctx);
}

#else

bool checksums_of(char text[CHECKSUM_TEXT], const char *folder, const char *name)
{
    (void)text, (void)folder, (void)name;
    return false;
}

gd_status checksums_save(gd_context *ctx, const char *folder)
{
    (void)folder;
    return gd_error_status(ctx);
}

gd_status checksums_verify(gd_context *ctx, const char *folder)
{
    char path[FOLDER_PATH];
    if (gd_error(ctx) || !folder_join(path, folder, list_name) || !folder_has(path)) {
        return gd_error_status(ctx);
    }
    console_message("%s is not verified: this build of gradus has no xxHash (GRADUS_XXHASH)", path);
    return GD_OK;
}

#endif
