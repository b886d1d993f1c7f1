/* plain_cpu.c - unfold, fold, conv2d and conv_transpose2d as README.md derives them, for tests. */
#include "conv/conv.h"
#include "kernel_cpu.h"

/* The element, of `size` along an axis, that window p has at k; -1 outside of the image. */
static int64_t element(const conv_sizes *s, int axis, int64_t p, int64_t k, int64_t size)
{
    const int64_t at = p * s->stride[axis] + k * s->dilation[axis] - s->padding[axis];
    return at >= 0 && at < size ? at : -1;
}

/* Forward and, where there is a dy, backward. x is the image, with its elements m, and y the other
 * side, with p; transposed, the reverse. Without a weight, columns have a row for each c, i, j. */
static gd_status plain(const gd_call *call, const conv_sizes s, bool transposed)
{
    const bool weighted = call->inputs > 1;
    const REAL *x = gd_data(call->input[0]), *dy = gd_dy(call, 0);
    const REAL *weight = weighted ? gd_data(call->input[1]) : NULL;
    const REAL *bias = weighted ? gd_data(call->input[2]) : NULL;
    REAL *y = dy ? NULL : gd_data(call->output[0]), *dx = gd_dx_sum(call, 0);
    REAL *dw = weighted ? gd_dx_sum(call, 1) : NULL, *db = weighted ? gd_dx_sum(call, 2) : NULL;
    const gd_tensor *of_y = dy ? call->doutput[0] : call->output[0];
    const int64_t plane = weighted ? gd_tensor_dim(of_y, 2) * gd_tensor_dim(of_y, 3) : 1;
    for (int64_t e = 0; e < gd_tensor_count(of_y); e++) {
        const int64_t o = e / plane % gd_tensor_dim(of_y, 1);
        if (y) y[e] = bias ? bias[o] : 0;
        if (db) db[o] += dy[e]; /* [conv2d db] [conv_transpose2d db] */
    }
    const int64_t C = s.C / s.groups, KK = s.KH * s.KW, P = conv_positions(&s);
    const int64_t O = weighted ? s.O / s.groups : 1, rows = weighted ? s.O : s.C * KK;
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t c = 0; c < s.C; c++)
            for (int64_t ij = 0; ij < KK; ij++)
                for (int64_t at = 0; at < P; at++) {
                    const int64_t in_h = element(&s, 0, at / s.OW, ij / s.KW, s.H);
                    const int64_t in_w = element(&s, 1, at % s.OW, ij % s.KW, s.W);
                    for (int64_t o = 0; o < O && in_h >= 0 && in_w >= 0; o++) {
                        const int64_t row = weighted ? c / C * O + o : c * KK + ij;
                        const int64_t m = ((b * s.C + c) * s.H + in_h) * s.W + in_w;
                        const int64_t k = (row * C + c % C) * KK + ij,
                                      p = (b * rows + row) * P + at;
                        const int64_t from = transposed ? p : m, to = transposed ? m : p;
                        const REAL w = weighted ? weight[k] : 1;
                        if (weighted && !transposed) GD_STEP("U", x[from]);
                        if (weighted) GD_STEP("dU", transposed ? dy[to] : w * dy[to]);
                        if (y) y[to] += w * x[from];
                        /* [unfold] [fold] [conv2d dx] [conv_transpose2d dx] */
                        if (dx) dx[from] += w * dy[to];
                        if (dw) dw[k] += x[from] * dy[to]; /* [conv2d dw] [conv_transpose2d dw] */
                    }
                }
    return GD_OK;
}

#define PLAIN(op, sizes, transposed) \
    GD_KERNELS_OF_REAL(op##_plain, plain(call, sizes, transposed), plain(call, sizes, transposed))
PLAIN(unfold, conv_sizes_of_columns(call->args, call->input[0]), false)
PLAIN(fold, conv_sizes_of_columns(call->args, call->output[0]), true)
PLAIN(conv2d, conv_sizes_of(call, call->input[0], call->output[0]), false)
PLAIN(conv_transpose2d, conv_sizes_of(call, call->output[0], call->input[0]), true)
