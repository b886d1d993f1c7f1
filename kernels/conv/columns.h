/* columns.h - the columns of windows of an image: unfold writes them or adds to them, fold adds
 * them to the image, and a depthwise convolution has one of its tensors in their place. */
#ifndef GRADUS_CONV_COLUMNS_H
#define GRADUS_CONV_COLUMNS_H

#include "conv/conv.h"
#include "kernel_cpu.h"
#include "vector.h"

enum { SHARE = 2048 }; /* windows of the channels that are unfolded or folded together */

/* What becomes of a number of the columns and its element of the image. */
typedef enum pairing {
    COPY,         /* column = element, or 0 outside of the image */
    ADD_TO_ROW,   /* column += weight element */
    ADD_TO_IMAGE, /* element += weight column */
    MULTIPLY      /* sum += column element */
} pairing;

/* The columns of windows p0 to p1 of an image: row k = (c KH + i) KW + j, column p = oh OW + ow. */
typedef struct columns {
    const conv_sizes *sizes;
    REAL *image;              /* [channels, H, W, run] */
    REAL *data;               /* [channels KH KW, p1 - p0, run] */
    int64_t p0, p1, run;      /* windows; numbers of an element */
    int64_t channels, shares; /* of the image; a share is unfolded or folded at once */
    pairing pairing;
    bool clear; /* the image, first */
} columns;

/* Windows that are a rectangle: whole rows of windows, or some of one row. */
typedef struct rectangle {
    int64_t oh, ow, rows, n;
} rectangle;

/* Those from window p on. */
static inline rectangle rectangle_at(const columns *w, int64_t p)
{
    const int64_t OW = w->sizes->OW, oh = p / OW, ow = p - oh * OW, left = w->p1 - p;
    if (ow == 0 && left >= OW) return (rectangle){oh, 0, left / OW, OW};
    return (rectangle){oh, ow, 1, gd_min64(OW - ow, left)};
}

/* Element (i, j) of a rectangle of windows: `rows` rows of `runs` runs of n numbers that lie in the
 * image. Number k of the first is data[row + k], and plane[image + k step] in the image. */
typedef struct part {
    int64_t all, rows, runs, n, step; /* all: outside of the image, too */
    int64_t row, next;                /* the first run; from one row to the next */
    int64_t image, image_next, image_run;
    const REAL *end; /* of the image */
} part;

static inline part part_of(const columns *w, rectangle r, int64_t i, int64_t j)
{
    const conv_sizes *s = w->sizes;
    const int64_t run = w->run, down = s->stride[0], across = s->stride[1];
    const int64_t h = r.oh * down + i * s->dilation[0] - s->padding[0],
                  v = r.ow * across + j * s->dilation[1] - s->padding[1];
    const int64_t top = gd_windows_within(r.rows, down, -h),
                  first = gd_windows_within(r.n, across, -v),
                  count = gd_windows_within(r.n, across, s->W - v) - first;
    const bool together = run == 1 || across == 1; /* else numbers of joined images are a run */
    return (part){.all = r.rows * r.n * run,
                  .rows = count > 0 ? gd_windows_within(r.rows, down, s->H - h) - top : 0,
                  .runs = together ? 1 : count,
                  .n = together ? count * run : run,
                  .step = run == 1 ? across : 1,
                  .row = (top * r.n + first) * run,
                  .next = r.n * run,
                  .image = ((h + top * down) * s->W + v + first * across) * run,
                  .image_next = down * s->W * run,
                  .image_run = across * run,
                  .end = w->image + w->channels * s->H * s->W * run};
}

/* to[k] = from[k step]: by whole vectors, of which the last has some numbers again, where none
 * reads beyond the end of the image. */
static inline void copy_numbers(REAL *to, const REAL *from, int64_t step, int64_t n,
                                const REAL *end)
{
    const int64_t last = n - LANES;
    if (step <= 2 && last >= 0 && end - from >= n * step) {
        for (int64_t k = 0; k < last; k += LANES)
            vec_store(to + k, vec_load_step(from + k * step, step));
        vec_store(to + last, vec_load_step(from + last * step, step));
    } else if (step == 2) {
        GD_EACH(k, n) to[k] = from[2 * k];
    } else {
        for (int64_t k = 0; k < n; k++) to[k] = from[k * step];
    }
}

