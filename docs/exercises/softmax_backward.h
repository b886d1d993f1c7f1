/* softmax_backward.h - d exp(x) / dx = exp(x), so dx = y dy: what else does x[i] move? */
static gd_status backward(const gd_call *call)
{
    const double *y = numbers(call->output[0]), *dy = numbers(call->doutput[0]);
    double *dx = numbers(call->dinput[0]);
    for (int64_t i = 0; dx && i < gd_tensor_count(call->dinput[0]); i++) {
        dx[i] = (call->accumulate[0] ? dx[i] : 0) + y[i] * dy[i];
    }
    return GD_OK;
}
