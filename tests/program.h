/* program.h - a program of the project, run as a user would, in a folder of its own if the test
 * asks for one. The file that includes it defines _POSIX_C_SOURCE 200809L or more (mkdtemp, popen).
 *
 * GRADUS_PROGRAM is its path, from tests/CMakeLists.txt; it is missing if the program is not
 * built. */
#ifndef GRADUS_TEST_PROGRAM_H
#define GRADUS_TEST_PROGRAM_H

#include <check.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradus/gradus.h"
#include "own_folder.h"

#ifndef GRADUS_PROGRAM
#define GRADUS_PROGRAM ""
#endif

enum { PROGRAM_OUTPUT = 1 << 20, PROGRAM_SKIPPED = 77 };

static char output[PROGRAM_OUTPUT]; /* of the program that was run last, for most tests */

/* ---- Running it ----------------------------------------------------------------------------- */

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

/* Runs ours. */
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

/* A call that a program refuses, in one line that begins with its name. */
typedef struct refused_call {
    const char *arguments, *message;
} refused_call;

static inline void program_refuses(const char *name, int wanted, const refused_call *call)
{
    const int status = program_run_other(name, call->arguments, output);
    ck_assert_msg(status == wanted, "%s: exit status %d, wanted %d\n%s", call->arguments, status,
                  wanted, output);
    ck_assert_msg(!strncmp(output, name, strlen(name)) && !strncmp(output + strlen(name), ": ", 2),
                  "%s", output);
    program_said(output, call->message);
    ck_assert_msg(strchr(output, '\n') == output + strlen(output) - 1, "several lines:\n%s",
                  output);
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

/* A text to learn, soon: words in random order. */
enum { PROGRAM_WORDS = 5 };

static inline const char *word_of(int i)
{
    static const char *const words[PROGRAM_WORDS] = {"the cat ", "sat ", "on a mat ", "and saw ",
                                                     "dogs run.\n"};
    return words[i];
}

static inline const char *next_word(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return word_of((int)((*state >> 16) % PROGRAM_WORDS));
}

/* A text of at least so many bytes. */
static inline void write_words(const char *name, int bytes)
{
    FILE *file = fopen(name, "w");
    ck_assert_ptr_nonnull(file);
    uint32_t state = 1;
    for (int written = 0; written < bytes;) written += fprintf(file, "%s", next_word(&state));
    fclose(file);
}

/* A token file of so many ids below `vocab`, each likely to be followed by the next one. */
static inline void write_tokens(const char *name, uint32_t vocab, int count)
{
    FILE *file = fopen(name, "w");
    ck_assert_ptr_nonnull(file);
    uint32_t state = 1, id = 0;
    for (int i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        id = (id + (state >> 16) % 3) % vocab;
        fputc((int)(id & 255), file);
        fputc((int)(id >> 8), file);
    }
    fclose(file);
}

static inline int count_lines(const char *output)
{
    int count = 0;
    for (; (output = strchr(output, '\n')); output++) count++;
    return count;
}

#endif
