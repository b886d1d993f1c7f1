/* log.c - see log.h. */
#include "log.h"
#include "console.h"
#include "json.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static void check(run_log *log)
{
    if (!ferror(log->file) && !fflush(log->file)) return;
    if (!log->failed) {
        console_message("cannot write the log: %s; training goes on", strerror(errno));
    }
    log->failed = true;
    clearerr(log->file);
}

bool log_open(run_log *log, const train_options *options, const dataset *data, const model *m,
              int64_t first_step)
{
    *log = (run_log){0};
    if (!options->log) return true;
    log->file = fopen(options->log, first_step > 0 ? "a" : "w");
    if (!log->file) {
        console_message("cannot write %s: %s", options->log, strerror(errno));
        return false;
    }
    fprintf(log->file, "{\"version\": \"%s\", \"device\": ", gd_version());
    json_print_string(gd_context_device_name(m->ctx), log->file);
    fprintf(log->file,
            ", \"text_hash\": \"%016llx\", \"vocabulary\": %lld, \"parameters\": %lld, "
            "\"first_step\": %lld, \"options\": {",
            (unsigned long long)data->hash, (long long)data->tokenizer.vocab,
            (long long)gd_params_elements(m->params), (long long)first_step);
    options_print_json(&options->base, log->file);
    fprintf(log->file, "}}\n");
    check(log);
    return true;
}

/* JSON has no NaN and no infinity. */
static void print_number(run_log *log, const char *name, double value)
{
    if (isfinite(value))
        fprintf(log->file, ", \"%s\": %.9g", name, value);
    else
        fprintf(log->file, ", \"%s\": null", name);
}

void log_write(run_log *log, const log_line *line)
{
    if (!log->file) return;
    fprintf(log->file, "{\"step\": %lld", (long long)line->step);
    print_number(log, "loss", line->loss);
    print_number(log, "val", line->val);
    print_number(log, "norm", line->norm);
    print_number(log, "lr", line->lr);
    print_number(log, "ms", line->ms);
    print_number(log, "tokens_per_second", line->tokens_per_second);
    print_number(log, "seconds", line->seconds);
    fprintf(log->file, "}\n");
    check(log);
}

void log_close(run_log *log)
{
    if (log->file) fclose(log->file);
    *log = (run_log){0};
}
