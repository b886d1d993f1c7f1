/* product_backward.h - b was repeated over the rows, so db is a sum over them. Only what was there
 * before the first row depends on `accumulate`. */
static gd_status backward(const gd_call *call)
{
    const double *a = numbers(call->input[0]), *b = numbers(call->input[1]);
    const double *dy = numbers(call->doutput[0]);
    double *da = numbers(call->dinput[0]), *db = numbers(call->dinput[1]);
    const int64_t n = gd_tensor_dim(call->input[1], 0), count = gd_tensor_count(call->input[0]);
    for (int64_t i = 0; da && i < count; i++) {
        da[i] = (call->accumulate[0] ? da[i] : 0) + dy[i] * b[i % n];
    }
    for (int64_t i = 0; db && i < count; i++) {
        const bool add = call->accumulate[1] || i >= n;
        db[i % n] = (add ? db[i % n] : 0) + dy[i] * a[i];
    }
    return GD_OK;
}
