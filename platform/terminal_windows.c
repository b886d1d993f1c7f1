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

int gd_os_terminal_columns(int descriptor)
{
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo(handle_of(descriptor), &info)) return 0;
    return info.srWindow.Right - info.srWindow.Left + 1;
}

/* gd_os_begin asks for it. */
bool gd_os_terminal_erases(void)
{
    static const DWORD outputs[] = {STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
    for (int i = 0; i < 2; i++) {
        DWORD mode;
        if (GetConsoleMode(GetStdHandle(outputs[i]), &mode))
            return mode & ENABLE_VIRTUAL_TERMINAL_PROCESSING;
    }
    return false;
}
