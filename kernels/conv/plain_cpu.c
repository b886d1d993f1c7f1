/* plain_cpu.c - unfold, fold, conv2d and conv_transpose2d as README.md derives them: six loops over
 * the elements of windows, and one over the outputs that each meets. It has the interface of
 * conv_cpu.c's kernels, which tests compare with it.
 *
 * m is an element of the image, k one of the weight, p one of the tensor on the other side. */
#include "conv/conv.h"

/* What a call reads and adds to; NULL for what it does not. */
typedef struct numbers {
    const REAL *x, *w, *dy;
    REAL *y, *dx, *dw;
} numbers;

typedef void term(const numbers *n, int64_t m, int64_t k, int64_t p);

static void unfold(const numbers *n, int64_t m, int64_t k, int64_t p)
{
    (void)k;
    if (n->y) n->y[p] += n->x[m];
    if (n->dx) n->dx[m] += n->dy[p]; /* [unfold] */
}

static void fold(const numbers *n, int64_t m, int64_t k, int64_t p)
{
    (void)k;
    if (n->y) n->y[m] += n->x[p];
    if (n->dx) n->dx[p] += n->dy[m]; /* [fold] */
}

static void conv2d(const numbers *n, int64_t m, int64_t k, int64_t p)
{
    if (n->y) n->y[p] += n->w[k] * n->x[m];
    GD_STEP("U", n->x[m]);
    GD_STEP("dU", n->w[k] * n->dy[p]);
    if (n->dx) n->dx[m] += n->w[k] * n->dy[p]; /* [conv2d dx] */
    if (n->dw) n->dw[k] += n->dy[p] * n->x[m]; /* [conv2d dw] */
}

static void conv_transpose2d(const numbers *n, int64_t m, int64_t k, int64_t p)
{
    if (n->y) n->y[m] += n->w[k] * n->x[p];
    GD_STEP("dU", n->dy[m]);
    if (n->dx) n->dx[p] += n->w[k] * n->dy[m]; /* [conv_transpose2d dx] */
    if (n->dw) n->dw[k] += n->x[p] * n->dy[m]; /* [conv_transpose2d dw] */
}

/* The element of an axis of the image, of `size`, that window p has at k; -1 outside of the image. */
static int64_t element(const conv_sizes *s, int axis, int64_t p, int64_t k, int64_t size)
{
    const int64_t at = p * s->stride[axis] + k * s->dilation[axis] - s->padding[axis];
    return at >= 0 && at < size ? at : -1;
}

/* Calls f for each element of each window of each channel, and for each output of the channel's group;
 * without a weight, for the row of the columns that has this element. */
static void each_term(const conv_sizes *s, bool weight, term *f, const numbers *n)
{
    const int64_t C = s->C / s->groups, O = s->O / s->groups, KK = s->KH * s->KW;
    const int64_t P = conv_positions(s), rows = weight ? s->O : s->C * KK;
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t c = 0; c < s->C; c++)
            for (int64_t i = 0; i < s->KH; i++)
                for (int64_t j = 0; j < s->KW; j++)
                    for (int64_t oh = 0; oh < s->OH; oh++)
                        for (int64_t ow = 0; ow < s->OW; ow++) {
                            const int64_t h = element(s, 0, oh, i, s->H);
                            const int64_t w = element(s, 1, ow, j, s->W);
                            if (h < 0 || w < 0) continue;
                            const int64_t ij = i * s->KW + j;
                            const int64_t first = weight ? c / C * O : c * KK + ij;
                            for (int64_t o = first; o < first + (weight ? O : 1); o++)
                                f(n, ((b * s->C + c) * s->H + h) * s->W + w,
                                  (o * C + c % C) * KK + ij, (b * rows + o) * P + oh * s->OW + ow);
                        }
}

/* to [.., channels, plane] = bias or 0, unless it is added to. */
static REAL *begin(gd_tensor *to, const REAL *bias, bool add)
{
    REAL *y = gd_data(to);
    const int64_t plane = bias ? gd_tensor_dim(to, 2) * gd_tensor_dim(to, 3) : 1;
    for (int64_t e = 0; to && !add && e < gd_tensor_count(to); e++)
        y[e] = bias ? bias[e / plane % gd_tensor_dim(to, 1)] : 0;
    return y;
}

static gd_status conv_plain_forward(const gd_call *call, const conv_sizes *s, term *f)
{
    const bool weight = call->op->inputs > 1;
    const numbers n = {.x = gd_data(call->input[0]),
                       .w = weight ? gd_data(call->input[1]) : NULL,
                       .y = begin(call->output[0], weight ? gd_data(call->input[2]) : NULL, false)};
    each_term(s, weight, f, &n);
    return GD_OK;
}

static gd_status conv_plain_backward(const gd_call *call, const conv_sizes *s, term *f)
{
    const bool weight = call->op->inputs > 1;
    const gd_tensor *y = call->doutput[0];
    const numbers n = {.x = gd_data(call->input[0]),
                       .w = weight ? gd_data(call->input[1]) : NULL,
                       .dy = gd_data(y),
                       .dx = begin(call->dinput[0], NULL, call->accumulate[0]),
                       .dw = weight ? begin(call->dinput[1], NULL, call->accumulate[1]) : NULL};
    each_term(s, weight, f, &n);
    REAL *db = weight ? begin(call->dinput[2], NULL, call->accumulate[2]) : NULL;
    const int64_t plane = db ? gd_tensor_dim(y, 2) * gd_tensor_dim(y, 3) : 1;
    for (int64_t e = 0; db && e < gd_tensor_count(y); e++)
        db[e / plane % gd_tensor_dim(y, 1)] += n.dy[e]; /* [conv2d db] [conv_transpose2d db] */
    return GD_OK;
}

/* The kernels of an op, with the sizes of its windows. */
#define PLAIN(op, sizes)                                          \
    gd_status GD_REAL_NAME(op##_plain_forward)(const gd_call *c)  \
    {                                                             \
        const conv_sizes s = sizes;                               \
        return conv_plain_forward(c, &s, op);                     \
    }                                                             \
    gd_status GD_REAL_NAME(op##_plain_backward)(const gd_call *c) \
    {                                                             \
        const conv_sizes s = sizes;                               \
        return conv_plain_backward(c, &s, op);                    \
    }

PLAIN(unfold, conv_sizes_of_columns(c->args, c->input[0]))
PLAIN(fold, conv_sizes_of_columns(c->args, c->output[0]))
PLAIN(conv2d, conv_sizes_of(c, c->input[0], c->output[0]))
PLAIN(conv_transpose2d, conv_sizes_of(c, c->output[0], c->input[0]))
