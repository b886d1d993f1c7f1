/* unfold_cpu.c - the CPU kernels of unfold and fold. Threads share the channels of all images. */
#include "conv/columns.h"

static void fold_into(const void *work, int64_t t)
{
    const columns *w = work;
    const int64_t plane = w->sizes->H * w->sizes->W, c0 = w->channels * t / w->shares;
    const int64_t count = (w->channels * (t + 1) / w->shares - c0) * plane;
    if (!w->add && count > 0) memset(w->image + c0 * plane, 0, (size_t)count * sizeof(REAL));
    fold_share(work, t);
}

/* All images as one with B C channels: their columns are side by side in the same way. */
static gd_status move_all(const gd_call *call, gd_tensor *image, gd_tensor *cols, gd_task *task)
{
    if (!image || !cols) return GD_OK;
    const conv_sizes s = conv_sizes_of_columns(call->args, image);
    const int64_t P = conv_positions(&s), shares = shares_of(s.B * s.C, P);
    const columns w = {.sizes = &s,
                       .image = gd_data(image),
                       .data = gd_data(cols),
                       .row = P,
                       .p1 = P,
                       .run = 1,
                       .channels = s.B * s.C,
                       .shares = shares,
                       .add = gd_adds(call, 0),
                       .weight = 1};
    return gd_each_piece(call, gd_tensor_count(cols), shares, task, &w);
}

GD_KERNEL_OF_REAL(unfold_forward, move_all(call, call->input[0], call->output[0], unfold_share))
GD_KERNEL_OF_REAL(unfold_backward, move_all(call, call->dinput[0], call->doutput[0], fold_into))
GD_KERNEL_OF_REAL(fold_forward, move_all(call, call->output[0], call->input[0], fold_into))
GD_KERNEL_OF_REAL(fold_backward, move_all(call, call->doutput[0], call->dinput[0], unfold_share))
