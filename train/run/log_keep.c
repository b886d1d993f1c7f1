/* log_keep.c - see log_keep.h. */
#include "log_keep.h"
#include "platform/file.h"

#include <stdlib.h>
#include <string.h>

const char log_mark[] = "{\"program\": \"gradus-train\"";

/* Whether the file, or the beginning that exists, begins as a log does. */
static bool has_mark(FILE *old)
{
    char begin[sizeof log_mark - 1];
    size_t size = fread(begin, 1, sizeof begin, old);
    rewind(old);
    return memcmp(begin, log_mark, size) == 0;
}

#ifdef GD_HAVE_JANSSON
#include "files/json.h"

/* ---- One line ----------------------------------------------------------------------------- */

typedef enum line_kind { LINE_BAD, LINE_BEGIN, LINE_STEP } line_kind;

/* A measured value is a number, or null. */
static bool has_numbers(json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (!json_is_number(value) && !json_is_null(value)) return false;
    }
    return true;
}

static line_kind kind_of(json_t *object)
{
    if (json_object_get(object, "program")) {
        return json_is_object(json_object_get(object, "options")) ? LINE_BEGIN : LINE_BAD;
    }
    return has_numbers(object) ? LINE_STEP : LINE_BAD;
}

/* The kind of a line, and its step. A first line's text may be compared with `text_hash`. */
static line_kind parse(const char *line, size_t length, int64_t *step, char text_hash[18],
                       const char **why)
{
    gd_json json = {.text = line, .length = length};
    json_t *object = gd_json_take_all(&json);
    line_kind kind = json_is_object(object) ? kind_of(object) : LINE_BAD;
    const json_t *whole = json_object_get(object, kind == LINE_BEGIN ? "first_step" : "step");
    *step = json_is_integer(whole) ? (int64_t)json_integer_value(whole) : -1;
    const char *hash = json_string_value(json_object_get(object, "text_hash"));
    snprintf(text_hash, 18, "%s", hash ? hash : "");
    if (json.memory) *why = json.wrong;
    gd_json_close(&json);
    return *step < 0 ? LINE_BAD : kind;
}

/* ---- All of them -------------------------------------------------------------------------- */

/* The first line of a run that began at the same step is kept only with a validation of that step.
 * A torn first line with nothing after it is that of a run that stopped at once. Other damaged
 * lines are skipped: good ones may follow. */
static int64_t keep_lines(FILE *old, int64_t step, uint64_t text_hash, const char **why, char *line)
{
    static const char other[] = "its first line was not written by gradus-train";
    char hash[18], wanted[17];
    int64_t bytes = 0, begin = 0, end, at;
    bool first = true, within = false; /* within: in a line too long to be checked */
    snprintf(wanted, sizeof wanted, "%016llx", (unsigned long long)text_hash);
    for (; fgets(line, LOG_LINE, old); begin = end) {
        end = gd_os_stream_at(old);
        const size_t length = (size_t)(end - begin);
        const bool ended = line[length - 1] == '\n';
        if (first && !ended) break;
        const bool fine = ended && !within && strlen(line) == length;
        line_kind kind = fine ? parse(line, length, &at, hash, why) : LINE_BAD;
        if (first && kind != LINE_BEGIN)
            *why = other;
        else if (first && strcmp(hash, wanted) != 0)
            *why = "it is from a run on another text";
        if (*why) return -1;
        first = false;
        within = !ended;
        if (kind == LINE_BAD) continue;
        if (at > step) break;
        if (kind == LINE_STEP || at < step) bytes = end;
    }
    if (first && !feof(old)) *why = other;
    if (ferror(old)) *why = "it cannot be read";
    return *why ? -1 : bytes;
}

#endif

int64_t log_keep(FILE *old, int64_t step, uint64_t text_hash, const char **why)
{
    *why = NULL;
    if (!has_mark(old)) *why = "it is not a log of gradus-train";
    if (*why || step == 0) return *why ? -1 : 0;
#ifdef GD_HAVE_JANSSON
    char *line = malloc(LOG_LINE);
    if (!line) *why = "out of memory";
    int64_t bytes = line ? keep_lines(old, step, text_hash, why, line) : -1;
    free(line);
    return bytes;
#else
    return (void)text_hash, 0; /* nothing can be resumed: the log begins anew */
#endif
}
