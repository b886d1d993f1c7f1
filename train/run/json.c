/* json.c - see json.h. */
#include "json.h"
#include "utf8.h"

#include <math.h>
#include <stdlib.h>

enum { LONGEST_CHARACTER = 4 }; /* bytes; the text ends with NUL */

bool json_is_utf8(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    while (*c && utf8_length(c, LONGEST_CHARACTER) > 0) c += utf8_length(c, LONGEST_CHARACTER);
    return !*c;
}

#ifdef GD_HAVE_JANSSON

/* Twice: jansson calls a token invalid if there was no memory for it. */
json_t *json_parse(const char *text, size_t length, json_error_t *why)
{
    json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES, why);
    if (!value) value = json_loadb(text, length, JSON_REJECT_DUPLICATES, why);
    if (!value && !why->text[0]) snprintf(why->text, sizeof why->text, "out of memory");
    return value;
}

#endif

/* The name of a file can be any bytes. */
void json_print_string(const char *text, FILE *file)
{
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(file, "\\%c", *c);
        else if (*c < 32 || *c == 127)
            fprintf(file, "\\u%04x", *c);
        else if (utf8_length(c, LONGEST_CHARACTER) == 0)
            fprintf(file, "\\ufffd");
        else
            fprintf(file, "%.*s", utf8_length(c, LONGEST_CHARACTER), (const char *)c);
        c += utf8_length(c, LONGEST_CHARACTER) > 1 ? utf8_length(c, LONGEST_CHARACTER) - 1 : 0;
    }
    fputc('"', file);
}

void json_print_number(double number, FILE *file)
{
    static const int digits[] = {6, 9, 17};
    char text[32] = "null";
    for (int i = 0; i < 3 && isfinite(number); i++) {
        snprintf(text, sizeof text, "%.*g", digits[i], number);
        if (strtod(text, NULL) == number) break;
    }
    fputs(text, file);
}
