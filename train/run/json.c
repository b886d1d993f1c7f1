/* json.c - see json.h. */
#include "json.h"

#include <math.h>
#include <stdlib.h>

/* Bytes of the UTF-8 character (RFC 3629) that begins here; 0: not valid. */
static int utf8_length(const unsigned char *c)
{
    int length = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    if (c[0] > 0xf4) return 0;
    for (int i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80) return 0;
    }
    bool longer = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    bool beyond = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
    return longer || beyond ? 0 : length;
}

bool json_is_utf8(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    while (*c && utf8_length(c) > 0) c += utf8_length(c);
    return !*c;
}

/* The name of a file can be any bytes. */
void json_print_string(const char *text, FILE *file)
{
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(file, "\\%c", *c);
        else if (*c < 32 || *c == 127)
            fprintf(file, "\\u%04x", *c);
        else if (utf8_length(c) == 0)
            fprintf(file, "\\ufffd");
        else
            fprintf(file, "%.*s", utf8_length(c), (const char *)c);
        c += utf8_length(c) > 1 ? utf8_length(c) - 1 : 0;
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
