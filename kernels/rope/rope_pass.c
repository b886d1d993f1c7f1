/* rope_pass.c - what the kernels of a call do: which heads they move from where to where. */
#include "rope/rope.h"

/* Of a packed [B, T, heads, width], without the last, which is 1. */
static void packed_strides(int64_t stride[3], int64_t positions, int64_t heads, int64_t width)
{
    stride[0] = positions * heads * width;
    stride[1] = heads * width;
    stride[2] = width;
}

/* Part i: some heads of the input, from head `first` on, and output i, which is packed. */
static rope_heads part_of(const gd_call *call, int i, int64_t first, bool backward)
{
    const gd_tensor *x = call->input[0], *y = call->output[i];
    const gd_tensor *dx = backward ? call->dinput[0] : NULL;
    const gd_tensor *dy = backward ? call->doutput[i] : NULL;
    const int64_t positions = gd_tensor_dim(y, 1), heads = gd_tensor_dim(y, 2);
    const int64_t width = gd_tensor_dim(y, 3);
    rope_heads part = {.heads = heads, .turned = i < 2, .add = backward && call->accumulate[0]};
    if (backward) {
        const int64_t size = (int64_t)gd_dtype_size(gd_tensor_dtype(dx));
        part.to = (char *)gd_tensor_data(dx) + first * width * size;
        packed_strides(part.to_stride, positions, gd_tensor_dim(dx, 2), width);
        part.from = gd_data(dy);
        packed_strides(part.from_stride, positions, heads, width);
        part.from_stride[3] = 1;
    } else {
        const int64_t *stride = gd_tensor_strides(x);
        const int64_t size = (int64_t)gd_dtype_size(gd_tensor_dtype(x));
        part.from = (const char *)gd_tensor_data(x) + first * stride[2] * size;
        memcpy(part.from_stride, stride, sizeof part.from_stride);
        part.to = gd_tensor_data(y);
        packed_strides(part.to_stride, positions, heads, width);
    }
    return part;
}

rope_pass rope_pass_of(const gd_call *call, bool backward)
{
    const gd_tensor *x = call->input[0];
    const bool qkv = call->outputs == 3;
    rope_pass pass = {.batches = gd_tensor_dim(x, 0),
                      .positions = gd_tensor_dim(x, 1),
                      .heads = gd_tensor_dim(x, 2),
                      .pairs = gd_tensor_dim(x, 3) / 2,
                      .parts = call->outputs,
                      .backward = backward,
                      .angles = qkv ? ((const gd_rope_qkv_args *)call->args)->rope
                                    : *(const gd_rope_args *)call->args};
    int64_t first = 0;
    for (int i = 0; i < pass.parts; i++) {
        pass.part[i] = part_of(call, i, first, backward);
        first += pass.part[i].heads;
    }
    return pass;
}
