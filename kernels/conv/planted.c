/* planted.c - the backwards of unfold, fold, conv2d and conv_transpose2d with their classic
 * mistakes. */
#include "planted.h"

#include "conv/conv.h"

enum {
    CONV_RIGHT,
    CONV_OVERWRITES, /* the last window of an element counts, instead of the sum */
    CONV_AVERAGE,    /* the mean over windows instead of the sum */
    CONV_FLIPPED,    /* the weight turned by 180 degrees once too often */
    CONV_NO_STRIDE,  /* as if windows were next to each other */
    CONV_NO_PADDING, /* as if the image began at its first window */
    CONV_GROUP,      /* every group has the weight of the first */
    CONV_ONE_IMAGE,  /* dw, db: of the last image alone */
    CONV_TRANSPOSED  /* dw with its rows and columns exchanged */
};

/* A place in the image, in the weight and on the other side, of each term of the convolution. */
typedef struct term {
    int64_t b, image, weight, other;
} term;

typedef void term_function(planted_math *m, const conv_sizes *s, term t);

static void each_term(planted_math *m, const conv_sizes *s, term_function *f)
{
    const int64_t C = s->C / s->groups, O = s->O / s->groups, P = s->OH * s->OW;
    const int64_t K = C * s->KH * s->KW;
    const bool apart = m->variant != CONV_NO_STRIDE, padded = m->variant != CONV_NO_PADDING;
    for (int64_t i = 0; i < s->B * s->O * P * K; i++) {
        const int64_t k = i % K, p = i / K % P, o = i / K / P % s->O, b = i / K / P / s->O;
        const int64_t c = o / O * C + k / (s->KH * s->KW);
        const int64_t down = k / s->KW % s->KH, across = k % s->KW;
        const int64_t h = p / s->OW * (apart ? s->stride[0] : 1) + down * s->dilation[0] -
                          (padded ? s->padding[0] : 0);
        const int64_t w = p % s->OW * (apart ? s->stride[1] : 1) + across * s->dilation[1] -
                          (padded ? s->padding[1] : 0);
        if (h < 0 || h >= s->H || w < 0 || w >= s->W) continue;
        int64_t row = m->variant == CONV_GROUP ? o % O : o, at = k;
        if (m->variant == CONV_FLIPPED)
            at = k / (s->KH * s->KW) * (s->KH * s->KW) + s->KH * s->KW - 1 - k % (s->KH * s->KW);
        f(m, s,
          (term){b, ((b * s->C + c) * s->H + h) * s->W + w, row * K + at, (b * s->O + o) * P + p});
    }
}

static void add_bias(planted_math *m, int64_t size)
{
    const int64_t O = gd_tensor_dim(m->call->output[0], 1), n = gd_tensor_count(m->call->output[0]);
    if (!m->call->input[2]) return;
    for (int64_t i = m->variant == CONV_ONE_IMAGE ? n - O * size : 0; i < n; i++)
        m->g[2][i / size % O] += m->dy[0][i];
}

static int64_t weight_place(const planted_math *m, const conv_sizes *s, int64_t at)
{
    if (m->variant != CONV_TRANSPOSED) return at;
    const int64_t size = s->KH * s->KW, k = at % size;
    return at - k + k % s->KW * s->KH + k / s->KW;
}

static void conv2d_term(planted_math *m, const conv_sizes *s, term t)
{
    m->g[0][t.image] += m->x[1][t.weight] * m->dy[0][t.other];
    if (m->variant == CONV_ONE_IMAGE && t.b + 1 < s->B) return;
    m->g[1][weight_place(m, s, t.weight)] += m->x[0][t.image] * m->dy[0][t.other];
}

static void conv2d(planted_math *m)
{
    const conv_sizes s = conv_sizes_of(m->call, m->call->input[0], m->call->output[0]);
    each_term(m, &s, conv2d_term);
    add_bias(m, s.OH * s.OW);
}

static void transpose_term(planted_math *m, const conv_sizes *s, term t)
{
    m->g[0][t.other] += m->x[1][t.weight] * m->dy[0][t.image];
    if (m->variant == CONV_ONE_IMAGE && t.b + 1 < s->B) return;
    m->g[1][weight_place(m, s, t.weight)] += m->x[0][t.other] * m->dy[0][t.image];
}

