/* json.h - JSON that the programs read and write. */
#ifndef GRADUS_TRAIN_JSON_H
#define GRADUS_TRAIN_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "gradus/context.h" /* GD_PRINTF */

#ifdef GD_HAVE_JANSSON
#include "files/json.h"

/* The length of the byte order mark that some editors write before the JSON text of a file. */
size_t json_begin(const char *text, size_t length);

/* A JSON text, until the caller closes j; NULL, with j->wrong set, if it is not valid. */
json_t *json_parse(gd_json *j, const char *text, size_t length);
#endif

bool json_is_utf8(const char *text);

/* A text in memory that grows as it is printed, at first zeros. A stream of open_memstream would
 * not do: glibc's leaves out what it has no memory for, and its fclose() does not say so. */
typedef struct json_text {
    char *bytes; /* ends with NUL; NULL: nothing was printed. Free it */
    size_t length, capacity;
    bool lacking; /* the end, for lack of memory */
} json_text;

void json_print(json_text *to, const char *format, ...) GD_PRINTF(2, 3);

/* Prints a text as a JSON string, quotes included; what is not UTF-8 becomes U+FFFD. For a terminal
 * more of it is written in ASCII: it is the same string. */
void json_print_string(json_text *to, const char *text, bool terminal);

typedef struct json_number {
    char text[32];
} json_number;

/* A number with the fewest of 6, 9 or 17 digits that read back as the same value; NaN and infinity,
 * which JSON does not have, as null. */
json_number json_number_text(double number);

#endif
