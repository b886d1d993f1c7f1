/* cube.c - an op of one's own in a shared object, for gradus-gradcheck --load. */
#include <gradus/gradus.h>

static void definition(const gd_call *call)
{
    call->output[0] = gd_mul(call->input[0], gd_mul(call->input[0], call->input[0]));
}

static const gd_case cases[] = {{.name = "3x5", GD_INPUTS({GD_DIMS(3, 5)})}};
static const gd_op cube = {.name = "cube",
                           .formula = "y = x^3",
                           .signature = "x[...] -> y[...]",
                           .definition = definition,
                           GD_CASES(cases)};
const gd_op *const gradus_ops[] = {&cube, NULL};
