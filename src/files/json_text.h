/* json_text.h - JSON printed into memory. Compiled into the library and into the programs. */
#ifndef GRADUS_JSON_TEXT_H
#define GRADUS_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradus/context.h" /* GD_PRINTF */

/* A text in memory that grows as it is printed, at first zeros. A stream of open_memstream would
 * not do: glibc's leaves out what it has no memory for, and its fclose() does not say so. */
typedef struct gd_json_text {
    char *bytes; /* ends with NUL; NULL: nothing was printed. Free it */
    size_t length, capacity;
    bool lacking; /* the end, for lack of memory */
} gd_json_text;

void gd_json_print(gd_json_text *to, const char *format, ...) GD_PRINTF(2, 3);

/* Prints a text as a JSON string, quotes included; what is not UTF-8 becomes U+FFFD. Characters
 * that are `escaped` (NULL: none) are written in ASCII: it is the same string. */
void gd_json_print_string(gd_json_text *to, const char *text, bool (*escaped)(uint32_t code));

/* A number with the fewest of 6, 9 or 17 digits that read back as the same value; NaN and infinity,
 * which JSON does not have, as null. */
typedef struct gd_json_number {
    char text[32];
} gd_json_number;
gd_json_number gd_json_number_of(double number);

#endif
