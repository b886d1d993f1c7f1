/* metrics.c - the numbers of a run (metrics.h). Each line is written at once, whole or not at all:
 * a program that is killed leaves a log that can be read. */
#include "gradus/metrics.h"

#include "core/core.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/number.h"
#include "platform/terminal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LINE = 4096 };

struct gd_metrics {
    gd_context *ctx;
    gd_metrics_options options;
    int file;                      /* -1: none */
    int64_t size;                  /* of its whole lines */
    int lost;                      /* errno of a line that was not written; 0: none was */
    bool started;                  /* there was a step: */
    int64_t first_step, last_step; /* the first one, and that of the last line */
    double begun, drawn, last; /* the times of the first step, the last progress, the last line */
};

static const char mark[] = "{\"program\": \"gd_metrics\"";

/* Where the last whole line ends; -1: it is no log. */
static int64_t end_of_lines(int file)
{
    char bytes[LINE];
    int64_t at = 0, end = 0;
    ptrdiff_t n;
    while ((n = gd_os_read_at(file, bytes, sizeof bytes, at)) > 0) {
        const size_t known = sizeof mark - 1 < (size_t)n ? sizeof mark - 1 : (size_t)n;
        if (at == 0 && memcmp(bytes, mark, known) != 0) return -1;
        for (ptrdiff_t i = 0; i < n; i++)
            if (bytes[i] == '\n') end = at + i + 1;
        at += n;
    }
    return end;
}

/* Opens a log for new lines, behind its last whole one; -1, with the error set, if it cannot. */
static int open_file(gd_context *ctx, const char *path, int64_t *size)
{
    const int how = GD_OS_READ | GD_OS_WRITE | GD_OS_MAKE | GD_OS_APPEND | GD_OS_NO_WAIT;
    const int file = gd_os_open(gd_os_here, path, how, 0666);
    gd_os_status status = {.kind = GD_OS_IS_NOTHING};
    const bool there = file >= 0 && gd_os_status_of(file, &status);
    const bool regular = status.kind == GD_OS_IS_FILE;
    *size = regular ? end_of_lines(file) : -1;
    if (*size >= 0 && (*size == status.size || gd_os_cut(file, *size))) return file;
    gd_fail(ctx, GD_ERROR_IO, "metrics_open: %.200s: %s", path,
            !there || *size >= 0 ? strerror(errno)
            : regular ? "it is no log, wanted a new file or one that gd_metrics_open has made"
                      : "it is not a regular file");
    if (file >= 0) gd_os_close(file);
    return -1;
}

/* Writes a line, or nothing of it. */
static void put(gd_metrics *log, const char *line)
{
    const size_t size = strlen(line);
    if (log->file < 0) return;
    if (gd_os_write(log->file, line, size)) {
        log->size += (int64_t)size;
        return;
    }
    const int before = log->lost;
    log->lost = errno;
    gd_os_cut(log->file, log->size);
    if (!before)
        gd_notice(log->ctx, GD_NOTICE_METRICS, "metrics_write: a line cannot be written: %s",
                  strerror(log->lost));
}

gd_metrics *gd_metrics_open(gd_context *ctx, const char *path, const gd_metrics_options *options)
{
    const char *who = "metrics_open";
    const gd_metrics_options o = options ? *options : (gd_metrics_options){0};
    if (gd_error_status(ctx)) return NULL;
    if (o.steps < 0 || o.every < 0) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: steps is %lld and every %lld, wanted 0 or more", who,
                (long long)o.steps, (long long)o.every);
        return NULL;
    }
    gd_metrics *log = gd_host_allocate(ctx, sizeof *log, who);
    if (!log) return NULL;
    *log = (gd_metrics){.ctx = ctx, .options = o, .file = -1};
    if (path && (log->file = open_file(ctx, path, &log->size)) < 0) {
        gd_host_release(ctx, log, sizeof *log);
        return NULL;
    }
    gd_context_hold(ctx);
    char line[LINE];
    snprintf(line, sizeof line, "%s, \"version\": \"%s\", \"device\": \"%s\"}\n", mark,
             gd_version(), gd_context_device_name(ctx));
    put(log, line);
    return log;
}

