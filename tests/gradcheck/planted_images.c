/* planted_images.c - wrong backwards of the ops on planes: pooling and padding. */
#include "planted.h"
#include "pad/pad.h"
#include "pool/pool.h"

#include <math.h>

/* ---- max_pool2d and avg_pool2d ------------------------------------------------------------ */

enum {
    POOL_RIGHT,
    POOL_OVERWRITES, /* where windows overlap, the last one counts */
    POOL_ALL,        /* the maximum's gradient goes to the whole window */
    POOL_INSIDE,     /* the mean's divisor is without the padding */
    POOL_SUM,        /* the mean's divisor is missing */
    POOL_STRIDE      /* windows one place apart */
};

/* The places of a window that are in x. */
typedef struct window {
    int64_t rows[2], cols[2]; /* first and end */
} window;

static window window_of(const gd_pool_planes *p, int64_t i, int64_t j, int variant)
{
    int64_t span[2][2];
    for (int axis = 0; axis < 2; axis++) {
        const int64_t stride = variant == POOL_STRIDE ? 1 : p->args.stride[axis];
        const int64_t first = (axis ? j : i) * stride - p->args.padding[axis];
        const int64_t end = first + p->args.kernel[axis];
        span[axis][0] = first > 0 ? first : 0;
        span[axis][1] = end < p->size[axis] ? end : p->size[axis];
    }
    return (window){{span[0][0], span[0][1]}, {span[1][0], span[1][1]}};
}

/* What the window's dy passes on to x [a, b], `most` being its maximum. */
static double passed_on(const planted_math *m, const gd_pool_planes *p, const window *w, bool max,
                        double x, double most)
{
    const int64_t size = p->args.kernel[0] * p->args.kernel[1];
    if (max) return x == most || m->variant == POOL_ALL;
    if (m->variant == POOL_SUM) return 1;
    if (m->variant == POOL_INSIDE)
        return 1 / (double)((w->rows[1] - w->rows[0]) * (w->cols[1] - w->cols[0]));
    return 1 / (double)size;
}

static void pool(const planted_math *m, bool max)
{
    const gd_pool_planes p = gd_pool_planes_of(m->call, m->call->input[0], m->call->output[0]);
    int64_t e = 0;
    for (int64_t plane = 0; plane < p.planes; plane++) {
        const double *x = m->x[0] + plane * p.size[0] * p.size[1];
        double *g = m->g[0] + plane * p.size[0] * p.size[1];
        for (int64_t i = 0; i < p.pooled[0]; i++) {
            for (int64_t j = 0; j < p.pooled[1]; j++, e++) {
                const window w = window_of(&p, i, j, m->variant);
                for (int64_t a = w.rows[0]; a < w.rows[1]; a++) {
                    for (int64_t b = w.cols[0]; b < w.cols[1]; b++) {
                        const int64_t at = a * p.size[1] + b;
                        const double part = passed_on(m, &p, &w, max, x[at], m->y[0][e]);
                        if (m->variant == POOL_OVERWRITES && part != 0) g[at] = 0;
                        g[at] += m->dy[0][e] * part;
                    }
                }
            }
        }
    }
}

static void max_pool(planted_math *m)
{
    pool(m, true);
}

static void avg_pool(planted_math *m)
{
    pool(m, false);
}

/* ---- pad ---------------------------------------------------------------------------------- */

enum {
    PAD_RIGHT,
    PAD_CROP,      /* what the frame shows is forgotten */
    PAD_OVERWRITES /* of the places that show an element the last one counts */
};

static void pad(planted_math *m)
{
    const gd_pad_planes p = gd_pad_planes_of(m->call, m->call->input[0]);
    const gd_pad_axis *rows = &p.axis[PAD_ROWS], *cols = &p.axis[PAD_COLS];
    const int64_t H = gd_pad_size(rows), W = gd_pad_size(cols);
    for (int64_t e = 0; e < p.planes * H * W; e++) {
        const int64_t i = e / W % H, j = e % W;
        const int64_t a = gd_pad_source(rows, i), b = gd_pad_source(cols, j);
        const bool framed = a != i - rows->before || b != j - cols->before;
        if (a < 0 || b < 0 || (framed && m->variant == PAD_CROP)) continue;
        double *g = &m->g[0][(e / W / H * rows->n + a) * cols->n + b];
        *g = (m->variant == PAD_OVERWRITES ? 0 : *g) + m->dy[0][e];
    }
}

/* ---- The list ----------------------------------------------------------------------------- */

#define PAD(check, number, what, finding)                                    \
    {                                                                        \
        "pad", check, what, finding, .variant = PAD_##number, .formula = pad \
    }
#define POOL(op, number, what, finding)                                        \
    {                                                                          \
#op "_pool2d", "overlapping", what, finding, .variant = POOL_##number, \
                                                     .formula = op##_pool      \
    }

const planted_bug planted_images[] = {
    POOL(max, RIGHT, "nothing", NULL),
    POOL(avg, RIGHT, "nothing", NULL),
    POOL(max, OVERWRITES, "of overlapping windows the last one counts",
         "only the last counts: overwritten"),
    POOL(max, ALL, "the whole window gets the gradient",
         "uses dy[0, 0, 0], though that y does not depend on it"),
    POOL(avg, OVERWRITES, "of overlapping windows the last one counts",
         "only the last counts: overwritten"),
    POOL(avg, INSIDE, "divided by the places inside", NULL),
    POOL(avg, SUM, "the sum's gradient", "a constant factor 9"),
    POOL(avg, STRIDE, "windows one place apart", "x[0, 0, 3] does not use dy[0, 0, 1]"),
    PAD("constant", RIGHT, "nothing", NULL),
    PAD("reflect", RIGHT, "nothing", NULL),
    PAD("replicate", RIGHT, "nothing", NULL),
    PAD("reflect", CROP, "the frame is forgotten", "does not use dy"),
    PAD("replicate", OVERWRITES, "of the places that show an element the last one counts",
        "only the last counts: overwritten"),
    {0},
};
