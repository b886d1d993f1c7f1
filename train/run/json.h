/* json.h - texts and numbers as JSON writes them. */
#ifndef GRADUS_TRAIN_JSON_H
#define GRADUS_TRAIN_JSON_H

#include <stdio.h>

/* Writes a text as a JSON string, quotes included; what is not UTF-8 becomes U+FFFD. */
void json_print_string(const char *text, FILE *file);

/* Writes a number in the fewest of 6, 9 or 17 digits that read back as the same one; null where
 * JSON has none for it: NaN, infinity. */
void json_print_number(double number, FILE *file);

#endif
