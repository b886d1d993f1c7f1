/* program.h - what the programs' main functions share. */
#ifndef GRADUS_TRAIN_PROGRAM_H
#define GRADUS_TRAIN_PROGRAM_H

#include "gradus/gradus.h"
#include "programs/options.h"

/* Call it first in main(), with its argv, and use what it returns: spin_briefly and gd_os_begin. */
char **program_begin(char **argv);

/* options_read, for a program whose messages go through console.h. */
options_outcome program_read_options(options *o, const option_table *table, char **argv);

/* Reads a file of lines "option = value" (config_file.c). False after a message. */
bool program_read_config(options *o, const char *path);

/* Prints a notice of a context or a group. */
void program_notice(void *user, const char *sentence);

/* Creates a context as the options say, calls `run` unless the outcome is to end, frees the
 * options, and returns the exit status: that of `run`, or 2 for bad options. `command` is the first
 * member of the program's own struct. */
int program_main(options *command, options_outcome outcome,
                 int (*run)(gd_context *ctx, options *command));

#endif
