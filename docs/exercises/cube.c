/* cube.c - exercise 3: y = x^3. The formula in cube_backward.h is right, but the gradient is
 * not. */
#include "exercise.h"

static gd_status forward(const gd_call *call)
{
    const double *x = numbers(call->input[0]);
    double *y = numbers(call->output[0]);
    for (int64_t i = 0; i < gd_tensor_count(call->input[0]); i++) y[i] = x[i] * x[i] * x[i];
    return GD_OK;
}

#include <cube_backward.h>

static const gd_op cube = {
    .name = "cube",
    .inputs = 1,
    .outputs = 1,
    .backward_reads_inputs = 1,
    .shape = like_first_input,
    .forward = {[GD_CPU] = forward},
    .backward = {[GD_CPU] = backward},
};

int main(void)
{
    return check_exercise(&cube);
}
