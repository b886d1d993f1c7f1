/* own_folder.h - a folder of a test's own, in which its files lie and its programs run.
 *
 * The file that includes it defines _POSIX_C_SOURCE 200809L or more (mkdtemp, nanosleep). */
#ifndef GRADUS_TEST_OWN_FOLDER_H
#define GRADUS_TEST_OWN_FOLDER_H

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gradus/context.h" /* GD_PRINTF */

static char folder[] = "/tmp/gradus_test_XXXXXX";

/* Runs a command of the shell, which must succeed. */
GD_PRINTF(1, 2) static inline void shell(const char *format, ...)
{
    char command[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static inline void nap(int milliseconds)
{
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* What follows lies and runs in a folder that is made, and that leave_folder removes. */
static inline void enter_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
}

static inline void leave_folder(void)
{
    shell("cd / && rm -r '%s'", folder);
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
}

static inline void write_bytes(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(name, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

/* The bytes of a file of less than 16 MB, and a byte 0 behind them; NULL: there is none. */
static inline void *read_whole(const char *name, size_t *size)
{
    FILE *file = fopen(name, "rb");
    *size = 0;
    if (!file) return NULL;
    void *bytes = calloc(1 << 24, 1);
    *size = fread(bytes, 1, (1 << 24) - 1, file);
    fclose(file);
    return bytes;
}

#endif
