/* console.c - see console.h. */
#include "console.h"
#include "platform/clock.h"
#include "platform/number.h"
#include "platform/process.h"
#include "platform/terminal.h"
#include "programs/terminal.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STDERR = 2 }; /* its descriptor */

static const char *program = "gradus";
static volatile sig_atomic_t drawn; /* the descriptor of the terminal with a live line; 0: none */
static int own_rank = -1;           /* of several processes */

void console_program(const char *name)
{
    program = name;
}

void console_rank(int rank)
{
    own_rank = rank;
    if (rank > 0 && !freopen(gd_os_nowhere, "w", stdout)) fclose(stdout);
}

static void tell(const char *format, va_list arguments)
{
    char who[100];
    console_erase();
    fflush(stdout); /* keeps the order of both streams */
    snprintf(who, sizeof who, own_rank < 0 ? "%s" : "%s: rank %d", program, own_rank);
    terminal_vmessage(who, format, arguments);
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

gd_text console_byte(unsigned char byte)
{
    const bool printable = byte > 32 && byte < 127;
    return printable ? gd_format("%d ('%c')", byte, byte) : gd_format("%d", byte);
}

static volatile sig_atomic_t closed;

void console_closed(void)
{
    closed = 1;
}

bool console_arrived(void)
{
    bool flushed = !fflush(stdout);
    if (flushed && !ferror(stdout)) return true;
    if (closed || (!flushed && errno == EPIPE)) return false;
    console_message("cannot write to stdout: %s",
                    flushed ? "some output was lost" : strerror(errno));
    return false;
}

/* ---- Lines as wide as the terminal ---------------------------------------------------------- */

/* The columns of the terminal that a descriptor is; 0: it is none. Where the terminal does not
 * know, COLUMNS does. */
static int columns(int descriptor)
{
    const char *named = getenv("COLUMNS");
    if (!gd_os_is_terminal(descriptor)) return 0;
    const int known = gd_os_terminal_columns(descriptor), told = named ? atoi(named) : 0;
    return known > 0 ? known : told > 0 ? told : 80;
}

int console_columns(void)
{
    return columns(gd_os_descriptor(stdout));
}

/* UTF-8 has one column for each character here: no more for wide ones, no less for accents. */
static int width_of(const char *word, size_t length)
{
    int width = 0;
    for (size_t i = 0; i < length; i++) width += ((unsigned char)word[i] & 0xc0) != 0x80;
    return width;
}

const char *console_s(int64_t n)
{
    return n == 1 ? "" : "s";
}

void console_line(const char *format, ...)
{
    enum { INDENT = 7 };
    char given[2 * 4096 + 1024], seen[4 * sizeof given];
    const int most = console_columns() - 1;
    va_list arguments;
    va_start(arguments, format);
    gd_os_print_list(given, sizeof given, format, arguments);
    va_end(arguments);
    console_erase();
    if (most > 0) terminal_visible(seen, sizeof seen, given, strlen(given), false);
    int at = 0;
    for (const char *word = most > 0 ? seen : given; *word;) {
        const size_t spaces = strspn(word, " "), length = strcspn(word + spaces, " ");
        const int width = (int)spaces + width_of(word + spaces, length);
        if (most > 0 && at > INDENT && at + width > most) {
            at = printf("\n%*s", INDENT, "") - 1;
            word += spaces;
            continue;
        }
        printf("%.*s", (int)(spaces + length), word);
        at += width;
        word += spaces + length;
    }
    printf("\n");
    fflush(stdout);
}

gd_text console_duration(double duration)
{
    const long long seconds = (long long)(duration + 0.5), minutes = seconds / 60;
    if (minutes < 60) return gd_format("%lld:%02lld", minutes, seconds % 60);
    return gd_format("%lld:%02lld:%02lld", minutes / 60, minutes % 60, seconds % 60);
}

/* ---- The live line -------------------------------------------------------------------------- */

/* The stream that can have a live line, or NULL. */
static FILE *live_file(void)
{
    const char *plain = getenv("NO_COLOR");
    const bool can_erase = gd_os_terminal_erases() && !(plain && plain[0]);
    if (!can_erase || own_rank > 0) return NULL;
    return terminal_is(stdout) ? stdout : terminal_is(stderr) ? stderr : NULL;
}

int console_live_columns(void)
{
    static double last;
    FILE *file = live_file();
    if (!file || gd_os_now() - last < 0.1) return 0;
    last = gd_os_now();
    return columns(gd_os_descriptor(file)) - 1;
}

/* ESC [ K erases from the cursor to the end of the line (ECMA-48, EL). A line as wide as the
 * terminal would move the cursor to the next one. */
void console_draw(const char *line)
{
    FILE *file = live_file();
    if (!file) return;
    fprintf(file, "\r%.*s\033[K", columns(gd_os_descriptor(file)) - 1, line);
    fflush(file);
    drawn = gd_os_descriptor(file);
}

void console_erase(void)
{
    if (!drawn) return;
    FILE *file = drawn == STDERR ? stderr : stdout;
    fputs("\r\033[K", file);
    fflush(file);
    drawn = 0;
}

/* Writes where a terminal shows it, at once; the line break ends what is there: "^C", or a part of
 * a sample. */
void console_signal(const char *message)
{
    char line[CONSOLE_SIGNAL + 64];
    size_t used = 0;
    const char *const parts[] = {drawn ? "\r\033[K" : "\n", program, ": ", message, "\n"};
    const int terminal = drawn ? drawn : STDERR;
    if (!message[0] || !gd_os_is_terminal(terminal)) return;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const char *c = parts[i]; *c && used < sizeof line; c++) line[used++] = *c;
    gd_os_write_signal(terminal, line, used);
}
