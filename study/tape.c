/* tape.c - linked with an example program: after its first gd_backward it prints the tape as a
 * graph, and the program ends there. */
#include <stdio.h>
#include <stdlib.h>

#include "gradus/gradus.h"

gd_status __real_gd_backward(gd_tensor *loss);
gd_status __wrap_gd_backward(gd_tensor *loss);

gd_status __wrap_gd_backward(gd_tensor *loss)
{
    gd_context *ctx = gd_tensor_context(loss);
    gd_tape_record_norms(ctx, true);
    __real_gd_backward(loss);
    gd_tape_print_dot(ctx, stdout);
    exit(gd_error(ctx) != NULL);
}
