/* plain_cpu.c - prod as README.md derives it, from the product P without the zeros of each group.
 * The op itself is its definition (derivations.c), which tests compare with this, and into which no
 * fault of a line can be planted. */
#include "kernel_cpu.h"
#include "reduce/formula.h"
#include "reduce/reduce.h"

/* The index of the result that element i of x belongs to. */
static int64_t result_of(const gd_call *call, int64_t i)
{
    const gd_tensor *x = call->input[0];
    const unsigned reduced = gd_reduced_axes(call->args, gd_tensor_ndim(x));
    int64_t result = 0, step = 1;
    for (int d = gd_tensor_ndim(x) - 1; d >= 0; d--) {
        const int64_t size = gd_tensor_shape(x)[d];
        result += reduced >> d & 1 ? 0 : i % size * step;
        step *= reduced >> d & 1 ? 1 : size;
        i /= size;
    }
    return result;
}

/* dy times the product of all elements of a group but x. */
static double others(double product, double zeros, double x)
{
    if (prod_of_others_is_zero(zeros, x)) return 0 * product;
    return zeros == 1 ? product : prod_dx(product, x);
}

/* Forward and, where there is a dy, backward. */
static gd_status plain(const gd_call *call)
{
    const REAL *x = gd_data(call->input[0]), *dy = gd_dy(call, 0);
    REAL *y = dy ? NULL : gd_data(call->output[0]), *dx = gd_dx_sum(call, 0);
    const int64_t n = gd_tensor_count(call->input[0]), results = gd_tensor_count(call->output[0]);
    double *P = gd_call_scratch(call, 2 * (size_t)results * sizeof *P), *zeros = P + results;
    if (!P) return gd_error_status(call->context);
    for (int64_t r = 0; r < results; r++) P[r] = 1, zeros[r] = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t r = result_of(call, i);
        if (x[i] == 0)
            zeros[r]++;
        else
            P[r] *= (double)x[i];
    }
    for (int64_t r = 0; r < results; r++) {
        GD_STEP("P", P[r]);
        if (y) y[r] = (REAL)(zeros[r] > 0 ? 0 * P[r] : P[r]);
    }
    for (int64_t i = 0; dx && i < n; i++) {
        const int64_t r = result_of(call, i);
        dx[i] += (REAL)others((double)dy[r] * P[r], zeros[r], (double)x[i]);
    }
    return GD_OK;
}

GD_KERNELS_OF_REAL(prod_plain, plain(call), plain(call))
