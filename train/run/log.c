/* log.c - see log.h. */
#define _DEFAULT_SOURCE /* open_memstream, fdopen */
#include "log.h"
#include "console.h"
#include "json.h"
#include "log_keep.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Lines -------------------------------------------------------------------------------- */

static void tell(run_log *log, int why)
{
    if (!log->failed) {
        console_message("cannot write to the log %s: %s; training continues", log->path,
                        strerror(why));
    }
    log->failed = true;
}

/* A reader that has closed the pipe is an error of the log, and does not end the run. */
static ssize_t write_some(int file, const char *text, size_t size)
{
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    struct sigaction before;
    sigaction(SIGPIPE, &ignored, &before);
    ssize_t written = write(file, text, size);
    int why = errno;
    sigaction(SIGPIPE, &before, NULL);
    errno = why;
    return written;
}

/* Writing to a deleted file succeeds, but nobody could read it. */
static bool is_deleted(int file)
{
    struct stat status;
    return !fstat(file, &status) && S_ISREG(status.st_mode) && status.st_nlink == 0;
}

/* Writes a whole line; if that fails, the part that was written is cut off again. */
static void append(run_log *log, const char *text, size_t size)
{
    if (is_deleted(log->file)) tell(log, ENOENT);
    for (size_t done = 0; done < size;) {
        ssize_t written = write_some(log->file, text + done, size - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            tell(log, written < 0 ? errno : ENOSPC);
            if (done > 0 && !ftruncate(log->file, log->size)) {
                lseek(log->file, log->size, SEEK_SET);
            }
            return;
        }
        done += (size_t)written;
    }
    log->size += (int64_t)size;
}

/* A line begins as text in memory. */
typedef struct text_line {
    char *text;
    size_t size;
    FILE *file; /* NULL: no memory */
} text_line;

static void end_line(run_log *log, text_line *line)
{
    bool whole = line->file && !ferror(line->file);
    if (line->file && fclose(line->file)) whole = false;
    if (whole)
        append(log, line->text, line->size);
    else
        tell(log, ENOMEM);
    free(line->text);
}

static void write_first(run_log *log, const train_options *options, const dataset *data,
                        const model *m, int64_t first_step)
{
    text_line line = {0};
    line.file = open_memstream(&line.text, &line.size);
    if (line.file) {
        fprintf(line.file, "%s, \"version\": \"%s\", \"device\": ", log_mark, gd_version());
        json_print_string(gd_context_device_name(m->ctx), line.file);
        fprintf(line.file,
                ", \"text_hash\": \"%016llx\", \"vocabulary\": %lld, \"parameters\": %lld, "
                "\"first_step\": %lld, \"options\": {",
                (unsigned long long)data->hash, (long long)data->tokenizer.vocab,
                (long long)gd_params_elements(m->params), (long long)first_step);
        options_print_json(&options->base, line.file);
        fprintf(line.file, "}}\n");
    }
    end_line(log, &line);
}

void log_write(run_log *log, const log_line *l)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"loss", l->loss},
                   {"mean_loss", l->mean_loss},
                   {"val", l->val},
                   {"norm", l->norm},
                   {"lr", l->lr},
                   {"ms", l->ms},
                   {"tokens_per_second", l->tokens_per_second},
                   {"seconds", l->seconds}};
    text_line line = {0};
    if (!log->open) return;
    line.file = open_memstream(&line.text, &line.size);
    if (line.file) {
        fprintf(line.file, "{\"step\": %lld", (long long)l->step);
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            fprintf(line.file, ", \"%s\": ", numbers[i].name);
            /* JSON has no NaN and no infinity. */
            fprintf(line.file, isfinite(numbers[i].value) ? "%.9g" : "null", numbers[i].value);
        }
        fprintf(line.file, "}\n");
    }
    end_line(log, &line);
}

/* ---- The file ----------------------------------------------------------------------------- */

static const char log_name[] = "log.jsonl"; /* in --out */

/* The folder that a log is in, and its name there. */
static bool open_parent(open_folder *in, const char *path, const char **name)
{
    char part[FOLDER_PATH];
    const char *slash = strrchr(path, '/');
    const size_t length = slash ? (size_t)(slash - path) : 0;
    *name = slash ? slash + 1 : path;
    if (!folder_copy(part, path)) return false;
    part[slash == path ? 1 : length] = '\0';
    return folder_open(in, slash ? part : ".", false);
}

/* Appends what follows log->size to an open file. */
static bool append_rest(const run_log *log, int old)
{
    enum { PIECE = 1 << 16 };
    char *piece = malloc(PIECE);
    ssize_t got = piece ? 1 : -1;
    for (int64_t at = log->size; got > 0; at += got) {
        do got = pread(log->file, piece, PIECE, (off_t)at);
        while (got < 0 && errno == EINTR);
        if (got > 0 && !folder_write(old, piece, (size_t)got)) got = -1;
    }
    const int why = errno;
    free(piece);
    errno = why;
    return got == 0;
}

