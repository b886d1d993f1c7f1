/* unary_cpu.c - the CPU kernels of the functions of one variable (unary.def). */
#include "elementwise/functions.h"
#include "loops.h"

#define UNARY(name, formula, value, gradient, ...) \
    GD_MAP_ROW(name##_row, x, x1, x2, x3, value)   \
    GD_GRADIENT_ROW(name##_gradient_row, dy, x, y, y1, gradient)
#define SCALAR UNARY
#define RANGE UNARY
#include "elementwise/unary.def"
#undef UNARY
#undef SCALAR
#undef RANGE

/* p and q of the row; 0 where it has none. */
static REAL parameter(const gd_call *call, int i)
{
    return call->args ? (REAL)gd_option_of_dtype(call->dtype, ((const double *)call->args)[i]) : 0;
}

/* `read` is x or y, as the table says. */
static gd_status unary(const gd_call *call, const gd_tensor *to, bool add, const REAL *dy,
                       const REAL *read, gd_map_row *row)
{
    return gd_map_elements(call, &(gd_map){.out = gd_data(to),
                                           .in = {dy, read, read, read},
                                           .p = parameter(call, 0),
                                           .q = parameter(call, 1),
                                           .add = add,
                                           .n = gd_tensor_count(to),
                                           .row = row});
}

static gd_status unary_forward(const gd_call *call, gd_map_row *row)
{
    const REAL *x = gd_data(call->input[0]);
    return unary(call, call->output[0], false, x, x, row);
}

/* The record says what the backward reads; if it reads only dy, dy is passed for it. */
static gd_status unary_backward(const gd_call *call, gd_map_row *row)
{
    if (!call->dinput[0]) return GD_OK;
    const REAL *dy = gd_data(call->doutput[0]), *read = dy;
    if (call->op->backward_reads_inputs) read = gd_data(call->input[0]);
    if (call->op->backward_reads_outputs) read = gd_data(call->output[0]);
    return unary(call, call->dinput[0], call->accumulate[0], dy, read, row);
}

#define UNARY(name, ...)                                               \
    GD_KERNEL_OF_REAL(name##_forward, unary_forward(call, name##_row)) \
    GD_KERNEL_OF_REAL(name##_backward, unary_backward(call, name##_gradient_row))
#define SCALAR UNARY
#define RANGE UNARY
#include "elementwise/unary.def"
