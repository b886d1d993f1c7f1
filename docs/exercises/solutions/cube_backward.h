/* cube_backward.h - x is read twice, so its gradient is a sum: the second backward adds to what the
 * first has left, as `accumulate` says. */
static gd_status backward(const gd_call *call)
{
    const double *x = numbers(call->input[0]), *dy = numbers(call->doutput[0]);
    double *dx = numbers(call->dinput[0]);
    for (int64_t i = 0; i < gd_tensor_count(call->dinput[0]); i++) {
        dx[i] = (call->accumulate[0] ? dx[i] : 0) + 3 * x[i] * x[i] * dy[i];
    }
    return GD_OK;
}
