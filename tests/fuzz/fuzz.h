/* fuzz.h - shared by the fuzz targets: demands, and files in a folder of their own ($TMPDIR). */
#ifndef GRADUS_TEST_FUZZ_H
#define GRADUS_TEST_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Ends the run if a condition does not hold. */
static inline void demand(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "demanded: %s\n", what);
    abort();
}

/* A folder for this process, made at the first call. */
static inline const char *fuzz_folder(void)
{
    static char folder[512];
    if (!folder[0]) {
        const char *parent = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%.400s/fuzz_XXXXXX", parent ? parent : "/tmp");
        demand(mkdtemp(folder) != NULL, "a folder");
    }
    return folder;
}

/* The path of a file in the folder, good until the next call. */
static inline const char *fuzz_path(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    return path;
}

/* Writes a file in the folder; returns its path. */
static inline const char *fuzz_file(const char *name, const uint8_t *bytes, size_t size)
{
    const char *path = fuzz_path(name);
    FILE *file = fopen(path, "wb");
    demand(file && fwrite(bytes, 1, size, file) == size && !fclose(file), "a file");
    return path;
}

#endif
