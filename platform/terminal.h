/* terminal.h - a terminal, or a console, by its descriptor. */
#ifndef GRADUS_PLATFORM_TERMINAL_H
#define GRADUS_PLATFORM_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The descriptor of a stream. */
int gd_os_descriptor(FILE *file);

bool gd_os_is_terminal(int descriptor);

/* Its columns; 0: it does not know. Not on Windows, as what follows. */
int gd_os_terminal_columns(int descriptor);

/* Whether it obeys escape sequences such as ESC [ K. */
bool gd_os_terminal_erases(void);

#endif
