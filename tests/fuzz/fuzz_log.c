/* fuzz_log.c - any bytes as the log of a resumed run: it is not changed, or the lines up to the
 * first of a later step stay, including damaged ones, and the new lines follow. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "fuzz.h"
#include "json.h"
#include "log.h"
#include "log_keep.h"

enum { MOST = 1 << 16 };

static const uint64_t text_hash = 0x0123456789abcdef;
static gd_context *ctx;
static model m;
static train_options defaults;

/* ---- What is kept, judged without the program's own code ------------------------------------ */

/* The step of a line that holds nothing else and is therefore good without doubt; -1 for any other
 * line, which may be damaged. */
static double plain_step(const char *line)
{
    static const char begin[] = "{\"step\": ";
    if (strncmp(line, begin, strlen(begin)) != 0) return -1;
    const char *digits = line + strlen(begin);
    size_t count = strspn(digits, "0123456789");
    bool plain = count > 0 && count < 18 && digits[0] != '0' && !strncmp(digits + count, "}\n", 2);
    return plain ? strtod(digits, NULL) : -1;
}

/* One object, followed by nothing but space. */
static bool is_object(const char *line)
{
    const char *end = *json_space(line) == '{' ? json_end(line) : NULL;
    return end && *json_space(end) == '\0';
}

/* The first line and the last are good; what is damaged between them stays. */
static void check_kept(const char *text, size_t size, double step)
{
    static char line[MOST + 1];
    for (size_t begin = 0, length; begin < size; begin += length) {
        const char *end = memchr(text + begin, '\n', size - begin);
        demand(end != NULL, "whole lines");
        length = (size_t)(end - (text + begin)) + 1;
        memcpy(line, text + begin, length);
        line[length] = '\0';
        demand(plain_step(line) <= step, "no line of a later step");
        if (begin == 0 || begin + length == size) {
            demand(strlen(line) == length, "no byte 0");
            demand(is_object(line), "an object");
        }
        if (begin == 0 && !strchr(line, '\\')) { /* json.h does not read escaped keys */
            demand(json_member(line, "program") != NULL, "the configuration first");
            demand(json_is(json_member(line, "text_hash"), "0123456789abcdef"), "of this text");
        }
    }
}

/* A line that could have been kept is not cut off. */
static void check_cut(const char *rest, double step)
{
    double at = plain_step(rest);
    demand(at < 0 || at > step, "no line is lost");
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
    const dataset data = {.files = {text_hash}};
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
 * where that byte is odd, or nearly all would be refused without one. */
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
    check_kept(after, kept, (double)step);
    if (kept > 0) check_cut(before + kept, (double)step);
    demand(go_on(path, step + 1), "it is taken again");
    demand(read_back(path, again) > now && !memcmp(after, again, now), "and all of it is kept");
    return 0;
}