static void conv_transpose2d(planted_math *m)
{
    const conv_sizes s = conv_sizes_of(m->call, m->call->output[0], m->call->input[0]);
    each_term(m, &s, transpose_term);
    add_bias(m, s.H * s.W);
}

/* The place in the columns of a term of a convolution to one output, whose weight is all ones. */
static int64_t column_of(const conv_sizes *s, term t)
{
    const int64_t P = s->OH * s->OW;
    return (t.b * s->C * s->KH * s->KW + t.weight) * P + t.other % P;
}

static void unfold_term(planted_math *m, const conv_sizes *s, term t)
{
    double *to = &m->g[0][t.image];
    *to = (m->variant == CONV_OVERWRITES ? 0 : *to) + m->dy[0][column_of(s, t)];
}

static void unfold(planted_math *m)
{
    conv_sizes s = conv_sizes_of_columns(m->call->args, m->call->input[0]);
    s.O = 1;
    each_term(m, &s, unfold_term);
}

static void fold_term(planted_math *m, const conv_sizes *s, term t)
{
    m->g[0][column_of(s, t)] = m->dy[0][t.image] / (m->variant == CONV_AVERAGE ? 4 : 1);
}

static void fold(planted_math *m)
{
    conv_sizes s = conv_sizes_of_columns(m->call->args, m->call->output[0]);
    s.O = 1;
    each_term(m, &s, fold_term);
}

#define CONV(op, check, number, what, words)                             \
    {                                                                    \
#op, check, what, words, .variant = CONV_##number, .formula = op \
    }

const planted_bug planted_conv[] = {
    CONV(unfold, "padded", RIGHT, "nothing", NULL),
    CONV(unfold, "two_by_two", OVERWRITES, "windows overwrite each other",
         "only the first counts: overwritten"),
    CONV(unfold, "strided", NO_STRIDE, "windows next to each other",
         "x[0, 0, 0, 3] does not use dy[0, 0, 1]"),
    CONV(unfold, "padded", NO_PADDING, "the padding forgotten", NULL),
    CONV(fold, "padded", RIGHT, "nothing", NULL),
    CONV(fold, "two_by_two", AVERAGE, "the mean over windows", "a constant factor 1/4"),
    CONV(fold, "strided", NO_STRIDE, "windows next to each other",
         "x[0, 0, 1] does not use dy[0, 0, 0, 3]"),
    CONV(fold, "padded", NO_PADDING, "the padding forgotten",
         "x[0, 0, 23] does not use dy[0, 0, 1, 4]"),
    CONV(conv2d, "all_at_once", RIGHT, "nothing", NULL),
    CONV(conv2d, "k2x2", FLIPPED, "dx without turning the weight",
         "the right values in the wrong places"),
    CONV(conv2d, "strided", NO_STRIDE, "windows next to each other",
         "x[0, 0, 0, 3] does not use dy[0, 0, 0, 1]"),
    CONV(conv2d, "padded", NO_PADDING, "the padding forgotten",
         "x[0, 0, 0, 0] does not use dy[0, 0, 0, 1]"),
    CONV(conv2d, "groups", GROUP, "the weight of the first group",
         "weight[3, 0, 0, 0] does not use dy[0, 3, 1, 1]"),
    CONV(conv2d, "k3x2", ONE_IMAGE, "dw and db of the last image alone",
         "dy[0, :, :, :] is left out"),
    CONV(conv2d, "k2x2", TRANSPOSED, "dw transposed", "in the wrong places: transposed"),
    CONV(conv_transpose2d, "groups", RIGHT, "nothing", NULL),
    CONV(conv_transpose2d, "k2x2", FLIPPED, "dx with the weight turned",
         "the right values in the wrong places"),
    CONV(conv_transpose2d, "strided", NO_STRIDE, "windows next to each other",
         "x[0, 0, 0, 1] does not use dy[0, 0, 0, 3]"),
    CONV(conv_transpose2d, "k3x2", ONE_IMAGE, "dw and db of the last image alone",
         "dy[0, :, :, :] is left out"),
    CONV(conv_transpose2d, "k2x2", TRANSPOSED, "dw transposed", "in the wrong places: transposed"),
    {0},
};