/* to[k to_step] += weight from[k from_step] */
static inline void add_numbers(REAL *to, int64_t to_step, const REAL *from, int64_t from_step,
                               int64_t n, REAL weight)
{
    if (to_step == 1 && from_step == 1) {
        GD_EACH(k, n) to[k] += weight * from[k];
    } else {
        for (int64_t k = 0; k < n; k++) to[k * to_step] += weight * from[k * from_step];
    }
}

static inline REAL product_of_numbers(const REAL *row, const REAL *image, int64_t step, int64_t n)
{
    REAL sum = 0;
    if (step == 1) {
        GD_PRAGMA(omp simd reduction(+ : sum))
        for (int64_t k = 0; k < n; k++) sum += row[k] * image[k];
    } else {
        for (int64_t k = 0; k < n; k++) sum += row[k] * image[k * step];
    }
    return sum;
}

/* Of the part whose row begins at `data`, and whose channel at `plane`. Returns the sum. */
static inline __attribute__((always_inline)) double pair_runs(const part *p, pairing pairing,
                                                              REAL *data, REAL *plane, REAL weight)
{
    const int64_t n = p->n, step = p->step;
    double sum = 0;
    for (int64_t r = 0; r < p->rows; r++) {
        REAL *row = data + p->row + r * p->next, *image = plane + p->image + r * p->image_next;
        for (int64_t q = 0; q < p->runs; q++, row += n, image += p->image_run) {
            if (pairing == COPY) copy_numbers(row, image, step, n, p->end);
            if (pairing == ADD_TO_ROW) add_numbers(row, 1, image, step, n, weight);
            if (pairing == ADD_TO_IMAGE) add_numbers(image, step, row, 1, n, weight);
            if (pairing == MULTIPLY) sum += (double)product_of_numbers(row, image, step, n);
        }
    }
    return sum;
}

static double pair(const part *p, pairing pairing, REAL *data, REAL *plane, REAL weight)
{
    if (pairing == COPY && p->rows * p->runs * p->n < p->all)
        memset(data, 0, (size_t)p->all * sizeof *data);
    switch (pairing) {
    case COPY:
        return pair_runs(p, COPY, data, plane, weight);
    case ADD_TO_ROW:
        return pair_runs(p, ADD_TO_ROW, data, plane, weight);
    case ADD_TO_IMAGE:
        return pair_runs(p, ADD_TO_IMAGE, data, plane, weight);
    default:
        return pair_runs(p, MULTIPLY, data, plane, weight);
    }
}

/* So many that the image's part of a share stays in the first level cache. */
static inline int64_t shares_of(int64_t channels, int64_t windows)
{
    return gd_divide_up(channels, gd_max64(1, SHARE / gd_max64(1, windows)));
}

/* Share t of the channels. */
static void pair_share(const void *work, int64_t t)
{
    const columns *w = work;
    const conv_sizes *s = w->sizes;
    const int64_t c0 = w->channels * t / w->shares, c1 = w->channels * (t + 1) / w->shares;
    const int64_t area = s->KH * s->KW, row = (w->p1 - w->p0) * w->run,
                  plane = s->H * s->W * w->run;
    if (w->clear && (c1 - c0) * plane > 0)
        memset(w->image + c0 * plane, 0, (size_t)((c1 - c0) * plane) * sizeof(REAL));
    rectangle r;
    for (int64_t p = w->p0; p < w->p1; p += r.rows * r.n) {
        r = rectangle_at(w, p);
        for (int64_t k = 0; k < area; k++) {
            const part own = part_of(w, r, k / s->KW, k % s->KW);
            REAL *data = w->data + k * row + (p - w->p0) * w->run;
            for (int64_t c = c0; c < c1; c++)
                pair(&own, w->pairing, data + c * area * row, w->image + c * plane, 1);
        }
    }
}

#endif
