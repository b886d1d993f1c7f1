/* terminal_windows.c - see terminal.h. */
#include "platform/terminal.h"

#include <io.h>
#include <windows.h>

static HANDLE handle_of(int descriptor)
{
    return (HANDLE)_get_osfhandle(descriptor);
}

int gd_os_descriptor(FILE *file)
{
    return _fileno(file);
}

/* The C library takes the device NUL for a terminal. */
bool gd_os_is_terminal(int descriptor)
{
    DWORD mode;
    return GetConsoleMode(handle_of(descriptor), &mode);
}
