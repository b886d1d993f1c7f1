/* stop.c - see stop.h. */
#define _POSIX_C_SOURCE 200809L /* sigaction, clock_gettime */
#include "stop.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

static volatile sig_atomic_t asked;
static struct timespec first; /* when; both signals are blocked where it is written and read */

/* `timeout` and some schedulers signal a program and then its group, itself included: what comes
 * within 50 ms is no second wish. */
static bool is_second(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (asked)
        return (now.tv_sec - first.tv_sec) * 1000000000 + now.tv_nsec - first.tv_nsec > 50000000;
    first = now;
    return false;
}

/* The second does what it does by default, once this is over. */
static void note(int number)
{
    int before = errno;
    if (is_second()) {
        signal(number, SIG_DFL);
        raise(number);
    }
    asked = 1;
    errno = before;
}

void stop_watch(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool stop_asked(void)
{
    return asked != 0;
}
