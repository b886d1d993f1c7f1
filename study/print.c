/* print.c - JSON, and the text that comes in. */
#include "print.h"

#include <math.h>
#include <stdio.h>

void print_number(double v)
{
    if (isfinite(v))
        printf("%.17g", v);
    else
        printf(isnan(v) ? "\"nan\"" : v > 0 ? "\"inf\"" : "\"-inf\"");
}

void print_numbers(const double *v, int64_t count)
{
    putchar('[');
    for (int64_t i = 0; i < count; i++) {
        if (i) putchar(',');
        print_number(v[i]);
    }
    putchar(']');
}

void print_text(const char *text)
{
    putchar('"');
    for (; text && *text; text++) {
        if (*text == '\n') {
            printf("\\n");
            continue;
        }
        if (*text == '"' || *text == '\\') putchar('\\');
        putchar(*text);
    }
    putchar('"');
}

void print_shape(int ndim, const int64_t *shape)
{
    putchar('[');
    for (int d = 0; d < ndim; d++) printf("%s%lld", d ? "," : "", (long long)shape[d]);
    putchar(']');
}

static char text[256];

EXPORT(study_text) char *study_text(void)
{
    return text;
}
