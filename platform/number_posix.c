/* number_posix.c - see number.h. */
#define _POSIX_C_SOURCE 200809L /* newlocale */
#include "platform/number.h"

#include <locale.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

void gd_os_points_begin(gd_os_locale *locale)
{
    const locale_t points = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    *locale = (gd_os_locale){.points = (void *)points, .before = (void *)uselocale(points)};
}

void gd_os_points_end(gd_os_locale *locale)
{
    uselocale((locale_t)locale->before);
    if (locale->points) freelocale((locale_t)locale->points);
}
