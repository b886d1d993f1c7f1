/* stop.c - see stop.h. */
#define _POSIX_C_SOURCE 200809L /* sigaction */
#include "stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked;

/* Both signals do again what they do by default. */
static void note(int number)
{
    (void)number;
    asked = 1;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

void stop_watch(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool stop_asked(void)
{
    return asked != 0;
}
