/* json.h - JSON that the programs read and write. */
#ifndef GRADUS_TRAIN_JSON_H
#define GRADUS_TRAIN_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "files/json_text.h"

#ifdef GD_HAVE_JANSSON
#include "files/json.h"

/* The length of the byte order mark that some editors write before the JSON text of a file. */
size_t json_begin(const char *text, size_t length);

/* A JSON text, until the caller closes j; NULL, with j->wrong set, if it is not valid. */
json_t *json_parse(gd_json *j, const char *text, size_t length);
#endif

typedef struct json_number {
    char text[32];
} json_number;

/* A number with the fewest of 6, 9 or 17 digits that read back as the same value; NaN and infinity,
 * which JSON does not have, as null. */
json_number json_number_text(double number);

#endif
