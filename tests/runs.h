/* runs.h - runs of gradus-train on small texts in a folder of their own: saved, stopped, resumed.
 *
 * The file that includes it defines _XOPEN_SOURCE 700 (mkdtemp, popen, nanosleep). */
#ifndef GRADUS_TEST_RUNS_H
#define GRADUS_TEST_RUNS_H

#include "program.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char folder[] = "/tmp/gradus_runs_XXXXXX";
static char output[PROGRAM_OUTPUT];

/* ---- Running it --------------------------------------------------------------------------- */

static inline void write_text(const char *name, const char *alphabet)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    uint32_t state = 1;
    for (int i = 0; i < 8000; i++) {
        state = state * 1664525u + 1013904223u;
        fputc(alphabet[(state >> 16) % strlen(alphabet)], file);
    }
    fclose(file);
}

/* A token file of 8000 ids below `vocab`, each likely to be followed by the next one. */
static inline void write_tokens(const char *name, uint32_t vocab)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    uint32_t state = 1, id = 0;
    for (int i = 0; i < 8000; i++) {
        state = state * 1664525u + 1013904223u;
        id = (id + (state >> 16) % 3) % vocab;
        fputc((int)(id & 255), file);
        fputc((int)(id >> 8), file);
    }
    fclose(file);
}

static inline void set_up(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    write_text("text", "abcde \n");
    write_text("other", "abcdf \n");
    write_text("same", "edcba \n");
}

static inline void shell(const char *format, const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, format, a, b);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static inline void tear_down(void)
{
    shell("rm -r '%s'%s", folder, "");
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
}

static const char small[] = "--layers 2 --dim 16 --heads 4 --kv-heads 2 --ffn 24 --context 12 "
                            "--batch 4 --warmup 4 --lr 0.01 --dropout 0.1 --eval-every 7 "
                            "--log-every 1000 --sample-length 0 --threads 1";

/* Runs gradus-train in the folder; %s of `arguments` is the small model. */
static inline int train(const char *arguments)
{
    char line[1024], all[1024];
    snprintf(all, sizeof all, arguments, small);
    snprintf(line, sizeof line, "%s", all);
    ck_assert_int_eq(chdir(folder), 0);
    int status = program_run(line, output);
    ck_assert_int_eq(chdir("/"), 0);
    return status;
}

static inline void train_well(const char *arguments)
{
    int status = train(arguments);
    ck_assert_msg(status == 0, "%s: exit status %d\n%s", arguments, status, output);
}

static inline void train_badly(const char *arguments, const char *wanted)
{
    int status = train(arguments);
    ck_assert_msg(status == 1 || status == 2, "%s: exit status %d\n%s", arguments, status, output);
    program_said(output, wanted);
}

static inline bool exists(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* The text of a file in the folder. */
static inline const char *text_of(const char *name)
{
    static char text[1 << 16];
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* ---- In the background --------------------------------------------------------------------- */

/* Starts the program in the folder with its output in a file, `nap` milliseconds ago. */
static inline pid_t begin(const char *arguments, int nap)
{
    char line[1024], command[2048];
    snprintf(line, sizeof line, arguments, small);
    snprintf(command, sizeof command, "cd '%s' && exec '%s' %s >log 2>&1", folder,
             (const char *)GRADUS_PROGRAM, line);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_gt(child, 0);
    struct timespec time = {nap / 1000, nap % 1000 * 1000000L};
    nanosleep(&time, NULL);
    return child;
}

/* Waits until the file is there. A checkpoint needs --keep: only the newest would come and go while
 * this process does not run. */
static inline void wait_for(const char *name)
{
    struct timespec moment = {0, 2000000};
    for (int i = 0; i < 20000 && !exists(name); i++) nanosleep(&moment, NULL);
    ck_assert_msg(exists(name), "%s does not appear", name);
}

#endif
