/* json_text.c - see json_text.h. */
#include "files/json_text.h"
#include "files/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool grow(gd_json_text *to, size_t bytes)
{
    const size_t capacity = 2 * to->capacity + bytes;
    char *grown = realloc(to->bytes, capacity);
    if (!grown) return false;
    to->bytes = grown;
    to->capacity = capacity;
    return true;
}

void gd_json_print(gd_json_text *to, const char *format, ...)
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
static void print_code(gd_json_text *to, uint32_t code)
{
    if (code < 0x10000)
        gd_json_print(to, "\\u%04lx", (unsigned long)code);
    else
        gd_json_print(to, "\\u%04lx\\u%04lx", (unsigned long)(0xd7c0 + (code >> 10)),
                      (unsigned long)(0xdc00 + (code & 0x3ff)));
}

/* The name of a file can be any bytes. */
void gd_json_print_string(gd_json_text *to, const char *text, bool (*escaped)(uint32_t code))
{
    const unsigned char *c = (const unsigned char *)text, *plain = c; /* not yet printed */
    gd_json_print(to, "\"");
    for (int length; *c; c += length ? length : 1) {
        length = gd_utf8_length(c, 4);
        const bool quoted = *c == '"' || *c == '\\';
        const bool coded =
            length == 0 || *c < 32 || *c == 127 || (escaped && escaped(gd_utf8_code(c, length)));
        if (!quoted && !coded) continue;
        gd_json_print(to, "%.*s", (int)(c - plain), (const char *)plain);
        if (quoted)
            gd_json_print(to, "\\%c", *c);
        else
            print_code(to, length ? gd_utf8_code(c, length) : 0xfffd);
        plain = c + (length ? length : 1);
    }
    gd_json_print(to, "%s\"", (const char *)plain);
}

gd_json_number gd_json_number_of(double number)
{
    static const int digits[] = {6, 9, 17};
    gd_json_number n = {"null"};
    for (int i = 0; i < 3 && isfinite(number); i++) {
        snprintf(n.text, sizeof n.text, "%.*g", digits[i], number);
        if (strtod(n.text, NULL) == number) break;
    }
    return n;
}