/* Appends to a text of LINE bytes, which is then full if that does not fit. */
static void add(char *text, const char *name, double value, bool json)
{
    const size_t used = strlen(text);
    const char *form = !json ? " | %s %.4g" : isfinite(value) ? ", \"%s\": %.9g" : ", \"%s\": null";
    gd_os_print(text + used, LINE - used, form, name, value);
}

static void draw(gd_metrics *log, int64_t step, const gd_metrics_number *numbers, int count,
                 double now)
{
    char line[LINE];
    const int64_t steps = log->options.steps, made = step - log->first_step;
    const int columns = gd_os_terminal_columns(2);
    const double each = made > 0 ? (now - log->begun) / (double)made : 0;
    snprintf(line, sizeof line, steps ? "step %lld/%lld" : "step %lld", (long long)step,
             (long long)steps);
    for (int i = 0; i < count; i++) add(line, numbers[i].name, numbers[i].value, false);
    if (each > 0) add(line, "steps/s", 1 / each, false);
    if (each > 0 && steps > step) {
        const int64_t seconds = (int64_t)(each * (double)(steps - step));
        const size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, " | %lld:%02d left", (long long)(seconds / 60),
                 (int)(seconds % 60));
    }
    fprintf(stderr, "\r%.*s\033[K", columns > 1 ? columns - 1 : 79, line);
    log->drawn = now;
}

static bool is_name(const char *name)
{
    size_t n = 0;
    while (name && (unsigned char)name[n] >= ' ' && !strchr("\"\\\177", name[n])) n++;
    return n > 0 && n <= 64 && !name[n];
}

gd_status gd_metrics_write(gd_metrics *log, int64_t step, const gd_metrics_number *numbers,
                           int count)
{
    if (!log) return GD_OK;
    const double now = gd_os_now();
    const int64_t every = log->options.every ? log->options.every : 1;
    char line[LINE];
    for (int i = 0; i < count; i++)
        if (!numbers || !is_name(numbers[i].name))
            return gd_fail(log->ctx, GD_ERROR_ARGUMENT,
                           "metrics_write: name %d is not one, wanted 1 to 64 characters without "
                           "quotes, backslashes and control characters",
                           i);
    if (!log->started) {
        log->started = true;
        log->first_step = log->last_step = step;
        log->begun = log->last = now;
    }
    if (log->file >= 0 && (step == 1 || step % every == 0)) {
        const int64_t made = step - log->last_step;
        snprintf(line, sizeof line, "{\"step\": %lld", (long long)step);
        for (int i = 0; i < count; i++) add(line, numbers[i].name, numbers[i].value, true);
        add(line, "ms", made ? 1e3 * (now - log->last) / (double)made : NAN, true);
        add(line, "seconds", now - log->begun, true);
        if (strlen(line) + 3 > sizeof line) /* it was cut, but for at most three bytes */
            return gd_fail(log->ctx, GD_ERROR_ARGUMENT, "metrics_write: %d numbers are too many",
                           count);
        strcat(line, "}\n");
        put(log, line);
        log->last = now;
        log->last_step = step;
    }
    if (!log->options.quiet && (now - log->drawn >= 0.1 || step == log->options.steps) &&
        gd_os_is_terminal(2) && gd_os_terminal_erases())
        draw(log, step, numbers, count, now);
    return gd_error_status(log->ctx);
}

gd_status gd_metrics_close(gd_metrics *log)
{
    if (!log) return GD_OK;
    gd_context *ctx = log->ctx;
    if (log->drawn > 0) fputc('\n', stderr);
    if (log->file >= 0 && !gd_os_close(log->file) && !log->lost) log->lost = errno;
    if (log->lost)
        gd_fail(ctx, GD_ERROR_IO, "metrics_close: lines were lost: %s", strerror(log->lost));
    gd_host_release(ctx, log, sizeof *log);
    const gd_status status = gd_error_status(ctx);
    gd_context_drop(ctx);
    return status;
}
