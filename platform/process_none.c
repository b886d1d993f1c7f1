/* process_none.c - see process.h: a system without processes, such as WebAssembly. The library
 * needs only these. */
#include "platform/process.h"

#include <stdio.h>
#include <stdlib.h>

char **gd_os_begin(char **argv)
{
    return argv;
}

void gd_os_restart_with(const char *const *variables, char **argv)
{
    (void)variables, (void)argv;
}

int64_t gd_os_process(void)
{
    return 1;
}

void gd_os_on_fork(void (*note)(void))
{
    (void)note;
}

void *gd_os_load(const char *path, const char *symbol, char *why, size_t size)
{
    snprintf(why, size, "%s of %s cannot be loaded: there are no shared objects here", symbol,
             path);
    return NULL;
}
