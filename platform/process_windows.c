/* process_windows.c - see process.h; without requests to stop and processes that are started, which
 * only the training programs need. */
#include "platform/process.h"
#include "platform/names_windows.h"

#include <fcntl.h>
#include <io.h>
#include <shellapi.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- This process --------------------------------------------------------------------------- */

const char gd_os_nowhere[] = "NUL";

/* The arguments, which the C library has in a code page; those of argv where there is no memory. */
static char **arguments_in_utf8(char **argv)
{
    int count = 0;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &count);
    char **arguments = wide ? calloc((size_t)count + 1, sizeof *arguments) : NULL;
    bool fine = arguments != NULL;
    for (int i = 0; i < count && fine; i++)
        fine = (arguments[i] = gd_windows_utf8(wide[i], -1)) != NULL;
    LocalFree(wide);
    return fine ? arguments : argv;
}

/* A console shows UTF-8 and obeys escape sequences; text that is written byte by byte must arrive
 * there in one piece. */
static void prepare_output(FILE *file)
{
    const HANDLE handle = (HANDLE)_get_osfhandle(_fileno(file));
    DWORD mode;
    if (!GetConsoleMode(handle, &mode)) return;
    SetConsoleMode(handle, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    if (file == stdout) setvbuf(file, NULL, _IOFBF, 1 << 16);
}

/* A closed one of the three is NUL, opened for reading, so that writing fails. */
char **gd_os_begin(char **argv)
{
    for (int next = 0; next >= 0 && next <= 2;) {
        next = _open(gd_os_nowhere, _O_RDONLY | _O_BINARY);
        if (next > 2) _close(next);
    }
    for (int file = 0; file <= 2; file++) _setmode(file, _O_BINARY);
    SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOOPENFILEERRORBOX); /* no dialogs */
    if (GetConsoleOutputCP()) SetConsoleOutputCP(CP_UTF8);
    if (GetConsoleCP()) SetConsoleCP(CP_UTF8);
    prepare_output(stdout);
    prepare_output(stderr);
    return arguments_in_utf8(argv);
}

/* A process cannot be replaced by another here, so they are set for what reads them later. */
void gd_os_restart_with(const char *const *variables, char **argv)
{
    (void)argv;
    for (; variables[0]; variables += 2) {
        if (!getenv(variables[0])) gd_os_set_variable(variables[0], variables[1]);
    }
}

void *gd_os_load(const char *path, const char *symbol, char *why, size_t size)
{
    snprintf(why, size, "%s of %s: nothing is loaded on Windows", symbol, path);
    return NULL;
}

bool gd_os_set_variable(const char *name, const char *value)
{
    return !_putenv_s(name, value);
}

int64_t gd_os_process(void)
{
    return GetCurrentProcessId();
}

void gd_os_on_fork(void (*note)(void))
{
    (void)note;
}
