/* json.c - see json.h. */
#include "json.h"
#include "files/utf8.h"
#include "programs/terminal.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_CHARACTER = 4 }; /* bytes; the text ends with NUL */

bool json_is_utf8(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    while (*c && gd_utf8_length(c, LONGEST_CHARACTER) > 0)
        c += gd_utf8_length(c, LONGEST_CHARACTER);
    return !*c;
}

#ifdef GD_HAVE_JANSSON

size_t json_begin(const char *text, size_t length)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t bytes = sizeof mark - 1;
    return length >= bytes && !memcmp(text, mark, bytes) ? bytes : 0;
}

json_t *json_parse(gd_json *j, const char *text, size_t length)
{
    *j = (gd_json){.text = text, .length = length};
    json_t *value = gd_json_take(j, SIZE_MAX);
    return value && gd_json_end(j) ? value : NULL;
}

#endif

/* ---- Printing ------------------------------------------------------------------------------- */

static bool grow(json_text *to, size_t bytes)
{
    const size_t capacity = 2 * to->capacity + bytes;
    char *grown = realloc(to->bytes, capacity);
    if (!grown) return false;
    to->bytes = grown;
    to->capacity = capacity;
    return true;
}

void json_print(json_text *to, const char *format, ...)
{
    for (bool printed = false; !printed && !to->lacking;) {
        const size_t left = to->capacity - to->length;
        va_list arguments;
        va_start(arguments, format);
        const int bytes = vsnprintf(left ? to->bytes + to->length : NULL, left, format, arguments);
        va_end(arguments);
        printed = bytes >= 0 && (size_t)bytes < left;
        if (printed) to->length += (size_t)bytes;
        if (!printed) to->lacking = bytes < 0 || !grow(to, (size_t)bytes + 1);
    }
}

/* In JSON a character beyond U+FFFF is two of these (RFC 8259). */
static void print_code(json_text *to, uint32_t code)
{
    if (code < 0x10000)
        json_print(to, "\\u%04lx", (unsigned long)code);
    else
        json_print(to, "\\u%04lx\\u%04lx", (unsigned long)(0xd7c0 + (code >> 10)),
                   (unsigned long)(0xdc00 + (code & 0x3ff)));
}

/* The name of a file can be any bytes. */
void json_print_string(json_text *to, const char *text, bool terminal)
{
    json_print(to, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        const int length = gd_utf8_length(c, LONGEST_CHARACTER);
        if (*c == '"' || *c == '\\')
            json_print(to, "\\%c", *c);
        else if (length == 0 || *c < 32 || *c == 127 ||
                 (terminal && terminal_obeys(gd_utf8_code(c, length))))
            print_code(to, length ? gd_utf8_code(c, length) : 0xfffd);
        else
            json_print(to, "%.*s", length, (const char *)c);
        c += length ? length : 1;
    }
    json_print(to, "\"");
}

json_number json_number_text(double number)
{
    static const int digits[] = {6, 9, 17};
    json_number n = {"null"};
    for (int i = 0; i < 3 && isfinite(number); i++) {
        snprintf(n.text, sizeof n.text, "%.*g", digits[i], number);
        if (strtod(n.text, NULL) == number) break;
    }
    return n;
}
