/* unfold_cpu.c - the CPU kernels of unfold and fold. Threads share the channels of all images. */
#include "conv/columns.h"

/* All images as one with B C channels: their columns are side by side in the same way. */
static gd_status pair_all(const gd_call *call, gd_tensor *image, gd_tensor *cols, bool fold)
{
    if (!image || !cols) return GD_OK;
    const conv_sizes s = conv_sizes_of_columns(call->args, image);
    const int64_t P = conv_positions(&s), shares = shares_of(s.B * s.C, P);
    const bool add = gd_adds(call, 0);
    const columns w = {.sizes = &s,
                       .image = gd_data(image),
                       .data = gd_data(cols),
                       .p1 = P,
                       .run = 1,
                       .channels = s.B * s.C,
                       .shares = shares,
                       .pairing = fold  ? ADD_TO_IMAGE
                                  : add ? ADD_TO_ROW
                                        : COPY,
                       .clear = fold && !add};
    return gd_each_piece(call, gd_tensor_count(cols), shares, pair_share, &w);
}

GD_KERNEL_OF_REAL(unfold_forward, pair_all(call, call->input[0], call->output[0], false))
GD_KERNEL_OF_REAL(unfold_backward, pair_all(call, call->dinput[0], call->doutput[0], true))
GD_KERNEL_OF_REAL(fold_forward, pair_all(call, call->output[0], call->input[0], true))
GD_KERNEL_OF_REAL(fold_backward, pair_all(call, call->doutput[0], call->dinput[0], false))
