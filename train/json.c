/* json.c - see json.h. */
#include "json.h"

#include <math.h>
#include <stdlib.h>

void json_print_string(const char *text, FILE *file)
{
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(file, "\\%c", *c);
        else if (*c < 32 || *c == 127)
            fprintf(file, "\\u%04x", *c);
        else
            fputc(*c, file);
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
