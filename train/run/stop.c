/* stop.c - see stop.h. */
#include "stop.h"
#include "console.h"
#include "platform/clock.h"
#include "platform/process.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>

static volatile sig_atomic_t asked;
/* The time of the first signal; all are blocked where it is written and read. */
static double first;

/* A signal may come while they change: the pointers, to whole texts, change last. */
static struct {
    char first[CONSOLE_SIGNAL], second[CONSOLE_SIGNAL];
} answers[2], *volatile answer = &answers[0];

/* `timeout` and some schedulers signal a program and then its group, which includes it: a second
 * signal within 50 ms counts as the same request. */
static bool is_second(void)
{
    const double now = gd_os_now();
    if (asked) return now - first > 0.05;
    first = now;
    return false;
}

/* Nobody reads the output any more: writing fails from now on. */
static void note_pipe(int number)
{
    gd_os_ignore(number);
    console_closed();
    asked = 1;
}

/* The second one takes its default action after this returns. */
static void note(int number)
{
    const int before = errno;
    if (is_second()) {
        console_signal(answer->second);
        gd_os_stop(number);
    } else if (!asked) {
        console_signal(answer->first);
    }
    asked = 1;
    errno = before;
}

void stop_watch(void)
{
    gd_os_watch_stop(note, note_pipe);
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
