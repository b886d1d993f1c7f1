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

/* Nobody reads what is written any more: the writes fail from now on, and say so. */
static void note_pipe(int number)
{
    signal(number, SIG_IGN);
    asked = 1;
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

/* nohup and many a shell ignore some of them, which is meant. */
static void watch(int number, const struct sigaction *action)
{
    struct sigaction before;
    const bool ignorable = number == SIGHUP || number == SIGPIPE;
    if (!ignorable || sigaction(number, NULL, &before) || before.sa_handler != SIG_IGN) {
        sigaction(number, action, NULL);
    }
}

void stop_watch(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGHUP);
    watch(SIGINT, &action);
    watch(SIGTERM, &action);
    watch(SIGHUP, &action);
    action.sa_handler = note_pipe;
    watch(SIGPIPE, &action);
}

bool stop_asked(void)
{
    return asked != 0;
}
