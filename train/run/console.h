/* console.h - what a person sees while a program runs: messages on stderr, and, where stdout is a
 * terminal, a live line that is drawn over and over in one place. What stays on the screen is what
 * a file would hold.
 */
#ifndef GRADUS_TRAIN_CONSOLE_H
#define GRADUS_TRAIN_CONSOLE_H

#include "gradus/gradus.h"

/* Who speaks; a text that lasts. */
void console_program(const char *name);

/* Writes "program: ..." and a newline to stderr; control characters become "?". */
void console_message(const char *format, ...) GD_PRINTF(1, 2);

/* This process is one of several: messages say which, and what all would say is said by rank 0, which
 * alone has a stdout. */
void console_rank(int rank);

/* console_message of what every rank has to say. */
void console_notice(const char *format, ...) GD_PRINTF(1, 2);

/* Whether there are control characters of ASCII or of U+0080 to U+009F in a text. */
bool console_has_controls(const char *text);

/* The same number, but of the two kinds of NaN that printf knows, "nan" and "-nan", the one that
 * says no more than there is to say. */
double console_number(double number);

/* How a byte is told of: its number, and what it looks like where that can be seen, "65 ('A')". */
typedef struct console_byte_text {
    char text[16];
} console_byte_text;
console_byte_text console_byte(unsigned char byte);

/* Whether all that was written to stdout has arrived; false after a message. For the end. */
bool console_arrived(void);

/* Whether there can be a live line: stdout is a terminal that can erase (TERM is set and not
 * "dumb"), and NO_COLOR, which asks for plain text, is not set. */
bool console_is_live(void);

/* Draws the live line, of one column a byte, cut to the terminal's width. */
void console_draw(const char *line);

/* Takes the live line away: to be called before anything else is written to stdout. */
void console_erase(void);

#endif
