/* beside.c - runs a program, and does to it what a user or another program does on Windows. For
 * tests/programs/windows.sh.
 *   beside ctrl-c FILE PROGRAM ARGUMENT...   presses Ctrl-C at the console once FILE is there
 *   beside hold FILE PROGRAM ARGUMENT...     has FILE open, so that nobody may write or replace it
 * Exits with the program's status; 99: it could not do its part. */
#include <windows.h>

#include <process.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool wait_for(const char *name)
{
    for (int i = 0; i < 6000; i++, Sleep(10)) {
        if (GetFileAttributesA(name) != INVALID_FILE_ATTRIBUTES) return true;
    }
    return false;
}

int main(int count, char **argv)
{
    if (count < 4) return 99;
    const bool press = !strcmp(argv[1], "ctrl-c");
    if (!press && CreateFileA(argv[2], GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0,
                              NULL) == INVALID_HANDLE_VALUE) {
        fprintf(stderr, "beside: cannot open %s\n", argv[2]);
        return 99;
    }
    const intptr_t program = _spawnv(_P_NOWAIT, argv[3], (const char *const *)argv + 3);
    if (program == -1) {
        fprintf(stderr, "beside: cannot start %s\n", argv[3]);
        return 99;
    }
    /* Every program at the console gets the event. What is started later would ignore it, too. */
    if (press && (!wait_for(argv[2]) || !SetConsoleCtrlHandler(NULL, TRUE) ||
                  !GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0))) {
        fprintf(stderr, "beside: no Ctrl-C (error %lu)\n", GetLastError());
        TerminateProcess((HANDLE)program, 99);
    }
    int status = 99;
    _cwait(&status, program, 0);
    return status;
}
