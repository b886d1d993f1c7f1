/* spin.c - see spin.h. */
#define _DEFAULT_SOURCE /* readlink, setenv */
#include "spin.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

/* Valgrind does not follow a program that starts another, and would check nothing. */
static bool has_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload") != NULL;
}

/* libgomp and OpenBLAS read the environment as they are loaded, before main() can change it: so the
 * program is started again, by its own path, which gives the process its name. Where that fails it
 * goes on as it is. (libomp reads KMP_BLOCKTIME later. The library has OpenBLAS compute with one
 * thread, but it would start more first, which spin for 25 ms.) */
void spin_briefly(char **argv)
{
#ifdef __wasm__ /* no threads, and no other programs */
    (void)argv, (void)has_valgrind;
#else
    char path[PATH_MAX];
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME") ||
        has_valgrind()) {
        return;
    }
    if (setenv("GOMP_SPINCOUNT", "1000", 0) || setenv("KMP_BLOCKTIME", "1", 0) ||
        setenv("OPENBLAS_NUM_THREADS", "1", 0)) {
        return;
    }
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = '\0';
    execv(path, argv);
#endif
}
