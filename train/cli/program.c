/* program.c - see program.h. */
#define _DEFAULT_SOURCE /* RLIMIT_AS */
#include "program.h"
#include "console.h"
#include "json.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* If stdout is closed, the next file to be opened would take its number, and progress lines would
 * be written to it. Writing to a descriptor opened here still fails. */
static void reserve_descriptors(void)
{
    for (int next = 0; next >= 0 && next <= STDERR_FILENO;) {
        next = open("/dev/null", O_RDONLY);
        if (next > STDERR_FILENO) close(next);
    }
}

void program_begin(void)
{
    reserve_descriptors();
    json_watch_memory();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of write() */
}

/* With too little address space, OpenBLAS's threads wait for memory forever, and exit() waits for
 * them. */
static int leave(int status)
{
    struct rlimit space;
    if (!getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY) {
        fflush(NULL);
        _exit(status);
    }
    return status;
}

static const gd_device devices[] = {GD_CPU, GD_CUDA, GD_DEVICE_AUTO}; /* as in --device */

int program_main(options *command, options_outcome outcome,
                 int (*run)(gd_context *ctx, options *command))
{
    int status = outcome == OPTIONS_DONE && console_arrived() ? EXIT_SUCCESS : 2;
    if (outcome == OPTIONS_RUN) {
        const gd_context_options machine = {.device = devices[command->device],
                                            .threads = (int)command->threads,
                                            .tf32 = command->tf32};
        gd_context *ctx = gd_context_create(&machine);
        const char *note = gd_context_device_note(ctx);
        if (note) console_message("%s", note);
        status = run(ctx, command);
        gd_context_free(ctx);
    }
    options_free(command);
    return leave(status);
}
