/* program.c - see program.h. */
#include "program.h"
#include "console.h"
#include "folder.h"
#include "platform/memory.h"
#include "platform/process.h"
#include "programs/spin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

char **program_begin(char **argv)
{
    spin_briefly(argv);
    return gd_os_begin(argv);
}

_Static_assert((int)OPTIONS_PATH == (int)FOLDER_PATH,
               "a path that an option takes fits a folder's");

options_outcome program_read_options(options *o, const option_table *table, char **argv)
{
    console_program(table->program);
    return options_read(o, table, argv);
}

/* Leaves without exit(), which would wait for OpenBLAS's threads: if address space is short, they
 * wait for memory forever. */
static int leave(int status)
{
    if (isinf(gd_os_address_space_limit())) return status;
    fflush(NULL);
    gd_os_leave(status);
}

static const gd_device devices[] = {GD_CPU, GD_CUDA, GD_DEVICE_AUTO}; /* as in --device */

void program_notice(void *user, const char *sentence)
{
    (void)user;
    console_notice("%s", sentence);
}

int program_main(options *command, options_outcome outcome,
                 int (*run)(gd_context *ctx, options *command))
{
    const option_use uses[] = {
        {"tf32", !command->tf32 || devices[command->device] != GD_CPU, "is for a GPU"}, {0}};
    if (outcome == OPTIONS_RUN && !options_used(command, uses)) outcome = OPTIONS_BAD;
    int status = outcome == OPTIONS_DONE && console_arrived() ? EXIT_SUCCESS : 2;
    if (outcome == OPTIONS_RUN) {
        const gd_context_options machine = {.device = devices[command->device],
                                            .threads = (int)command->threads,
                                            .tf32 = command->tf32,
                                            .notice = program_notice};
        gd_context *ctx = gd_context_create(&machine);
        const char *note = gd_context_device_note(ctx);
        if (note) console_message("%s", note);
        status = run(ctx, command);
        gd_error(ctx); /* its sentence, if it was for other ranks only, had a message here */
        gd_context_free(ctx);
    }
    options_free(command);
    return leave(status);
}
