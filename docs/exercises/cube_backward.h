/* cube_backward.h - dx = 3 x^2 dy. Where does it go? */
static gd_status backward(const gd_call *call)
{
    const double *x = numbers(call->input[0]), *dy = numbers(call->doutput[0]);
    double *dx = numbers(call->dinput[0]);
    for (int64_t i = 0; i < gd_tensor_count(call->dinput[0]); i++) dx[i] = 3 * x[i] * x[i] * dy[i];
    return GD_OK;
}
