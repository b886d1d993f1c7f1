/* runs.h - runs of gradus-train on small texts: saved, stopped, resumed. */
#ifndef GRADUS_TEST_RUNS_H
#define GRADUS_TEST_RUNS_H

#include "program.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Running it --------------------------------------------------------------------------- */

static inline void write_text(const char *name, const char *alphabet)
{
    FILE *file = fopen(name, "w");
    ck_assert_ptr_nonnull(file);
    uint32_t state = 1;
    for (int i = 0; i < 8000; i++) {
        state = state * 1664525u + 1013904223u;
        fputc(alphabet[(state >> 16) % strlen(alphabet)], file);
    }
    fclose(file);
}

/* In the arguments of all runs $small is a small model. */
static inline void set_up(void)
{
    enter_folder();
    setenv("small",
           "--layers 2 --dim 16 --heads 4 --kv-heads 2 --ffn 24 --context 12 --batch 4 --warmup 4 "
           "--lr 0.01 --dropout 0.1 --eval-every 7 --log-every 1000 --sample-length 0 --threads 1",
           1);
    write_text("text", "abcde \n");
    write_text("other", "abcdf \n");
    write_text("same", "edcba \n");
}

static inline int train(const char *arguments)
{
    return program_run(arguments, output);
}

GD_PRINTF(1, 2) static inline void train_well(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    program_must(0, line, output);
}

static inline void train_badly(const char *arguments, const char *wanted)
{
    const int status = train(arguments);
    ck_assert_msg(status == 1 || status == 2, "%s: exit status %d\n%s", arguments, status, output);
    program_said(output, wanted);
}

static inline bool exists(const char *name)
{
    return access(name, F_OK) == 0;
}

/* The text of a file. */
static inline const char *text_of(const char *name)
{
    static char text[1 << 16];
    read_back(fopen(name, "r"), text, sizeof text);
    return text;
}

/* ---- In the background --------------------------------------------------------------------- */

/* Starts the program with its output in the file `log`. */
GD_PRINTF(1, 2) static inline pid_t begin(const char *format, ...)
{
    char line[1024], command[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    snprintf(command, sizeof command, "exec '%s' %s >log 2>&1", (const char *)GRADUS_PROGRAM, line);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_gt(child, 0);
    return child;
}

/* Waits for its end; its exit status, or 128 and the number of the signal. */
static inline int end_of(pid_t child)
{
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The same of one that a signal ends well. */
static inline void stop_well(pid_t child, int number)
{
    kill(child, number);
    ck_assert_int_eq(end_of(child), 0);
}

/* Waits until the file is there. A checkpoint needs --keep: only the newest would come and go while
 * this process does not run. */
static inline void wait_for(const char *name)
{
    for (int i = 0; i < 20000 && !exists(name); i++) nap(2);
    ck_assert_msg(exists(name), "%s does not appear", name);
}

#endif
