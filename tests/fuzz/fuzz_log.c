/* fuzz_log.c - any bytes as the log that a run finds when it goes on: left alone, or a part of it
 * from the beginning stays, all whole lines of steps done, in order, and the new lines follow. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "fuzz.h"
#include "json.h"
#include "log.h"
#include "log_keep.h"

#include <math.h>

enum { MOST = 1 << 16 };

static const uint64_t text_hash = 0x0123456789abcdef;
static gd_context *ctx;
static model m;
static train_options defaults;

/* ---- What is kept, judged without the program's own eyes ------------------------------------ */

/* The number of a key, -1 where it has no whole one. */
static double number_of(const char *line, const char *key)
{
    const char *value = json_member(line, key);
    char *end;
    if (!value || !strchr("-0123456789", *value)) return -1;
    double number = strtod(value, &end);
    return strchr(", \t\r\n}", *end) ? number : -1;
}

/* A whole line: one object, and nothing but space behind it. */
static bool is_object(const char *line)
{
    const char *end = *json_space(line) == '{' ? json_end(line) : NULL;
    return end && *json_space(end) == '\0';
}

static void check_line(const char *line, bool first, double step, double *last)
{
    demand(is_object(line), "each line is an object");
    if (strchr(line, '\\')) { /* a key in disguise, which json.h does not see through */
        *last = HUGE_VAL;     /* of any step */
        return;
    }
    bool begins = json_member(line, "program") != NULL;
    demand(begins || !first, "the first line holds the configuration");
    double at = number_of(line, begins ? "first_step" : "step");
    bool in_order = *last == HUGE_VAL || (begins ? at >= *last : at > *last);
    demand(at >= 0 && in_order, "in order");
    demand(begins ? at < step : at <= step, "of a step that was done");
    *last = at;
    if (begins)
        demand(json_is(json_member(line, "text_hash"), "0123456789abcdef") || !first, "its text");
}

/* Returns the last line's step. */
static double check_kept(const char *text, size_t size, double step)
{
    static char line[MOST + 1];
    double last = 0;
    for (size_t begin = 0, length; begin < size; begin += length) {
        const char *end = memchr(text + begin, '\n', size - begin);
        demand(end != NULL, "whole lines");
        length = (size_t)(end - (text + begin)) + 1;
        memcpy(line, text + begin, length);
        line[length] = '\0';
        demand(strlen(line) == length, "no byte 0");
        check_line(line, begin == 0, step, &last);
    }
    return last;
}

/* A plain line that could have been kept is not cut off. */
static void check_cut(const char *rest, double last, double step)
{
    static const char begin[] = "{\"step\": ";
    if (strncmp(rest, begin, strlen(begin)) != 0) return;
    const char *digits = rest + strlen(begin), *end = digits + strspn(digits, "0123456789");
    if (strncmp(end, "}\n", 2) != 0 || end == digits || digits[0] == '0') return;
    double at = strtod(digits, NULL);
    demand(at <= last || at > step, "no line is lost");
}

/* ---- The program ---------------------------------------------------------------------------- */

static size_t read_back(const char *path, char *text)
{
    FILE *file = fopen(path, "rb");
    demand(file != NULL, "the log is there");
    size_t size = fread(text, 1, 2 * MOST, file);
    fclose(file);
    text[size] = '\0';
    return size;
}

/* A run from `step` that reports one step more. False: it was refused. */
static bool go_on(const char *path, int64_t step)
{
    const dataset data = {.hash = text_hash};
    run_log log;
    defaults.log = path;
    if (log_open(&log, &defaults, &data, &m, step)) {
        gd_error_clear(ctx);
        return false;
    }
    log_write(&log, &(log_line){.step = step + 1, .loss = 1, .norm = 2, .lr = 3});
    demand(!log.failed, "written");
    log_close(&log);
    return true;
}

static void set_up(void)
{
    const model_config small = {
        .vocab = 2, .layers = 1, .dim = 2, .heads = 1, .kv_heads = 1, .ffn = 1};
    char *argv[] = {"gradus-train", NULL};
    demand(train_options_read(&defaults, argv) == OPTIONS_RUN, "defaults");
    ctx = gd_context_create(&(gd_context_options){.threads = 1});
    demand(!model_create(&m, ctx, GD_FLOAT32, &small), "a model");
}

/* The last two lines of a log are those of go_on. */
static size_t without_new_lines(const char *text, size_t size)
{
    for (int lines = 0; lines < 2; lines++) {
        demand(size > 0 && text[size - 1] == '\n', "a new line");
        do size--;
        while (size > 0 && text[size - 1] != '\n');
    }
    demand(!strncmp(text + size, log_mark, strlen(log_mark)), "the configuration");
    return size;
}

/* The first byte says from what step the run goes on; the rest is the log, behind a good first line
 * where that byte is odd, or nearly all would be refused for want of one. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char good[] = "{\"program\": \"gradus-train\", \"text_hash\": "
                               "\"0123456789abcdef\", \"first_step\": 0, \"options\": {}}\n";
    static char before[2 * MOST + 1], after[2 * MOST + 1], again[2 * MOST + 1], path[600];
    if (size == 0 || size > MOST / 2) return 0;
    if (!ctx) set_up();
    int64_t step = bytes[0] >> 1;
    size_t head = bytes[0] & 1 ? sizeof good - 1 : 0, old = head + size - 1;
    memcpy(before, good, head);
    memcpy(before + head, bytes + 1, size - 1);
    before[old] = '\0';
    snprintf(path, sizeof path, "%s", fuzz_file("log.jsonl", (const uint8_t *)before, old));
    bool taken = go_on(path, step);
    size_t now = read_back(path, after);
    if (!taken) {
        demand(now == old && !memcmp(before, after, old), "what was refused is untouched");
        demand(!head && (step > 0 || strncmp(before, log_mark, strlen(log_mark))), "it was no log");
        return 0;
    }
    size_t kept = without_new_lines(after, now);
    demand(kept <= old && !memcmp(before, after, kept), "what is kept is as it was");
    demand(step > 0 || kept == 0, "a run from the beginning has a log of its own");
    double last = check_kept(after, kept, (double)step);
    if (kept > 0) check_cut(before + kept, last, (double)step);
    demand(go_on(path, step + 1), "it is taken again");
    demand(read_back(path, again) > now && !memcmp(after, again, now), "and all of it is kept");
    return 0;
}
