/* checksums.c - see checksums.h. */
#include "checksums.h"
#include "console.h"
#include "platform/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const checksums_files[] = {"config.json",
                                       "model.safetensors",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "state.safetensors",
                                       CHECKSUMS_LIST,
                                       NULL};

static const char line_format[] = "XXH3 (%s) = %s\n";

int checksums_print(char *line, size_t room, const char *name, const char *checksum)
{
    return snprintf(line, room, line_format, name, checksum);
}

#ifdef GD_HAVE_XXHASH

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- Of bytes in memory --------------------------------------------------------------------- */

struct checksum {
    XXH3_state_t *state;
};

checksum *checksum_begin(void)
{
    checksum *sum = malloc(sizeof *sum);
    if (sum) sum->state = XXH3_createState();
    if (sum && sum->state && XXH3_64bits_reset(sum->state) == XXH_OK) return sum;
    checksum_end(sum, NULL);
    errno = ENOMEM;
    return NULL;
}

/* It can only fail without a state or without bytes. */
void checksum_add(checksum *sum, const void *bytes, size_t count)
{
    if (count > 0) XXH3_64bits_update(sum->state, bytes, count);
}

void checksum_end(checksum *sum, char text[CHECKSUM_TEXT])
{
    if (!sum) return;
    if (text)
        snprintf(text, CHECKSUM_TEXT, "%016llx",
                 (unsigned long long)XXH3_64bits_digest(sum->state));
    XXH3_freeState(sum->state);
    free(sum);
}

/* ---- Of files ------------------------------------------------------------------------------- */

/* Read, not mapped: a mapped file that shrinks meanwhile would be a SIGBUS. */
static bool add_file(checksum *sum, int file)
{
    enum { PIECE = 1 << 20 };
    char *piece = malloc(PIECE);
    ptrdiff_t got = piece ? 1 : -1;
    for (int64_t at = 0; got > 0; at += got) {
        got = gd_os_read_at(file, piece, PIECE, at);
        if (got > 0) checksum_add(sum, piece, (size_t)got);
    }
    const int why = errno;
    free(piece);
    errno = why;
    return got == 0;
}

bool checksums_of(char text[CHECKSUM_TEXT], open_folder *in, const char *name)
{
    const int file = folder_file(in, name, FOLDER_READ);
    if (file < 0) return false;
    checksum *sum = checksum_begin();
    const bool read = sum && add_file(sum, file);
    const int why = errno;
    checksum_end(sum, text);
    gd_os_close(file);
    errno = why;
    if (!read && !in->trouble) in->trouble = why;
    return read;
}

static gd_status fail(gd_context *ctx, const char *name, const open_folder *in)
{
    return gd_fail(ctx, GD_ERROR_IO, "cannot read %s in %s: %s", name, in->path, folder_reason());
}

/* One file; false if it is in the list and not there. */
static bool verify(gd_context *ctx, open_folder *in, const char *name, const char *list)
{
    char hash[CHECKSUM_TEXT], wanted[128], begin[128];
    snprintf(begin, sizeof begin, "(%s)", name);
    if (!checksums_of(hash, in, name)) {
        if (errno == ENOENT) return !strstr(list, begin);
        fail(ctx, name, in);
        return true;
    }
    checksums_print(wanted, sizeof wanted, name, hash);
    if (!strstr(list, wanted)) {
        gd_fail(ctx, GD_ERROR_IO,
                "%s in %s does not match its checksum in %s: it is damaged, or was changed after "
                "it was saved (remove %s to load it unchecked)",
                name, in->path, CHECKSUMS_LIST, CHECKSUMS_LIST);
    }
    return true;
}

gd_status checksums_verify(gd_context *ctx, open_folder *in, bool *complete)
{
    enum { LIST_BYTES = 1024 };
    size_t length;
    if (complete) *complete = false;
    if (gd_error(ctx)) return gd_error_status(ctx);
    char *list = folder_read_text(in, CHECKSUMS_LIST, LIST_BYTES, &length);
    if (!list) return errno == ENOENT ? GD_OK : fail(ctx, CHECKSUMS_LIST, in);
    bool all = true;
    for (int i = 0; strcmp(checksums_files[i], CHECKSUMS_LIST) != 0 && !gd_error(ctx); i++)
        all = verify(ctx, in, checksums_files[i], list) && all;
    free(list);
    if (complete) *complete = all && !gd_error(ctx);
    return gd_error_status(ctx);
}

#else

checksum *checksum_begin(void)
{
    static char none;
    return (checksum *)&none;
}

void checksum_add(checksum *sum, const void *bytes, size_t count)
{
    (void)sum, (void)bytes, (void)count;
}

void checksum_end(checksum *sum, char text[CHECKSUM_TEXT])
{
    (void)sum;
    if (text) text[0] = '\0';
}

bool checksums_of(char text[CHECKSUM_TEXT], open_folder *in, const char *name)
{
    (void)in, (void)name;
    text[0] = '\0';
    return true;
}

gd_status checksums_verify(gd_context *ctx, open_folder *in, bool *complete)
{
    if (complete) *complete = false;
    if (!gd_error(ctx) && folder_has(in, CHECKSUMS_LIST))
        console_message("%s/%s is not verified: this build of gradus has no xxHash (GRADUS_XXHASH)",
                        in->path, CHECKSUMS_LIST);
    return gd_error_status(ctx);
}

#endif
