/* console.h - messages on stderr, lines on stdout, and on a terminal a live line that is redrawn in
 * place. Lines fit the terminal; otherwise what remains on the screen is what a file would contain.
 */
#ifndef GRADUS_TRAIN_CONSOLE_H
#define GRADUS_TRAIN_CONSOLE_H

#include "gradus/gradus.h"

/* Sets the program's name, which begins every message; not copied. */
void console_program(const char *name);

/* terminal_message (programs/terminal.h) of this program. */
void console_message(const char *format, ...) GD_PRINTF(1, 2);

/* This process is one of several: messages name its rank; only rank 0 prints what all
 * would print, and writes to stdout. */
void console_rank(int rank);

/* console_message of what every rank has to say. */
void console_notice(const char *format, ...) GD_PRINTF(1, 2);

/* The same number, but with NaN without a sign, which printf would show as "-nan". */
double console_number(double number);

/* A byte in a message: its number, and its character if it is printable, "65 ('A')". */
gd_text console_byte(unsigned char byte);

/* Called from a signal handler: nobody reads stdout any more. */
void console_closed(void);

/* Flushes stdout; false, after a message, if anything written to it was lost; without one where
 * nobody reads it any more. Call it at the end. */
bool console_arrived(void);

/* ---- Lines -------------------------------------------------------------------------------- */

/* The columns of the terminal that stdout is; 0: it is none, and lines may have any length. */
int console_columns(void);

/* Writes a line to stdout, at once. On a terminal that is too narrow it goes on in a new line,
 * indented by 7 as the report's lines are, and what it would obey is made visible. */
void console_line(const char *format, ...) GD_PRINTF(1, 2);

/* The end of a word of which there are n: "" or "s". */
const char *console_s(int64_t n);

/* 0:23, 1:02:03 */
gd_text console_duration(double seconds);

/* ---- The live line ------------------------------------------------------------------------- */

/* How many columns a live line may have now. 0: none is to be drawn, because the last one was drawn
 * less than 0.1 s ago, or neither stdout nor stderr is a terminal that can erase (TERM is set and
 * not "dumb"), or NO_COLOR asks for plain text. */
int console_live_columns(void);

/* Draws the live line, of one column a byte, cut to the terminal's width. */
void console_draw(const char *line);

/* Erases the live line; call it before writing anything else to stdout. */
void console_erase(void);

/* Shows a message in place of the live line, or else on stderr, if that is a terminal. For a
 * handler of signals: no other function here may be called there. Nothing for an empty message. */
enum { CONSOLE_SIGNAL = 160 }; /* bytes of a message at most */
void console_signal(const char *message);

#endif