/* Appends what follows log->size to "<log>.old", a name that the user has not given: it is not
 * followed if it is a link. */
static bool set_aside(const run_log *log)
{
    open_folder in;
    char old_name[FOLDER_NAME];
    const char *name;
    if (!open_parent(&in, log->path, &name)) return false;
    errno = ENAMETOOLONG;
    const int length = snprintf(old_name, sizeof old_name, "%s.old", name);
    const int old = length < FOLDER_NAME ? folder_file(&in, old_name, FOLDER_APPEND) : -1;
    bool fine = old >= 0 && append_rest(log, old);
    const int why = errno;
    if (old >= 0) fine = folder_end_file(old) && fine;
    if (!fine && why) errno = why;
    folder_close(&in);
    return fine;
}

/* Cuts off what the resumed run does not keep. The stream stays open with the log: closing a second
 * descriptor may end its lock. */
static gd_status keep_old(run_log *log, gd_context *ctx, int64_t first_step, uint64_t text_hash)
{
    const char *why = NULL;
    int copy = dup(log->file);
    log->old = copy < 0 ? NULL : fdopen(copy, "rb");
    if (log->old)
        log->size = log_keep(log->old, first_step, text_hash, &why);
    else if (copy >= 0)
        close(copy);
    if (why) {
        return gd_fail(ctx, GD_ERROR_IO,
                       "the log %s was not changed: %s; choose another with --log", log->path, why);
    }
    struct stat status;
    bool fine = log->old && !fstat(log->file, &status);
    if (fine && status.st_size > log->size && !set_aside(log)) {
        return gd_fail(ctx, GD_ERROR_IO,
                       "the log %s was not changed: its last lines cannot be moved to %s.old: %s",
                       log->path, log->path, folder_reason());
    }
    if (fine && !ftruncate(log->file, log->size) && lseek(log->file, log->size, SEEK_SET) >= 0)
        return GD_OK;
    return gd_fail(ctx, GD_ERROR_IO, "cannot continue the log %s: %s", log->path, strerror(errno));
}

/* Opens a pipe for writing, which waits for a reader. */
static int open_pipe(const char *path)
{
    int file = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0 && errno == ENXIO) {
        console_message("--log %s: waiting for a reader", path);
        return open(path, O_WRONLY | O_CLOEXEC);
    }
    if (file >= 0) fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
    return file;
}

/* Opens what --log names. A pipe or a terminal has no old lines, and reading it would never end. */
static int open_named(const char *path, bool *regular)
{
    struct stat status;
    const bool there = !stat(path, &status);
    *regular = !there || S_ISREG(status.st_mode);
    if (there && S_ISFIFO(status.st_mode)) return open_pipe(path);
    const int how = (*regular ? O_RDWR : O_WRONLY) | O_CREAT | O_CLOEXEC | O_NOCTTY;
    return open(path, how, 0666);
}

static int open_in(const char *out)
{
    open_folder in;
    if (!folder_open(&in, out, false)) return -1;
    const int file = folder_file(&in, log_name, FOLDER_KEEP);
    const int why = errno;
    folder_close(&in);
    errno = why;
    return file;
}

static gd_status open_file(run_log *log, gd_context *ctx, const train_options *options,
                           int64_t first_step, uint64_t text_hash)
{
    bool regular = true;
    log->file = options->log ? open_named(log->path, &regular) : open_in(options->out);
    if (log->file < 0) {
        return gd_fail(ctx, GD_ERROR_IO, "cannot write the log %s: %s", log->path,
                       options->log ? strerror(errno) : folder_reason());
    }
    log->open = true;
    if (regular && !folder_lock_file(log->file)) {
        log_close(log);
        return gd_fail(ctx, GD_ERROR_IO,
                       "the log %s is being written by another run; choose another --out or --log",
                       log->path);
    }
    if (regular && keep_old(log, ctx, first_step, text_hash)) log_close(log);
    return gd_error_status(ctx);
}

gd_status log_open(run_log *log, const train_options *options, const dataset *data, const model *m,
                   int64_t first_step)
{
    *log = (run_log){0};
    if (!options->log && !options->out) return GD_OK;
    bool named = options->log ? folder_copy(log->path, options->log)
                              : folder_join(log->path, options->out, log_name);
    if (!named) {
        return gd_fail(m->ctx, GD_ERROR_IO, "cannot write the log in %s: %s",
                       options->log ? options->log : options->out, strerror(errno));
    }
    if (!open_file(log, m->ctx, options, first_step, data->hash)) {
        write_first(log, options, data, m, first_step);
    }
    return gd_error_status(m->ctx);
}

void log_close(run_log *log)
{
    if (log->old) fclose(log->old);
    if (log->open) close(log->file);
    log->old = NULL;
    log->open = false;
}
