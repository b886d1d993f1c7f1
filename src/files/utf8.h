/* utf8.h - the characters of a text. Compiled into the library and into the programs. */
#ifndef GRADUS_UTF8_H
#define GRADUS_UTF8_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of the UTF-8 character (RFC 3629) at the beginning of a text of `length` bytes, at least 1;
 * 0 if there is none: the byte is not valid there. A text that ends with NUL may be said to be
 * longer than it is. */
int gd_utf8_length(const unsigned char *text, int64_t length);

/* Whether all of a text is UTF-8. */
bool gd_utf8_text(const char *text);

/* The code of such a character of `length` bytes. */
uint32_t gd_utf8_code(const unsigned char *text, int length);

#endif
