/* clock_windows.c - see clock.h. */
#include "platform/clock.h"

#include <windows.h>

double gd_os_now(void)
{
    LARGE_INTEGER now, each;
    QueryPerformanceFrequency(&each);
    QueryPerformanceCounter(&now);
    return (double)now.QuadPart / (double)each.QuadPart;
}

void gd_os_nap(double seconds)
{
    Sleep((DWORD)(1e3 * seconds + 0.999));
}
