/* json.h - strings and numbers as JSON. */
#ifndef GRADUS_TRAIN_JSON_H
#define GRADUS_TRAIN_JSON_H

#include <stdbool.h>
#include <stdio.h>

/* Call it first in main(). jansson (2.14) overlooks an allocation that fails within a text: the text
 * loses a character, or is read past its end. From now on it gets its memory here, where a passing
 * shortage is waited for, and a lasting one ends the program with a message. */
void json_watch_memory(void);

#ifdef GD_HAVE_JANSSON
#include <jansson.h>

/* The length of the byte order mark that some editors write before the JSON text of a file. */
size_t json_begin(const char *text, size_t length);

/* Arrays and objects inside each other, at most (files/json_depth.h). */
enum { JSON_DEPTH = 100 };

/* A JSON text without duplicate names; NULL, and why, if it is not valid, or deep. */
json_t *json_parse(const char *text, size_t length, json_error_t *why);
#endif

bool json_is_utf8(const char *text);

/* Writes a text as a JSON string, quotes included; what is not UTF-8 becomes U+FFFD. */
void json_print_string(const char *text, FILE *file);

/* Writes a number with the fewest of 6, 9 or 17 digits that read back as the same value; NaN and
 * infinity, which JSON does not have, as null. */
void json_print_number(double number, FILE *file);

#endif
