/* masked_fill_cpu.c - the CPU kernels of masked_fill. */
#include "elementwise/functions.h"
#include "loops.h"

GD_ROW(fill_row, REAL, int32_t, old, x, x1, x2, chosen, p, q, old + masked(x, chosen != 0, p))

/* to (+)= value where the mask is set, from elsewhere. `to` is packed and of from's shape. */
static gd_status fill(const gd_call *call, const gd_tensor *to, bool add, gd_tensor *const *from,
                      REAL value)
{
    if (!to) return GD_OK;
    return gd_map_tensors(call, to, 1, from, call->input[1],
                          &(gd_map){.out = gd_data(to),
                                    .size = sizeof(REAL),
                                    .row = {.function = fill_row, .p = value, .add = add}});
}

GD_KERNEL_OF_REAL(masked_fill_forward, fill(call, call->output[0], false, call->input,
                                            (REAL) * (const double *)call->args))
GD_KERNEL_OF_REAL(masked_fill_backward,
                  fill(call, call->dinput[0], call->accumulate[0], call->doutput, 0))
