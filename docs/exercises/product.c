/* product.c - exercise 1: y[i][j] = a[i][j] b[j], a [M, N], b [N] -> y [M, N]. The backward, in
 * product_backward.h, has two gradients, and one is wrong. */
#include "exercise.h"

static gd_status forward(const gd_call *call)
{
    const double *a = numbers(call->input[0]), *b = numbers(call->input[1]);
    double *y = numbers(call->output[0]);
    const int64_t n = gd_tensor_dim(call->input[1], 0);
    for (int64_t i = 0; i < gd_tensor_count(call->output[0]); i++) y[i] = a[i] * b[i % n];
    return GD_OK;
}

#include <product_backward.h>

static const gd_op product = {
    .name = "product",
    .inputs = 2,
    .outputs = 1,
    .backward_reads_inputs = 3,
    .shape = like_first_input,
    .forward = {[GD_CPU] = forward},
    .backward = {[GD_CPU] = backward},
};

int main(void)
{
    return check_exercise(&product);
}
