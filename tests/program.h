/* program.h - a program of the project, run as a user would.
 *
 * GRADUS_PROGRAM is its path, from tests/CMakeLists.txt; it is missing if the program is not
 * built. */
#ifndef GRADUS_TEST_PROGRAM_H
#define GRADUS_TEST_PROGRAM_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradus/gradus.h"

#ifndef GRADUS_PROGRAM
#define GRADUS_PROGRAM ""
#endif

enum { PROGRAM_OUTPUT = 1 << 20, PROGRAM_SKIPPED = 77 };

static inline bool program_missing(const char *name)
{
    const char *path = GRADUS_PROGRAM;
    if (!path[0]) printf("%s is not built: skipped\n", name);
    return !path[0];
}

/* Runs a program in the same folder with these arguments, in words of the shell; returns its
 * exit status. `output` gets what it wrote to either stream; "2>/dev/null" among the arguments
 * leaves one out. */
static inline int program_run_other(const char *name, const char *arguments,
                                    char output[PROGRAM_OUTPUT])
{
    char command[2048];
    const char *path = GRADUS_PROGRAM, *slash = strrchr(path, '/');
    snprintf(command, sizeof command, "'%.*s/%s' 2>&1 %s", (int)(slash - path), path, name,
             arguments);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t used = fread(output, 1, PROGRAM_OUTPUT - 1, pipe);
    output[used] = '\0';
    ck_assert_msg(used < PROGRAM_OUTPUT - 1, "%s: more output than expected", arguments);
    int status = pclose(pipe);
    ck_assert_msg(WIFEXITED(status), "%s: ended by a signal", arguments);
    return WEXITSTATUS(status);
}

/* The same, in a folder. */
static inline int program_run_in(const char *folder, const char *name, const char *arguments,
                                 char output[PROGRAM_OUTPUT])
{
    ck_assert_int_eq(chdir(folder), 0);
    int status = program_run_other(name, arguments, output);
    ck_assert_int_eq(chdir("/"), 0);
    return status;
}

/* Runs ours, where we are. */
static inline int program_run(const char *arguments, char output[PROGRAM_OUTPUT])
{
    return program_run_other(strrchr((const char *)GRADUS_PROGRAM, '/') + 1, arguments, output);
}

/* The same, and the exit status must be this one. */
static inline void program_must(int wanted, const char *arguments, char output[PROGRAM_OUTPUT])
{
    int status = program_run(arguments, output);
    ck_assert_msg(status == wanted, "%s: exit status %d, wanted %d\n%s", arguments, status, wanted,
                  output);
}

/* The output contains the words. */
static inline void program_said(const char *output, const char *words)
{
    ck_assert_msg(strstr(output, words) != NULL, "not said: %s\n%s", words, output);
}

/* The number behind the words in the output. */
static inline double number_after(const char *output, const char *words)
{
    const char *at = strstr(output, words);
    ck_assert_msg(at != NULL, "no \"%s\" in\n%s", words, output);
    return strtod(at + strlen(words), NULL);
}

/* Where the fingerprint of the weights begins. */
static inline const char *weights(const char *output)
{
    static const char line[] = "\nweights ";
    const char *at = strstr(output, line);
    ck_assert_msg(at != NULL, "no weights in\n%s", output);
    return at + strlen(line);
}

static inline void remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static inline int count_lines(const char *output)
{
    int count = 0;
    for (; (output = strchr(output, '\n')); output++) count++;
    return count;
}

#endif
