/* number_windows.c - see number.h. */
#include "platform/number.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* `before` is the name of the thread's locale; without memory for it that stays "C". */
void gd_os_points_begin(gd_os_locale *locale)
{
    *locale = (gd_os_locale){.thread = _configthreadlocale(_ENABLE_PER_THREAD_LOCALE)};
    const char *name = setlocale(LC_NUMERIC, NULL);
    locale->before = name ? _strdup(name) : NULL;
    setlocale(LC_NUMERIC, "C");
}

void gd_os_points_end(gd_os_locale *locale)
{
    if (locale->before) setlocale(LC_NUMERIC, locale->before);
    free(locale->before);
    _configthreadlocale(locale->thread);
}
