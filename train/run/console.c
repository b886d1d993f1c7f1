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
static bool drawn;        /* a live line is on the screen */
static int own_rank = -1; /* of several processes */

void console_program(const char *name)
{
    program = name;
}

/* The second byte of U+0080 to U+009F, which some terminals obey as they do ESC. */
static bool is_c1(unsigned char before, unsigned char c)
{
    return before == 0xc2 && c >= 0x80 && c < 0xa0;
}

bool console_has_controls(const char *text)
{
    for (unsigned char before = 0, c; (c = (unsigned char)*text); before = c, text++) {
        if (c < 0x20 || c == 0x7f || is_c1(before, c)) return true;
    }
    return false;
}

/* A name, or text from a file, may contain line breaks or control sequences of a terminal. */
static void replace_controls(char *text)
{
    for (unsigned char before = 0, c; (c = (unsigned char)*text); before = c, text++) {
        if (is_c1(before, c)) text[-1] = '?';
        if (c < 0x20 || c == 0x7f || is_c1(before, c)) *text = '?';
    }
}

void console_rank(int rank)
{
    own_rank = rank;
    if (rank > 0 && !freopen("/dev/null", "w", stdout)) fclose(stdout);
}

/* In one write, so that messages of several processes do not mix. */
static void tell(const char *format, va_list arguments)
{
    char text[2 * 4096 + 1024]; /* room for two paths */
    char who[32] = "";
    console_erase();
    fflush(stdout); /* keeps the order of both streams */
    vsnprintf(text, sizeof text, format, arguments);
    replace_controls(text);
    if (own_rank >= 0) snprintf(who, sizeof who, " rank %d:", own_rank);
    char line[sizeof text + sizeof who + 64];
    snprintf(line, sizeof line, "%s:%s %s\n", program, who, text);
    fputs(line, stderr);
}

void console_message(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tell(format, arguments);
    va_end(arguments);
}

void console_notice(const char *format, ...)
{
    va_list arguments;
    if (own_rank > 0) return;
    va_start(arguments, format);
    tell(format, arguments);
    va_end(arguments);
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
    console_message("cannot write to stdout: %s",
                    flushed ? "some output was lost" : strerror(errno));
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

/* A line as wide as the terminal would move the cursor to the next one. ESC [ K erases from the
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
