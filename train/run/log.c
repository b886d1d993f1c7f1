/* log.c - see log.h. */
#include "log.h"
#include "console.h"
#include "files/json_text.h"
#include "log_keep.h"
#include "platform/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Lines -------------------------------------------------------------------------------- */

static void tell(run_log *log, int why)
{
    if (!log->failed) {
        console_message("cannot write to the log %s: %s; training continues", log->path,
                        strerror(why));
    }
    log->failed = true;
}

/* Writing to a deleted file succeeds, but nobody could read it. */
static bool is_deleted(int file)
{
    gd_os_status status;
    return gd_os_status_of(file, &status) && status.kind == GD_OS_IS_FILE && status.names == 0;
}

/* Writes a whole line. A reader that has closed a pipe is an error of the log, and does not end the
 * run. If that fails, the part that was written is cut off again. */
static void append(run_log *log, const char *text, size_t size)
{
    if (is_deleted(log->file)) tell(log, ENOENT);
    for (size_t done = 0; done < size;) {
        const ptrdiff_t written = gd_os_write_some(log->file, text + done, size - done);
        if (written <= 0) {
            tell(log, written < 0 ? errno : ENOSPC);
            if (done > 0) gd_os_cut(log->file, log->size);
            return;
        }
        done += (size_t)written;
    }
    log->size += (int64_t)size;
}

/* A line begins as text in memory. */
static void end_line(run_log *log, gd_json_text *line)
{
    gd_json_print(line, "}\n");
    if (line->lacking)
        tell(log, ENOMEM);
    else
        append(log, line->bytes, line->length);
    free(line->bytes);
}

/* , "name": [the files that were read for training (0) or for validation (1)] */
static void print_files(gd_json_text *to, const dataset *data, int which, const char *name)
{
    const token_source *source = which ? &data->validation : &data->train;
    const paths *texts = &data->texts[which];
    gd_json_print(to, ", \"%s\": [", name);
    for (size_t i = 0; i < texts->count; i++) {
        gd_json_print(to, "%s", i ? ", " : "");
        gd_json_print_string(to, texts->name[i], NULL);
    }
    for (int i = 0; i < source->shards && source->shard[i].path; i++) {
        gd_json_print(to, "%s", i ? ", " : "");
        gd_json_print_string(to, source->shard[i].path, NULL);
    }
    gd_json_print(to, "]");
}

/* The options as members of a JSON object. */
static void print_options(gd_json_text *to, const options *o)
{
    options_item item;
    for (int i = 0; options_value(o, i, &item); i++) {
        const option_kind kind = item.row->kind;
        const bool bare = kind == OPTION_WHOLE || kind == OPTION_NUMBER || kind == OPTION_SWITCH;
        gd_json_print(to, "%s\"%s\": ", i ? ", " : "", item.name);
        if (item.text && !bare)
            gd_json_print_string(to, item.text, NULL);
        else
            gd_json_print(to, "%s", item.text ? item.text : "null");
    }
}

static void write_first(run_log *log, const train_options *options, const dataset *data,
                        const model *m, int64_t first_step)
{
    gd_json_text line = {0};
    gd_json_print(&line, "%s, \"version\": \"%s\", \"device\": ", log_mark, gd_version());
    gd_json_print_string(&line, gd_context_device_name(m->ctx), NULL);
    gd_json_print(&line,
                  ", \"text_hash\": \"%016llx\", \"vocabulary\": %lld, \"parameters\": %lld, "
                  "\"first_step\": %lld, \"options\": {",
                  (unsigned long long)data->files[0], (long long)data->tokenizer.vocab,
                  (long long)gd_params_elements(m->params), (long long)first_step);
    print_options(&line, &options->base);
    gd_json_print(&line, "}");
    print_files(&line, data, 0, "files");
    print_files(&line, data, 1, "val_files");
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
    gd_json_text line = {0};
    if (!log->open) return;
    gd_json_print(&line, "{\"step\": %lld", (long long)l->step);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        gd_json_print(&line, ", \"%s\": ", numbers[i].name);
        /* JSON has no NaN and no infinity. */
        gd_json_print(&line, isfinite(numbers[i].value) ? "%.9g" : "null", numbers[i].value);
    }
    end_line(log, &line);
}

