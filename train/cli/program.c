/* program.c - see program.h. */
#include "program.h"

#include <stdlib.h>

int program_main(options *command, options_outcome outcome,
                 int (*run)(gd_context *ctx, options *command))
{
    int status = outcome == OPTIONS_DONE ? EXIT_SUCCESS : 2;
    if (outcome == OPTIONS_RUN) {
        const gd_context_options machine = {.device = (gd_device)command->device,
                                            .threads = (int)command->threads,
                                            .tf32 = command->tf32};
        gd_context *ctx = gd_context_create(&machine);
        status = run(ctx, command);
        gd_context_free(ctx);
    }
    options_free(command);
    return status;
}
