/* pseudo_terminal.h - a command whose stdout and stderr are a terminal. The file that includes it
 * defines _GNU_SOURCE (posix_openpt, TIOCSWINSZ, cfmakeraw). */
#ifndef GRADUS_TEST_PSEUDO_TERMINAL_H
#define GRADUS_TEST_PSEUDO_TERMINAL_H

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "program.h"

enum { TERMINAL_RAW = -1 }; /* in place of columns: it passes all bytes on as they are */

static char on_terminal[PROGRAM_OUTPUT]; /* what the command has written so far */

typedef struct terminal {
    int master;
    pid_t child;
    size_t used;
} terminal;

/* Returns the master, and the other side in *end; -1 where there are none, as in a root without
 * /dev/pts. 0 columns: the terminal does not know how many. */
static inline int terminal_open(int *end, int columns)
{
    const struct winsize size = {.ws_row = 24,
                                 .ws_col = (unsigned short)(columns < 0 ? 80 : columns)};
    struct termios modes;
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0) return -1;
    if (grantpt(master) || unlockpt(master) || ioctl(master, TIOCSWINSZ, &size) ||
        (*end = open(ptsname(master), O_RDWR | O_NOCTTY)) < 0) {
        close(master);
        return -1;
    }
    if (columns == TERMINAL_RAW && !tcgetattr(*end, &modes)) {
        cfmakeraw(&modes);
        ck_assert_int_eq(tcsetattr(*end, TCSANOW, &modes), 0);
    }
    return master;
}

static inline bool terminal_missing(void)
{
    int end;
    const int master = terminal_open(&end, 80);
    if (master < 0) fprintf(stderr, "no pseudo-terminals here: skipped\n");
    if (master >= 0) close(master), close(end);
    return master < 0;
}

static inline terminal terminal_begin(const char *command, int columns)
{
    int end;
    terminal t = {.master = terminal_open(&end, columns)};
    ck_assert_int_ge(t.master, 0);
    t.child = fork();
    if (t.child == 0) {
        dup2(end, STDOUT_FILENO);
        dup2(end, STDERR_FILENO);
        close(t.master);
        close(end);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(end);
    on_terminal[0] = '\0';
    return t;
}

/* Reads until it has said the words, or to the end. */
static inline void terminal_read(terminal *t, const char *words)
{
    ssize_t got;
    while ((!words || !strstr(on_terminal, words)) &&
           (got = read(t->master, on_terminal + t->used, sizeof on_terminal - 1 - t->used)) > 0) {
        t->used += (size_t)got;
        on_terminal[t->used] = '\0';
    }
    if (words) program_said(on_terminal, words);
}

/* Waits for its end; returns what waitpid says. */
static inline int terminal_end(terminal *t)
{
    int status;
    terminal_read(t, NULL);
    close(t->master);
    ck_assert_int_eq(waitpid(t->child, &status, 0), t->child);
    return status;
}

#endif