/* ---- The file ----------------------------------------------------------------------------- */

static const char log_name[] = "log.jsonl"; /* in --out */

/* Appends what follows log->size to an open file. */
static bool append_rest(const run_log *log, int old)
{
    enum { PIECE = 1 << 16 };
    char *piece = malloc(PIECE);
    ptrdiff_t got = piece ? 1 : -1;
    for (int64_t at = log->size; got > 0; at += got) {
        got = gd_os_read_at(log->file, piece, PIECE, at);
        if (got > 0 && !gd_os_write(old, piece, (size_t)got)) got = -1;
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
    char old_name[FOLDER_NAME], parent[FOLDER_PATH];
    const char *slash = gd_os_last_slash(log->path), *name = slash ? slash + 1 : log->path;
    if (!folder_parent(parent, log->path) || !folder_open(&in, parent, false)) return false;
    errno = ENAMETOOLONG;
    const int length = snprintf(old_name, sizeof old_name, "%s.old", name);
    const int old = length < FOLDER_NAME ? folder_file(&in, old_name, FOLDER_APPEND) : -1;
    gd_os_status made, status;
    if (old >= 0 && gd_os_status_of(old, &made) && made.size == 0 &&
        gd_os_status_of(log->file, &status))
        gd_os_set_access(old, &status); /* who may not read the log may not read its lines there */
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
    const int copy = gd_os_duplicate(log->file);
    log->old = copy < 0 ? NULL : gd_os_stream_of(copy, "rb");
    if (log->old)
        log->size = log_keep(log->old, first_step, text_hash, &why);
    else if (copy >= 0)
        gd_os_close(copy);
    if (why) {
        return gd_fail(ctx, GD_ERROR_IO,
                       "the log %s was not changed: %s; choose another with --log", log->path, why);
    }
    gd_os_status status;
    const bool fine = log->old && gd_os_status_of(log->file, &status);
    if (fine && status.size > log->size && !set_aside(log)) {
        return gd_fail(ctx, GD_ERROR_IO,
                       "the log %s was not changed: its last lines cannot be moved to %s.old: %s",
                       log->path, log->path, folder_reason());
    }
    if (!fine || !gd_os_cut(log->file, log->size))
        return gd_fail(ctx, GD_ERROR_IO, "cannot continue the log %s: %s", log->path,
                       strerror(errno));
    if (first_step == 0 && status.size > 0)
        console_message("the log %s of an earlier run is now in %s.old", log->path, log->path);
    return GD_OK;
}

/* Opens a pipe for writing, which waits for a reader. */
static int open_pipe(const char *path)
{
    const int file = gd_os_open(gd_os_here, path, GD_OS_WRITE | GD_OS_NO_WAIT, 0);
    if (file < 0 && errno == ENXIO) {
        console_message("--log %s: waiting for a reader", path);
        return gd_os_open(gd_os_here, path, GD_OS_WRITE, 0);
    }
    if (file >= 0) gd_os_set_waiting(file);
    return file;
}

/* Opens what --log names. A pipe or a terminal has no old lines, and reading it would never end. */
static int open_named(const char *path, bool *regular)
{
    gd_os_status status;
    const bool there = gd_os_status_at(gd_os_here, path, true, &status);
    *regular = !there || status.kind == GD_OS_IS_FILE;
    if (there && status.kind == GD_OS_IS_PIPE) return open_pipe(path);
    const int how = GD_OS_WRITE | GD_OS_MAKE | (*regular ? GD_OS_READ : 0);
    return gd_os_open(gd_os_here, path, how, 0666);
}

static int open_in(const char *out)
{
    open_folder in;
    if (!folder_open(&in, out, false)) return -1;
    const int file = folder_file(&in, log_name, FOLDER_KEEP);
    folder_close(&in);
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
    if (regular && !gd_os_lock(log->file)) {
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
    if (!open_file(log, m->ctx, options, first_step, data->files[0])) {
        write_first(log, options, data, m, first_step);
    }
    return gd_error_status(m->ctx);
}

void log_close(run_log *log)
{
    if (log->old) fclose(log->old);
    if (log->open) gd_os_close(log->file);
    log->old = NULL;
    log->open = false;
}
