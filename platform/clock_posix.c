/* clock_posix.c - see clock.h. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, nanosleep */
#include "platform/clock.h"

#include <time.h>

double gd_os_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void gd_os_nap(double seconds)
{
    const time_t whole = (time_t)seconds;
    const struct timespec moment = {whole, (long)(1e9 * (seconds - (double)whole))};
    nanosleep(&moment, NULL);
}
