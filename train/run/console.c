/* console.c - see console.h. */
#define _DEFAULT_SOURCE /* TIOCGWINSZ */
#include "console.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char *program = "gradus";
static bool drawn; /* a live line is on the screen */

void console_program(const char *name)
{
    program = name;
}

void console_message(const char *format, ...)
{
    va_list arguments;
    console_erase();
    fflush(stdout); /* what was written before stands before */
    fprintf(stderr, "%s: ", program);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

double console_number(double number)
{
    return isnan(number) ? NAN : number;
}

console_byte_text console_byte(unsigned char byte)
{
    console_byte_text told;
    int used = snprintf(told.text, sizeof told.text, "%d", byte);
    if (byte > 32 && byte < 127)
        snprintf(told.text + used, sizeof told.text - (size_t)used, " ('%c')", byte);
    return told;
}

bool console_arrived(void)
{
    bool flushed = !fflush(stdout);
    if (flushed && !ferror(stdout)) return true;
    console_message("cannot write to stdout: %s", flushed ? "some is lost" : strerror(errno));
    return false;
}

bool console_is_live(void)
{
    const char *term = getenv("TERM"), *plain = getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && term && term[0] && strcmp(term, "dumb") != 0 &&
           !(plain && plain[0]);
}

static int columns(void)
{
    struct winsize size;
    return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col > 0 ? size.ws_col : 80;
}

/* A line as wide as the terminal would leave the cursor in the next one. ESC [ K erases from the
 * cursor to the end of the line (ECMA-48, EL). */
void console_draw(const char *line)
{
    if (!console_is_live()) return;
    printf("\r%.*s\033[K", columns() - 1, line);
    fflush(stdout);
    drawn = true;
}

void console_erase(void)
{
    if (!drawn) return;
    printf("\r\033[K");
    fflush(stdout);
    drawn = false;
}
