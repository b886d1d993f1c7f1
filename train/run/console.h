/* console.h - messages on stderr, and, if stdout is a terminal, a live line that is redrawn in
 * place. What remains on the screen is what a file would contain.
 */
#ifndef GRADUS_TRAIN_CONSOLE_H
#define GRADUS_TRAIN_CONSOLE_H

#include "gradus/gradus.h"

/* Sets the program's name, which begins every message; not copied. */
void console_program(const char *name);

/* Writes "program: ..." and a newline to stderr; control characters become "?". */
void console_message(const char *format, ...) GD_PRINTF(1, 2);

/* This process is one of several: messages name its rank; only rank 0 prints what all
 * would print, and writes to stdout. */
void console_rank(int rank);

/* console_message of what every rank has to say. */
void console_notice(const char *format, ...) GD_PRINTF(1, 2);

/* Whether a text contains control characters: those of ASCII, or U+0080 to U+009F. */
bool console_has_controls(const char *text);

/* The same number, but with NaN without a sign, which printf would show as "-nan". */
double console_number(double number);

/* A byte in a message: its number, and its character if it is printable, "65 ('A')". */
typedef struct console_byte_text {
    char text[16];
} console_byte_text;
console_byte_text console_byte(unsigned char byte);

/* Flushes stdout; false, after a message, if anything written to it was lost. Call it at the
 * end. */
bool console_arrived(void);

/* Whether there can be a live line: stdout is a terminal that can erase (TERM is set and not
 * "dumb"), and NO_COLOR, which asks for plain text, is not set. */
bool console_is_live(void);

/* Draws the live line, of one column a byte, cut to the terminal's width. */
void console_draw(const char *line);

/* Erases the live line; call it before writing anything else to stdout. */
void console_erase(void);

#endif
