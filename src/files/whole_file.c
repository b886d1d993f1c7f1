/* whole_file.c - a file that appears whole or not at all.
 *
 * It is written under a temporary name in the same folder. At the end it is flushed to the disk,
 * then renamed, which replaces an older file atomically; then the folder is flushed, or a power
 * failure could lose the new name. Every call may fail, including close. */
#include "files/safetensors.h"
#include "platform/file.h"
#include "platform/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static gd_status fail(const gd_whole_file *file, const char *what)
{
    return gd_fail(file->ctx, GD_ERROR_IO, "%s: %s: cannot %s: %s", file->who,
                   gd_excerpt_of(file->path).text, what, strerror(errno));
}

/* Renaming would replace a pipe or /dev/null by a file. */
static gd_status check_place(const gd_whole_file *file)
{
    gd_os_status status;
    if (!gd_os_status_at(gd_os_here, file->path, true, &status) || status.kind == GD_OS_IS_FILE)
        return GD_OK;
    return gd_fail(file->ctx, GD_ERROR_IO, "%s: %s: it exists and is not a regular file", file->who,
                   gd_excerpt_of(file->path).text);
}

gd_status gd_whole_file_begin(gd_whole_file *file, gd_context *ctx, const char *who,
                              const char *path)
{
    *file = (gd_whole_file){.ctx = ctx, .who = who, .path = path, .descriptor = -1};
    if (check_place(file)) return gd_error_status(ctx);
    file->temporary_bytes = strlen(path) + 48;
    file->temporary = gd_host_allocate(ctx, file->temporary_bytes, "the name of a file");
    if (!file->temporary) return gd_error_status(ctx);
    for (int attempt = 0; attempt < 1000 && file->descriptor < 0; attempt++) {
        snprintf(file->temporary, file->temporary_bytes, "%s.%lld-%d.tmp", path,
                 (long long)gd_os_process(), attempt);
        file->descriptor = gd_os_open(gd_os_here, file->temporary, GD_OS_WRITE | GD_OS_NEW, 0666);
        if (file->descriptor < 0 && errno != EEXIST) break;
    }
    if (file->descriptor >= 0) return GD_OK;
    fail(file, "create it");
    gd_host_release(ctx, file->temporary, file->temporary_bytes);
    return gd_error_status(ctx);
}

bool gd_whole_file_write(gd_whole_file *file, const void *data, size_t bytes)
{
    return gd_os_write(file->descriptor, data, bytes);
}

bool gd_whole_file_skip(gd_whole_file *file, size_t bytes)
{
    return gd_os_skip(file->descriptor, bytes);
}

static gd_status flush_folder(gd_whole_file *file)
{
    char *slash = gd_os_last_slash(file->temporary);
    if (slash) slash[slash == file->temporary] = '\0';
    const int folder =
        gd_os_open(gd_os_here, slash ? file->temporary : ".", GD_OS_READ | GD_OS_FOLDER, 0);
    if (folder < 0) return fail(file, "open its folder");
    if (!gd_os_flush_folder(folder)) fail(file, "flush its folder");
    gd_os_close(folder);
    return gd_error_status(file->ctx);
}

gd_status gd_whole_file_end(gd_whole_file *file)
{
    gd_context *ctx = file->ctx;
    if (!gd_failed(ctx) && !gd_os_flush(file->descriptor)) fail(file, "flush it");
    if (!gd_os_close(file->descriptor) && !gd_failed(ctx)) fail(file, "close it");
    if (!gd_failed(ctx) && !gd_os_rename(gd_os_here, file->temporary, file->path))
        fail(file, "rename it");
    if (gd_failed(ctx)) {
        gd_os_remove(gd_os_here, file->temporary);
    } else {
        flush_folder(file);
    }
    gd_host_release(ctx, file->temporary, file->temporary_bytes);
    return gd_error_status(ctx);
}
