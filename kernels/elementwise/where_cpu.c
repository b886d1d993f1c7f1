/* where_cpu.c - the CPU kernels of where. */
#include "elementwise/functions.h"
#include "loops.h"
#include "reduce/reduction.h"

GD_ROW(where_row, REAL, int32_t, old, a, b, c, chosen, p, q, chosen ? a : b)
GD_ROW(da_row, REAL, int32_t, old, dy, a, b, chosen, p, q, old + where_part(dy, chosen != 0))
GD_ROW(db_row, REAL, int32_t, old, dy, a, b, chosen, p, q, old + where_part(dy, chosen == 0))

/* y, or the part of dy that goes to an input: `out`, of the shape of `like`. */
static gd_status choose(const gd_call *call, const gd_tensor *like, int inputs,
                        gd_tensor *const *in, REAL *out, bool add, gd_row_function *row)
{
    return gd_map_tensors(
        call, like, inputs, in, call->input[0],
        &(gd_map){.out = out, .size = sizeof(REAL), .row = {.function = row, .add = add}});
}

/* The gradient of a (input 1) or b (input 2). If it was broadcast, its part of dy is computed in
 * temporary memory and summed over the repeated axes. */
static gd_status operand_backward(const gd_call *call, int k)
{
    const gd_tensor *dy = call->doutput[0], *dx = call->dinput[k];
    gd_row_function *const row = k == 1 ? da_row : db_row;
    if (!dx) return GD_OK;
    const int64_t n = gd_tensor_count(dy);
    const bool add = call->accumulate[k];
    if (gd_tensor_count(dx) == n) return choose(call, dy, 1, call->doutput, gd_data(dx), add, row);
    REAL *part = gd_call_scratch(call, (size_t)n * sizeof(REAL));
    if (!part) return gd_error_status(call->context);
    choose(call, dy, 1, call->doutput, part, false, row);
    gd_reduction r = {.walk = gd_walk_like(dy), .data = {NULL, part}};
    gd_walk_add_tensor(&r.walk, dx);
    gd_walk_add_tensor(&r.walk, dy);
    return gd_reduce_into(dx, add, call, &r);
}

static gd_status where_backward(const gd_call *call)
{
    const gd_status status = operand_backward(call, 1);
    return status ? status : operand_backward(call, 2);
}

GD_KERNEL_OF_REAL(where_forward, choose(call, call->output[0], 2, call->input + 1,
                                        gd_data(call->output[0]), false, where_row))
GD_KERNEL_OF_REAL(where_backward, where_backward(call))
