/* program.h - what the main functions of the programs share. */
#ifndef GRADUS_TRAIN_PROGRAM_H
#define GRADUS_TRAIN_PROGRAM_H

#include "gradus/gradus.h"
#include "options.h"

/* Before anything else in main(): keeps descriptors 0 to 2 for what they are, and makes SIGXFSZ an
 * error of write(). */
void program_begin(void);

/* Does what reading the options came to: runs the program on the machine that they describe, or
 * just ends. Frees the options, and returns the exit status: `run`'s, 2 for bad options. `run` gets
 * the program's own struct, whose first member `command` is. */
int program_main(options *command, options_outcome outcome,
                 int (*run)(gd_context *ctx, options *command));

#endif
