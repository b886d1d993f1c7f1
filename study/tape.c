/* tape.c - linked with an example program: its first gd_backward prints the tape, as a graph, before
 * and after, and the program ends there. */
#include <stdio.h>
#include <stdlib.h>

#include "gradus/gradus.h"

gd_status __real_gd_backward(gd_tensor *loss);
gd_status __wrap_gd_backward(gd_tensor *loss);

gd_status __wrap_gd_backward(gd_tensor *loss)
{
    gd_context *ctx = gd_tensor_context(loss);
    gd_tape_print_dot(ctx, stdout);
    gd_tape_record_norms(ctx, true);
    __real_gd_backward(loss);
    puts("after");
    gd_tape_print(ctx, stdout);
    exit(gd_error(ctx) != NULL);
}
