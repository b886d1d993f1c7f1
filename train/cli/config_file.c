/* config_file.c - a file of options: lines "option = value", blank lines, and comments after #.
 * Quotes of either kind around a value are removed. */
#include "console.h"
#include "program.h"
#include "text_file.h"

#include <string.h>

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

/* What follows the equals sign, without quotes and without a comment. A # within a word is part
 * of it: "a#b" is a name. */
static char *bare_value(char *text)
{
    text = trimmed(text);
    char *end = *text == '"' || *text == '\'' ? strchr(text + 1, *text) : NULL;
    if (end && is_comment(trimmed(end + 1))) {
        *end = '\0';
        return text + 1;
    }
    for (end = strchr(text, '#'); end; end = strchr(end + 1, '#')) {
        if (end == text || end[-1] == ' ' || end[-1] == '\t') *end = '\0';
    }
    return trimmed(text);
}

static bool read_line(options *o, const char *where, char *line)
{
    char *name = trimmed(line), *equals = strchr(name, '=');
    if (is_comment(name)) return true;
    if (!equals || equals == name) {
        console_message("%s\"%s\" is not of the form option = value", where, name);
        return false;
    }
    *equals = '\0';
    name = trimmed(name);
    if (!strcmp(name, "config")) {
        console_message("%sa config file cannot name another", where);
        return false;
    }
    return options_set(o, where, name, strlen(name), bare_value(equals + 1));
}

bool program_read_config(options *o, const char *path)
{
    enum { MOST = 1 << 20 };
    int64_t length = 0;
    char *line = o->config_text = (char *)text_file_read("--config", path, MOST, &length);
    const bool wide = line && (!strncmp(line, "\xff\xfe", 2) || !strncmp(line, "\xfe\xff", 2));
    if (line && (wide || memchr(line, 0, (size_t)length))) {
        console_message("--config %s: %s", path,
                        wide ? "it is in UTF-16, wanted UTF-8" : "it contains a NUL byte");
        return false;
    }
    if (line && !strncmp(line, "\xef\xbb\xbf", 3)) line += 3; /* a byte order mark */
    bool fine = line != NULL;
    for (int number = 1; fine && line; number++) {
        char where[256], *end = strchr(line, '\n');
        if (end) *end = '\0';
        snprintf(where, sizeof where, "%.200s:%d: ", path, number);
        fine = read_line(o, where, line);
        line = end ? end + 1 : NULL;
    }
    return fine;
}
