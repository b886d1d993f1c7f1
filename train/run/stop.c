/* stop.c - see stop.h. */
#define _POSIX_C_SOURCE 200809L /* sigaction, clock_gettime */
#include "stop.h"
#include "console.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

static volatile sig_atomic_t asked;
/* The time of the first signal; all are blocked where it is written and read. */
static struct timespec first;

/* A signal may come while they change: the pointers, to whole texts, change last. */
static struct {
    char first[CONSOLE_SIGNAL], second[CONSOLE_SIGNAL];
} answers[2], *volatile answer = &answers[0];

/* `timeout` and some schedulers signal a program and then its group, which includes it: a second
 * signal within 50 ms counts as the same request. */
static bool is_second(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (asked)
        return (now.tv_sec - first.tv_sec) * 1000000000 + now.tv_nsec - first.tv_nsec > 50000000;
    first = now;
    return false;
}

/* Nobody reads the output any more: writing fails from now on. */
static void note_pipe(int number)
{
    signal(number, SIG_IGN);
    asked = 1;
}

/* The second one takes its default action after this returns. */
static void note(int number)
{
    const int before = errno;
    if (is_second()) {
        console_signal(answer->second);
        signal(number, SIG_DFL);
        raise(number);
    } else if (!asked) {
        console_signal(answer->first);
    }
    asked = 1;
    errno = before;
}

/* A signal that was ignored, as by nohup, stays ignored. */
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

void stop_answer(const char *once, const char *twice)
{
    const int next = answer == &answers[0];
    snprintf(answers[next].first, CONSOLE_SIGNAL, "%s", once);
    snprintf(answers[next].second, CONSOLE_SIGNAL, "%s", twice);
    answer = &answers[next];
}

bool stop_asked(void)
{
    return asked != 0;
}
