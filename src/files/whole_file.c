/* whole_file.c - a file that appears whole or not at all.
 *
 * It is written under a temporary name in the same folder. At the end it is flushed to the disk,
 * then renamed, which replaces an older file atomically; then the folder is flushed, or a power
 * failure could lose the new name. Every call may fail, including close. */
#define _POSIX_C_SOURCE 200809L /* open, fsync */
#include "files/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gd_status fail(const gd_whole_file *file, const char *what)
{
    return gd_fail(file->ctx, GD_ERROR_IO, "%s: %s: cannot %s: %s", file->who,
                   gd_excerpt_of(file->path).text, what, strerror(errno));
}

/* Renaming would replace a pipe or /dev/null by a file. */
static gd_status check_place(const gd_whole_file *file)
{
    struct stat status;
    if (stat(file->path, &status) || S_ISREG(status.st_mode)) return GD_OK;
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
        snprintf(file->temporary, file->temporary_bytes, "%s.%ld-%d.tmp", path, (long)getpid(),
                 attempt);
        file->descriptor = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->descriptor < 0 && errno != EEXIST) break;
    }
    if (file->descriptor >= 0) return GD_OK;
    fail(file, "create it");
    gd_host_release(ctx, file->temporary, file->temporary_bytes);
    return gd_error_status(ctx);
}

/* A write may be partial. */
bool gd_whole_file_write(gd_whole_file *file, const void *data, size_t bytes)
{
    const size_t most = (size_t)1 << 30;
    const char *at = data;
    while (bytes > 0) {
        ssize_t written = write(file->descriptor, at, bytes < most ? bytes : most);
        if (written < 0 && errno == EINTR) continue;
        if (written == 0) errno = ENOSPC;
        if (written <= 0) return false;
        at += written;
        bytes -= (size_t)written;
    }
    return true;
}

bool gd_whole_file_skip(gd_whole_file *file, size_t bytes)
{
    /* In parentheses: wasi-libc also has a macro of this name, which is not standard C. */
    const off_t end = (lseek)(file->descriptor, (off_t)bytes, SEEK_CUR);
    return end >= 0 && !ftruncate(file->descriptor, end);
}

/* Some file systems cannot flush a folder, and say EINVAL. */
static gd_status flush_folder(gd_whole_file *file)
{
    char *slash = strrchr(file->temporary, '/');
    if (slash) slash[slash == file->temporary] = '\0';
    int folder = open(slash ? file->temporary : ".", O_RDONLY | O_CLOEXEC);
    if (folder < 0) return fail(file, "open its folder");
    if (fsync(folder) && errno != EINVAL) fail(file, "flush its folder");
    close(folder);
    return gd_error_status(file->ctx);
}

gd_status gd_whole_file_end(gd_whole_file *file)
{
    gd_context *ctx = file->ctx;
    if (!gd_failed(ctx) && fsync(file->descriptor)) fail(file, "flush it");
    if (close(file->descriptor) && !gd_failed(ctx)) fail(file, "close it");
    if (!gd_failed(ctx) && rename(file->temporary, file->path)) fail(file, "rename it");
    if (gd_failed(ctx)) {
        unlink(file->temporary);
    } else {
        flush_folder(file);
    }
    gd_host_release(ctx, file->temporary, file->temporary_bytes);
    return gd_error_status(ctx);
}
