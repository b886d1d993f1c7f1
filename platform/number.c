/* number.c - see number.h. */
#include "platform/number.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int gd_os_print_list(char *text, size_t size, const char *format, va_list arguments)
{
    gd_os_locale locale;
    gd_os_points_begin(&locale);
    int length = vsnprintf(text, size, format, arguments);
    gd_os_points_end(&locale);
    for (char *at = size ? strstr(text, "-nan") : NULL; at; at = strstr(at + 1, "-nan")) {
        const bool word =
            (at > text && !isspace((unsigned char)at[-1])) || isalnum((unsigned char)at[4]);
        if (!word) memmove(at, at + 1, strlen(at)), length--;
    }
    return length;
}

int gd_os_print(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = gd_os_print_list(text, size, format, arguments);
    va_end(arguments);
    return length;
}
