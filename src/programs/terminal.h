/* terminal.h - text that comes from elsewhere (a model, a file, a name), on a terminal.
 *
 * A terminal obeys some characters: they clear the screen, write the clipboard, or change the order
 * in which text is shown. So on a terminal they are made visible: "\x1b" for a control character or
 * a byte that is not UTF-8, "\u202e" for a character beyond ASCII. A file or a pipe gets the bytes
 * of what is written to stdout; messages end on a terminal, whichever way they take.
 *
 * Part of the programs, not of the library. Whatever a program writes to stdout or stderr that is
 * not its own goes through here. */
#ifndef GRADUS_TERMINAL_H
#define GRADUS_TERMINAL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "gradus/context.h" /* GD_PRINTF */

/* Whether the file is a terminal. */
bool terminal_is(FILE *file);

/* Whether a terminal obeys the character: C0, DEL, C1, marks of direction and of lines. */
bool terminal_obeys(uint32_t code);

/* Copies a text of `length` bytes with such characters made visible; with `lines`, line breaks and
 * tabs stay. What does not fit into `size` bytes, NUL included, is left out. Returns the bytes
 * without the NUL. 4 bytes for each of the text are enough. */
size_t terminal_visible(char *buffer, size_t size, const char *text, size_t length, bool lines);

/* Writes text with lines to a file, visible if that is a terminal. The text has whole characters;
 * text_stream.h sees to that. */
void terminal_write(FILE *file, const char *text, size_t length);

/* Writes "program: ..." and a line break to stderr, in one piece: a line of visible characters,
 * wherever stderr leads. */
void terminal_message(const char *program, const char *format, ...) GD_PRINTF(2, 3);
void terminal_vmessage(const char *program, const char *format, va_list arguments);

/* Whether a text has control characters: those of ASCII, or U+0080 to U+009F. */
bool terminal_has_controls(const char *text);

#endif
