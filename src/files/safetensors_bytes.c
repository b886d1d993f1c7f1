/* safetensors_bytes.c - bytes of an open safetensors file, and names in messages about it.
 *
 * A file on disk is read, not mapped: one that another process shortens, or a disk that fails, is
 * then an error of read() and not a signal. */
#include "files/safetensors.h"
#include "platform/file.h"

#include <errno.h>
#include <string.h>

gd_excerpt gd_excerpt_of(const char *text)
{
    gd_excerpt cut;
    size_t most = sizeof cut.text - 4, i = 0;
    for (; text[i] && i < most; i++) cut.text[i] = text[i];
    if (text[i]) {
        while (i > 0 && ((unsigned char)text[i] & 0xc0) == 0x80) i--; /* do not cut a character */
        memcpy(cut.text + i, "...", 3);
        i += 3;
    }
    cut.text[i] = '\0';
    return cut;
}

gd_status gd_safetensors_refuse(gd_context *ctx, const char *who, const char *path, const char *why)
{
    return gd_fail(ctx, GD_ERROR_IO, "%s: %s: %s", who, gd_excerpt_of(path).text, why);
}

static gd_status fetch_from_disk(const gd_safetensors *file, const char *who, size_t offset,
                                 char *to, size_t bytes)
{
    while (bytes > 0) {
        const ptrdiff_t got = gd_os_read_at(file->descriptor, to, bytes, (int64_t)offset);
        if (got < 0) return gd_safetensors_refuse(file->ctx, who, file->path, strerror(errno));
        if (got == 0) {
            errno = EIO; /* not every C library has ENODATA */
            return gd_safetensors_refuse(file->ctx, who, file->path,
                                         "the file has become shorter since it was opened");
        }
        to += got;
        offset += (size_t)got;
        bytes -= (size_t)got;
    }
    return GD_OK;
}

gd_status gd_safetensors_fetch(const gd_safetensors *file, const char *who, size_t offset, void *to,
                               size_t bytes)
{
    if (!file->bytes) return fetch_from_disk(file, who, offset, to, bytes);
    if (bytes > 0) memcpy(to, file->bytes + offset, bytes);
    return GD_OK;
}
