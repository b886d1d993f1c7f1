/* log.c - see log.h. */
#define _POSIX_C_SOURCE 200809L /* open_memstream, dup */
#include "log.h"
#include "console.h"
#include "json.h"
#include "log_keep.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Lines -------------------------------------------------------------------------------- */

static void tell(run_log *log, int why)
{
    if (!log->failed) {
        console_message("cannot write to the log %s: %s; training goes on", log->path,
                        strerror(why));
    }
    log->failed = true;
}

/* All of a line; where that cannot be, what there is of it is cut off again. */
static void append(run_log *log, const char *text, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t written = write(log->file, text + done, size - done);
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
    FILE *file; /* NULL: there is no memory */
} text_line;

static void end_line(run_log *log, text_line *line)
{
    if (line->file && !fclose(line->file))
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
    } numbers[] = {{"loss", l->loss},      {"val", l->val},
                   {"norm", l->norm},      {"lr", l->lr},
                   {"ms", l->ms},          {"tokens_per_second", l->tokens_per_second},
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

/* Cuts off what does not belong to the run so far. */
static bool keep_old(run_log *log, int64_t first_step, uint64_t text_hash)
{
    const char *why = NULL;
    int copy = dup(log->file);
    FILE *old = copy < 0 ? NULL : fdopen(copy, "rb");
    if (old) {
        log->size = log_keep(old, first_step, text_hash, &why);
        fclose(old);
    } else if (copy >= 0) {
        close(copy);
    }
    if (why) {
        console_message("the log %s is left as it is: %s; --log names another", log->path, why);
        return false;
    }
    if (old && !ftruncate(log->file, log->size) && lseek(log->file, log->size, SEEK_SET) >= 0) {
        return true;
    }
    console_message("cannot go on with the log %s: %s", log->path, strerror(errno));
    return false;
}

/* A pipe or a terminal, which has nothing old, is not opened to be read, or it would never end. */
static bool open_file(run_log *log, int64_t first_step, uint64_t text_hash)
{
    struct stat status;
    bool regular = stat(log->path, &status) || S_ISREG(status.st_mode);
    log->file =
        open(log->path, (regular ? O_RDWR : O_WRONLY) | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (log->file < 0) {
        console_message("cannot write %s: %s", log->path, strerror(errno));
        return false;
    }
    log->open = true;
    if (!regular || keep_old(log, first_step, text_hash)) return true;
    log_close(log);
    return false;
}

bool log_open(run_log *log, const train_options *options, const dataset *data, const model *m,
              int64_t first_step)
{
    *log = (run_log){0};
    if (options->log) {
        snprintf(log->path, sizeof log->path, "%s", options->log);
    } else if (!options->out) {
        return true;
    } else if (!folder_join(log->path, options->out, "log.jsonl")) {
        console_message("--out has too long a name");
        return false;
    }
    if (!open_file(log, first_step, data->hash)) return false;
    write_first(log, options, data, m, first_step);
    return true;
}

void log_close(run_log *log)
{
    if (log->open) close(log->file);
    log->open = false;
}
