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

int checksums_print(char *line, size_t room, const char *name, const char *checksum)
{
    return snprintf(line, room, "XXH3 (%s) = %s\n", name, checksum);
}

void checksums_end(fingerprint *sum, char text[CHECKSUM_TEXT])
{
    const uint64_t print = fingerprint_end(sum);
    text[0] = '\0';
    if (FINGERPRINT_IS_XXH3) snprintf(text, CHECKSUM_TEXT, "%016llx", (unsigned long long)print);
}

/* The checksum of a file in a folder; false, with errno, if it cannot be read. */
static bool checksum_of(char text[CHECKSUM_TEXT], open_folder *in, const char *name)
{
    gd_os_status status;
    const int file = folder_file(in, name, FOLDER_READ);
    if (file < 0) return false;
    fingerprint *sum = fingerprint_begin();
    const bool read =
        sum && gd_os_status_of(file, &status) && fingerprint_add_file(sum, file, status.size, 1);
    gd_os_close(file);
    if (!read && !in->trouble) in->trouble = errno;
    const int why = errno;
    checksums_end(sum, text);
    errno = why;
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
    if (!checksum_of(hash, in, name)) {
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
    size_t length;
    if (complete) *complete = false;
    if (gd_error(ctx)) return gd_error_status(ctx);
    if (!FINGERPRINT_IS_XXH3) {
        if (folder_has(in, CHECKSUMS_LIST))
            console_message(
                "%s/%s is not verified: this build of gradus has no xxHash (GRADUS_XXHASH)",
                in->path, CHECKSUMS_LIST);
        return GD_OK;
    }
    char *list = folder_read_text(in, CHECKSUMS_LIST, CHECKSUMS_BYTES, &length);
    if (!list) return errno == ENOENT ? GD_OK : fail(ctx, CHECKSUMS_LIST, in);
    bool all = true;
    for (int i = 0; strcmp(checksums_files[i], CHECKSUMS_LIST) != 0 && !gd_error(ctx); i++)
        all = verify(ctx, in, checksums_files[i], list) && all;
    free(list);
    if (complete) *complete = all && !gd_error(ctx);
    return gd_error_status(ctx);
}
