/* whole_file.c - a file that appears whole or not at all.
 *
 * It is written under a temporary name in the same folder. At the end it is flushed to the disk,
 * then renamed, which replaces an older file atomically; then the folder is flushed, or a power
 * failure could lose the new name. Every call may fail, including close.
 *
 * As if the older file had been written, it keeps its permissions, and links that lead
 * to it stay. */
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

/* Opens the folder of a path, which becomes two texts: the folder's, and the name in it. */
static bool open_folder(gd_whole_file *file, char *path)
{
    char *slash = gd_os_last_slash(path);
    const int from = file->folder;
    file->name = slash ? slash + 2 : path;
    if (slash) memmove(slash + 2, slash + 1, strlen(slash));
    if (slash) slash[1] = '\0';
    file->folder = gd_os_open(from, slash ? path : ".", GD_OS_READ | GD_OS_FOLDER, 0);
    gd_os_close(from); /* not gd_os_here, which is negative */
    return file->folder >= 0;
}

/* Finds the folder and the name to which the path leads through links. old->kind is 0 if no file
 * has it; renaming would replace a pipe or /dev/null, and links in /dev/fd may lead elsewhere. */
static gd_status follow_links(gd_whole_file *file, gd_os_status *old)
{
    enum { MOST_LINKS = 40 };
    gd_os_status end = {0};
    errno = ENAMETOOLONG;
    bool found = strlen(file->path) < GD_WHOLE_PATH;
    if (found) memcpy(file->link[0], file->path, strlen(file->path) + 1);
    for (int links = 0; found; links++) {
        *old = (gd_os_status){0};
        found = open_folder(file, file->link[links % 2]) &&
                (gd_os_status_at(file->folder, *file->name ? file->name : ".", false, old) ||
                 errno == ENOENT);
        if (old->kind != GD_OS_IS_LINK) break;
        errno = ELOOP;
        found = links < MOST_LINKS && gd_os_read_link(file->folder, file->name,
                                                      file->link[(links + 1) % 2], GD_WHOLE_PATH);
    }
    if (!found) return fail(file, "create it");
    const bool there = gd_os_status_at(gd_os_here, file->path, true, &end);
    if ((there ? end.kind == GD_OS_IS_FILE : !old->kind) && end.number == old->number) return GD_OK;
    return gd_fail(file->ctx, GD_ERROR_IO, "%s: %s: it exists and is not a regular file", file->who,
                   gd_excerpt_of(file->path).text);
}

gd_status gd_whole_file_begin(gd_whole_file *file, gd_context *ctx, const char *who,
                              const char *path)
{
    gd_os_status old;
    if (gd_error_status(ctx)) return gd_error_status(ctx);
    if (!path) return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: path is NULL, wanted a file", who);
    file->ctx = ctx, file->who = who, file->path = path;
    file->folder = gd_os_here, file->descriptor = -1;
    const bool found = !follow_links(file, &old);
    const char *name = found && strlen(file->name) <= GD_WHOLE_NAME ? file->name : "gradus";
    for (int attempt = 0; found && attempt < 1000 && file->descriptor < 0; attempt++) {
        snprintf(file->temporary, sizeof file->temporary, "%s.%lld-%d.tmp", name,
                 (long long)gd_os_process(), attempt);
        file->descriptor = gd_os_open(file->folder, file->temporary, GD_OS_WRITE | GD_OS_NEW,
                                      old.kind ? 0600 : 0666);
        if (file->descriptor < 0 && errno != EEXIST) break;
    }
    if (found && file->descriptor < 0) fail(file, "create it");
    if (file->descriptor < 0) gd_os_close(file->folder);
    if (file->descriptor >= 0 && old.kind) gd_os_set_access(file->descriptor, &old);
    return gd_error_status(ctx);
}

bool gd_whole_file_write(void *file, const void *data, size_t bytes)
{
    return gd_os_write(((const gd_whole_file *)file)->descriptor, data, bytes);
}

gd_status gd_whole_file_end(gd_whole_file *file)
{
    gd_context *ctx = file->ctx;
    if (!gd_failed(ctx) && !gd_os_flush(file->descriptor)) fail(file, "flush it");
    if (!gd_os_close(file->descriptor) && !gd_failed(ctx)) fail(file, "close it");
    if (!gd_failed(ctx) && !gd_os_rename(file->folder, file->temporary, file->name))
        fail(file, "rename it");
    if (gd_failed(ctx))
        gd_os_remove(file->folder, file->temporary);
    else if (!gd_os_flush_folder(file->folder))
        fail(file, "flush its folder");
    gd_os_close(file->folder);
    return gd_error_status(ctx);
}
