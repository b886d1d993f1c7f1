/* clock.h - a monotonic clock, and waiting. */
#ifndef GRADUS_PLATFORM_CLOCK_H
#define GRADUS_PLATFORM_CLOCK_H

/* Seconds from some fixed moment; setting the time of day does not change it. */
double gd_os_now(void);

/* Waits for so many seconds; a signal may end it earlier. */
void gd_os_nap(double seconds);

#endif
