/* softmax.c - exercise 2: y[i] = exp(x[i]) / sum exp(x), along rows. softmax_backward.h has a term
 * too few. */
#include "exercise.h"
#include <math.h>

static gd_status forward(const gd_call *call)
{
    const double *x = numbers(call->input[0]);
    double *y = numbers(call->output[0]);
    const int64_t n = gd_tensor_dim(call->input[0], -1);
    for (int64_t row = 0; row < gd_tensor_count(call->input[0]); row += n) {
        double sum = 0;
        for (int64_t i = row; i < row + n; i++) sum += exp(x[i]);
        for (int64_t i = row; i < row + n; i++) y[i] = exp(x[i]) / sum;
    }
    return GD_OK;
}

#include <softmax_backward.h>

static const gd_op softmax = {
    .name = "softmax",
    .inputs = 1,
    .outputs = 1,
    .backward_reads_outputs = 1,
    .shape = like_first_input,
    .forward = {[GD_CPU] = forward},
    .backward = {[GD_CPU] = backward},
};

int main(void)
{
    return check_exercise(&softmax);
}
