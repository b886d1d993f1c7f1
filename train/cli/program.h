/* program.h - what the programs' main functions share. */
#ifndef GRADUS_TRAIN_PROGRAM_H
#define GRADUS_TRAIN_PROGRAM_H

#include "gradus/gradus.h"
#include "options.h"

/* Call it first in main(): reserves descriptors 0 to 2, turns SIGXFSZ into an error of write(), and
 * calls json_watch_memory. */
void program_begin(void);

/* Creates a context as the options say, calls `run` unless the outcome is to end, frees the
 * options, and returns the exit status: that of `run`, or 2 for bad options. `command` is the first
 * member of the program's own struct. */
int program_main(options *command, options_outcome outcome,
                 int (*run)(gd_context *ctx, options *command));

#endif
