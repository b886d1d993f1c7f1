/* options_file.c - a file of options: lines "option = value", blank ones, and comments behind #. A
 * value may stand in quotes of either kind. */
#include "console.h"
#include "options_value.h"
#include "text_file.h"

#include <stdlib.h>
#include <string.h>

/* All of a file of reasonable size, with a 0 behind it; NULL after a message. */
static char *read_text(const char *path)
{
    enum { MOST = 1 << 20 };
    int64_t length;
    char *text = (char *)text_file_read("--config", path, MOST, &length);
    if (text && memchr(text, 0, (size_t)length)) {
        console_message("--config %s: it contains a NUL byte", path);
        free(text);
        text = NULL;
    }
    return text;
}

/* Cuts blanks off both ends. */
static char *trimmed(char *text)
{
    static const char blanks[] = " \t\r";
    text += strspn(text, blanks);
    size_t length = strlen(text);
    while (length && strchr(blanks, text[length - 1])) text[--length] = '\0';
    return text;
}

static bool is_comment(const char *text)
{
    return *text == '\0' || *text == '#';
}

/* What stands behind the equals sign, without quotes and without a comment, which begins with the
 * line or behind a blank: "a#b" is a name. */
static char *bare_value(char *text)
{
    text = trimmed(text);
    char *end = *text == '"' || *text == '\'' ? strchr(text + 1, *text) : NULL;
    if (end && is_comment(trimmed(end + 1))) {
        *end = '\0';
        return text + 1;
    }
    for (char *at = text; *at; at++) {
        if (*at != '#' || (at > text && at[-1] != ' ' && at[-1] != '\t')) continue;
        *at = '\0';
        break;
    }
    return trimmed(text);
}

/* No file names another. */
static bool read_line(options *o, const char *where, char *line)
{
    char *name = trimmed(line), *equals = strchr(name, '=');
    if (is_comment(name)) return true;
    if (!equals) {
        console_message("%s\"%s\" is not of the form option = value", where, name);
        return false;
    }
    *equals = '\0';
    name = trimmed(name);
    const option_row *row = option_find(o, name);
    if (row && row->offset != offsetof(options, config)) {
        return option_give(o, where, row, bare_value(equals + 1));
    }
    const char *guess = option_guess(o->table, name);
    if (guess) {
        console_message("%s\"%s\" is not an option; did you mean %s? --help lists them", where,
                        name, guess);
    } else {
        console_message("%s\"%s\" is not an option; see --help", where, name);
    }
    return false;
}

bool options_read_file(options *o, const char *path)
{
    o->config_text = read_text(path);
    if (!o->config_text) return false;
    char *line = o->config_text;
    for (int number = 1; line; number++) {
        char where[256], *end = strchr(line, '\n');
        if (end) *end = '\0';
        snprintf(where, sizeof where, "%.200s:%d: ", path, number);
        if (!read_line(o, where, line)) return false;
        line = end ? end + 1 : NULL;
    }
    return true;
}
