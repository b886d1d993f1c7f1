/* spin.c - see spin.h. */
#include "programs/spin.h"
#include "platform/process.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Valgrind does not follow a program that starts another, and would check nothing. */
static bool has_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload") != NULL;
}

/* libgomp, OpenBLAS and Accelerate (VECLIB) read the environment as they are loaded, before main()
 * can change it: so the program is started again. (libomp reads KMP_BLOCKTIME later. The library
 * has OpenBLAS compute with one thread, but it would start more first, which spin for 25 ms.) */
void spin_briefly(char **argv)
{
    static const char *const variables[] = {"GOMP_SPINCOUNT",
                                            "1000",
                                            "KMP_BLOCKTIME",
                                            "1",
                                            "OPENBLAS_NUM_THREADS",
                                            "1",
                                            "VECLIB_MAXIMUM_THREADS",
                                            "1",
                                            NULL};
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME") ||
        has_valgrind())
        return;
    gd_os_restart_with(variables, argv);
}
