/* number.h - numbers with a decimal point, whatever the program's locale. */
#ifndef GRADUS_PLATFORM_NUMBER_H
#define GRADUS_PLATFORM_NUMBER_H

typedef struct gd_os_locale {
    void *points, *before;
    int thread; /* on Windows: whether the thread had a locale of its own */
} gd_os_locale;

/* Between the two calls this thread prints numbers as in the locale "C". Calls do not nest. */
void gd_os_points_begin(gd_os_locale *locale);
void gd_os_points_end(gd_os_locale *locale);

#endif
