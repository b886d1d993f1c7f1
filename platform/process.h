/* process.h - this process, its signals, and processes that it starts. */
#ifndef GRADUS_PLATFORM_PROCESS_H
#define GRADUS_PLATFORM_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- This process --------------------------------------------------------------------------- */

/* Call it first in main() of a program, with its argv, which ends with NULL: returns the arguments
 * in UTF-8. stdin, stdout and stderr are binary from then on, and a console shows UTF-8. If one of
 * the three is closed, writing to it fails, and no file that is opened later takes its place. A
 * file that may not grow is an error of writing, and no signal. */
char **gd_os_begin(char **argv);

/* Starts the program again with changed variables of the environment (pairs of name and value, up
 * to NULL; those that are set stay), unless it cannot: then they are set here. Some libraries read
 * them before main() begins. */
void gd_os_restart_with(const char *const *variables, char **argv);

/* The address of a symbol in a shared object, which stays open; NULL, and the reason in
 * why[size]. */
void *gd_os_load(const char *path, const char *symbol, char *why, size_t size);

bool gd_os_set_variable(const char *name, const char *value);

int64_t gd_os_process(void); /* its number */
int gd_os_processors(void);  /* on which it may run */

/* A text that no other host has, and that is the same for all processes of this one. Not
 * on Windows. */
enum { GD_OS_HOST = 64 };
void gd_os_host(char name[GD_OS_HOST]);

/* Unpredictable bytes, at most 256. */
bool gd_os_random(void *bytes, size_t count);

/* `note` is called in a child of fork(), where there are any. */
void gd_os_on_fork(void (*note)(void));

/* The name of a file for output that nobody wants. */
extern const char gd_os_nowhere[];

/* ---- Requests to stop; not on Windows, as what follows --------------------------------------- */

/* `note` is called with the signal's number when the user (Ctrl-C), the system or a terminal that
 * closes asks the program to stop, and `note_pipe` when nobody reads its output any more. Both
 * interrupt the program: only what a signal handler may do is allowed. A request that was ignored
 * before, as by nohup, stays ignored. */
void gd_os_watch_stop(void (*note)(int number), void (*note_pipe)(int number));

/* Stops now, as if the request were not watched. Only `note` may call it. */
void gd_os_stop(int number);

/* Makes writing to a pipe that nobody reads an error. Only `note_pipe` may call it. */
void gd_os_ignore(int number);

/* Writes a text to a terminal from `note`. */
void gd_os_write_signal(int descriptor, const char *text, size_t length);

/* Ends the process at once. */
_Noreturn void gd_os_leave(int status);

/* ---- Processes that it starts --------------------------------------------------------------- */

/* Holds back signals to stop, and of children that end, for gd_os_wait_signal. */
void gd_os_hold_signals(void);

/* Waits for one of these signals, for about a second at most; returns a request to stop, which is
 * meant for the children, too, else 0. */
int gd_os_wait_signal(void);

/* A copy of this process: its number in the parent, 0 in the child, -1 on error. A child gets a
 * request to stop when its parent ends. */
int64_t gd_os_fork(void);

/* Asks a child to stop, sends it a signal, or ends it. */
void gd_os_signal(int64_t child, int number);
void gd_os_ask_to_stop(int64_t child);
void gd_os_kill(int64_t child);

/* A child that has ended: its number, or 0 if there is none. *status is its exit status, or 128 and
 * the number of the signal that ended it; *signal that number, or 0. */
int64_t gd_os_reap(int *status, int *signal);
const char *gd_os_signal_name(int number);

#endif
