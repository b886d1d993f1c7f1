/* terminal_posix.c - see terminal.h. */
#define _DEFAULT_SOURCE /* TIOCGWINSZ */
#include "platform/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int gd_os_descriptor(FILE *file)
{
    return fileno(file);
}

bool gd_os_is_terminal(int descriptor)
{
    return isatty(descriptor);
}

int gd_os_terminal_columns(int descriptor)
{
#ifdef TIOCGWINSZ
    struct winsize size;
    return ioctl(descriptor, TIOCGWINSZ, &size) ? 0 : size.ws_col;
#else
    (void)descriptor;
    return 0;
#endif
}

bool gd_os_terminal_erases(void)
{
    const char *term = getenv("TERM");
    return term && term[0] && strcmp(term, "dumb") != 0;
}
