/* compare_cpu.c - the CPU kernels of the comparisons (compare.def), with broadcast. */
#include "loops.h"

static gd_status compare(const gd_call *call, gd_row_function *row)
{
    const gd_tensor *y = call->output[0];
    return gd_map_tensors(
        call, y, 2, call->input, NULL,
        &(gd_map){.out = gd_data(y), .size = sizeof(int32_t), .row = {.function = row}});
}

#define COMPARE(name, formula, condition)                               \
    GD_ROW(name##_row, int32_t, REAL, old, a, b, c, d, p, q, condition) \
    GD_KERNEL_OF_REAL(name##_forward, compare(call, name##_row))
#include "elementwise/compare.def"
