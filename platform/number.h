/* number.h - numbers with a decimal point, whatever the program's locale. */
#ifndef GRADUS_PLATFORM_NUMBER_H
#define GRADUS_PLATFORM_NUMBER_H

#include <math.h>
#include <stdarg.h>
#include <stddef.h>

typedef struct gd_os_locale {
    void *points, *before;
    int thread; /* on Windows: whether the thread had a locale of its own */
} gd_os_locale;

/* Between the two calls this thread prints numbers as in the locale "C". */
void gd_os_points_begin(gd_os_locale *locale);
void gd_os_points_end(gd_os_locale *locale);

/* snprintf and vsnprintf for texts that contain numbers: in the locale "C", and NaN has no sign. */
int gd_os_print(char *text, size_t size, const char *format, ...);
int gd_os_print_list(char *text, size_t size, const char *format, va_list arguments);

/* v, or a NaN without a sign, which fprintf would show. */
static inline double gd_os_unsigned(double v)
{
    return v != v ? (double)NAN : v; /* isnan may take a float */
}

#endif
