/* softmax_backward.h - every y of the row depends on x[i] through the sum: each loses y[k] y[i]. So
 * dx[i] = y[i] (dy[i] - s) with s = sum of dy y over the row. */
static gd_status backward(const gd_call *call)
{
    const double *y = numbers(call->output[0]), *dy = numbers(call->doutput[0]);
    double *dx = numbers(call->dinput[0]);
    const int64_t n = gd_tensor_dim(call->output[0], -1);
    for (int64_t row = 0; dx && row < gd_tensor_count(call->dinput[0]); row += n) {
        double s = 0;
        for (int64_t i = row; i < row + n; i++) s += dy[i] * y[i];
        for (int64_t i = row; i < row + n; i++) {
            dx[i] = (call->accumulate[0] ? dx[i] : 0) + y[i] * (dy[i] - s);
        }
    }
    return GD_OK;
}
