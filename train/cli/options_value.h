/* options_value.h - values of options as texts, for options.c and its other parts. */
#ifndef GRADUS_TRAIN_OPTIONS_VALUE_H
#define GRADUS_TRAIN_OPTIONS_VALUE_H

#include "options.h"

/* The row of that name; NULL: there is none. */
const option_row *option_find(const options *o, const char *name);

/* The name of the option that was perhaps meant by a word; NULL: nothing is near. */
const char *option_guess(const option_table *table, const char *word);

/* Whether its value is a text as it stands. */
bool option_is_text(const option_row *row);

/* Sets the value that the text says. `where` begins the message of a fault: "--" on the command
 * line, "FILE:LINE: " in a file. A switch without a text is on. */
bool option_read(options *o, const char *where, const option_row *row, const char *text);

/* The same, and the option counts as given from here on. */
bool option_give(options *o, const char *where, const option_row *row, const char *text);

/* The value as a text that option_read takes, in item->text: NULL where there is none; it lasts as
 * long as both `o` and `item`. */
void option_print(const options *o, const option_row *row, options_item *item);

/* Reads a file of lines "option = value" (options_file.c). False after a message. */
bool options_read_file(options *o, const char *path);

#endif
