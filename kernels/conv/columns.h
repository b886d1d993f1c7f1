/* columns.h - the columns of windows of an image, row by row: unfold writes them or adds to them, fold
 * adds them to the image, and a depthwise convolution has one of its tensors in their place. */
#ifndef GRADUS_CONV_COLUMNS_H
#define GRADUS_CONV_COLUMNS_H

#include "conv/conv.h"
#include "loops.h"
#include "vector.h"

enum { SHARE = 2048 }; /* windows of the channels that are unfolded or folded together */

/* The columns of windows p0 to p1 of an image: row k = (c KH + i) KW + j, column p = oh OW + ow. */
typedef struct columns {
    const conv_sizes *sizes;
    REAL *image;              /* [channels, H, W, run] */
    REAL *data;               /* [channels KH KW, p1 - p0, run] */
    int64_t row;              /* numbers from one row of data to the next; 0: there is one */
    int64_t p0, p1, run;      /* windows; numbers of an element */
    int64_t channels, shares; /* of the image; in so many shares they are unfolded or folded */
    bool add;                 /* to what is there */
    REAL weight;              /* by which add_to_row and add_to_image multiply */
    double *sum;              /* to which add_product adds */
} columns;

/* A part of a row of the columns: `rows` rows of `width` numbers, one after the other. data[k] is
 * image[k * step] for a <= k < b; other k are padding. Nothing is read or written beyond these ends; what
 * follows the part before data_end is written later. */
typedef struct part {
    REAL *data, *image;
    int64_t rows, width, next; /* from one row of the image to the next */
    int64_t a, b, step;
    const REAL *data_end, *image_begin, *image_end;
    REAL weight;
    double *sum;
} part;

typedef void part_function(const part *p);

/* Zeros in data[k] to data[end - 1], by whole vectors where these may be written. */
static inline void zero(REAL *data, int64_t k, int64_t end, const REAL *data_end)
{
    for (; k < end && data_end - data - k >= LANES; k += LANES) vec_store(data + k, (vec){0});
    for (; k < end; k++) data[k] = 0;
}

/* The lane of number n of a vector, or the first or the end. */
static inline lane_number lane_of(int64_t n)
{
    return (lane_number)gd_min64(gd_max64(n, 0), LANES);
}

/* Whether whole vectors, of a step that they allow, can be read and written. */
static inline bool vectors_fit(const part *p)
{
    const int64_t whole = gd_round_up(p->width, LANES), last = p->rows - 1;
    return p->step <= 2 && p->a < p->b && p->image >= p->image_begin &&
           p->image_end - p->image >= last * p->next + whole * p->step &&
           p->data_end - p->data >= last * p->width + whole;
}

/* By whole vectors, from the beginning of a row, which is aligned more often than a. */
static inline __attribute__((always_inline)) void copy_vectors(const part *p, int64_t step)
{
    const lanes lane = lane_numbers();
    const int64_t a = p->a, b = p->b, width = p->width, next = p->next;
    REAL *data = p->data;
    const REAL *image = p->image;
    for (int64_t r = p->rows; r > 0; r--, data += width, image += next) {
        for (int64_t k = 0; k < width; k += LANES) {
            vec x = vec_load_step(image + k * step, step);
            if (k < a || k + LANES > b)
                x = vec_choose((lane >= lane_of(a - k)) & (lane < lane_of(b - k)), x, (vec){0});
            vec_store(data + k, x);
        }
    }
}

static inline __attribute__((always_inline)) bool copied_by_vectors(const part *p)
{
    if (!vectors_fit(p)) return false;
    p->step == 1 ? copy_vectors(p, 1) : copy_vectors(p, 2);
    return true;
}

static inline void copy_row(const part *p)
{
    if (copied_by_vectors(p)) return;
    zero(p->data, 0, p->a, p->data_end);
    for (int64_t k = p->a; k < p->b; k++) p->data[k] = p->image[k * p->step];
    zero(p->data, p->b, p->width, p->data_end);
}

static __attribute__((noinline)) void copy_rows(const part *p)
{
    if (copied_by_vectors(p)) return;
    part own = *p;
    own.rows = 1;
    for (int64_t r = 0; r < p->rows; r++, own.data += p->width, own.image += p->next)
        copy_row(&own);
}

/* The part is the image's numbers, or 0 outside of it. */
static inline void copy_to_row(const part *p)
{
    p->rows == 1 ? copy_row(p) : copy_rows(p);
}

/* to[k to_step] += weight from[k from_step] */
static inline __attribute__((always_inline)) void
add_numbers(REAL *to, int64_t to_step, const REAL *from, int64_t from_step, int64_t n, REAL weight)
{
    if (to_step == 1 && from_step == 1) {
        GD_EACH(k, n) to[k] += weight * from[k];
    } else {
        for (int64_t k = 0; k < n; k++) to[k * to_step] += weight * from[k * from_step];
    }
}

/* part += weight image */
static inline __attribute__((always_inline)) void add_to_row(const part *p)
{
    const int64_t n = p->b - p->a;
    REAL *data = p->data + p->a, *image = p->image + p->a * p->step;
    for (int64_t r = 0; r < p->rows; r++, data += p->width, image += p->next)
        add_numbers(data, 1, image, p->step, n, p->weight);
}

/* image += weight part */
static inline __attribute__((always_inline)) void add_to_image(const part *p)
{
    const int64_t n = p->b - p->a;
    REAL *data = p->data + p->a, *image = p->image + p->a * p->step;
    for (int64_t r = 0; r < p->rows; r++, data += p->width, image += p->next)
        add_numbers(image, p->step, data, 1, n, p->weight);
}

/* sum += part image */
static inline __attribute__((always_inline)) void add_product(const part *p)
{
    const int64_t n = p->b - p->a, step = p->step;
    const REAL *data = p->data + p->a, *image = p->image + p->a * step;
    for (int64_t r = 0; r < p->rows; r++, data += p->width, image += p->next) {
        REAL dot = 0;
        if (step == 1) {
            GD_PRAGMA(omp simd reduction(+ : dot))
            for (int64_t k = 0; k < n; k++) dot += data[k] * image[k];
        } else {
            for (int64_t k = 0; k < n; k++) dot += data[k] * image[k * step];
        }
        *p->sum += (double)dot;
    }
}

/* Calls f for the runs of a part with a step of more than 1. */
static inline __attribute__((always_inline)) void each_run(const part *p, int64_t run,
                                                           part_function *f)
{
    part own = *p;
    own.rows = 1, own.step = 1, own.width = run, own.a = 0;
    for (int64_t r = 0; r < p->rows; r++) {
        own.image = p->image + r * p->next;
        for (int64_t k = 0; k < p->width; k += run, own.data += run, own.image += run * p->step) {
            own.b = k >= p->a && k < p->b ? run : 0;
            f(&own);
        }
    }
}

/* Element (i, j) of the kernel: for window (0, 0) it lies at row `above` and column `left` of the image. It is
 * inside of the image for rows top to bottom of windows, and windows first to end of a row. */
typedef struct tap {
    int64_t i, j, above, left, top, bottom, first, end;
    int64_t whole; /* of these rows of windows, the columns have all windows before this one */
} tap;

static inline tap tap_of(const columns *w, int64_t i, int64_t j)
{
    const conv_sizes *s = w->sizes;
    tap t = {.i = i, .j = j};
    t.above = i * s->dilation[0] - s->padding[0], t.left = j * s->dilation[1] - s->padding[1];
    t.top = gd_windows_within(s->OH, s->stride[0], -t.above);
    t.bottom = gd_windows_within(s->OH, s->stride[0], s->H - t.above);
    t.first = gd_windows_within(s->OW, s->stride[1], -t.left);
    t.end = gd_windows_within(s->OW, s->stride[1], s->W - t.left);
    t.whole = gd_min64(w->p1 == s->OH * s->OW ? s->OH : w->p1 / s->OW, t.bottom);
    return t;
}

/* A window (oh, ow), in channel c. */
typedef struct window {
    int64_t c, oh, ow;
} window;

/* Sets the part that begins at a window: n windows of its row; or, if these are the row, all whole rows that
 * have rows of the image. */
static inline __attribute__((always_inline)) void set_part(part *p, const columns *w, const tap *t,
                                                           window at, int64_t n)
{
    const conv_sizes *s = w->sizes;
    const int64_t run = w->run, step = s->stride[1];
    const bool inside = at.oh >= t->top && at.oh < t->bottom;
    int64_t a = t->first, b = t->end;
    p->rows = 1, p->width = n * run;
    if (n < s->OW) /* the columns may begin and end within a row */
        a = gd_min64(gd_max64(a - at.ow, 0), n), b = gd_min64(b - at.ow, n);
    else if (inside)
        p->rows = t->whole - at.oh;
    const bool some = inside && a < b; /* or the image may be NULL */
    const int64_t row = at.c * s->H + at.oh * s->stride[0] + t->above;
    p->a = some ? a * run : 0, p->b = some ? b * run : 0;
    p->image = some ? w->image + (row * s->W + t->left + at.ow * step) * run : w->image;
}

/* Calls f for the parts of rows (c, i, j) of the columns, for c from c0 to c1. */
static inline __attribute__((always_inline)) void each_part(const columns *w, int64_t c0,
                                                            int64_t c1, tap t, part_function *f)
{
    const conv_sizes *s = w->sizes;
    const int64_t OW = s->OW, run = w->run, step = s->stride[1];
    const int64_t area = s->KH * s->KW, row = t.i * s->KW + t.j;
    const int64_t oh0 = w->p0 > 0 ? w->p0 / OW : 0; /* divisions are slow */
    part p = {.next = s->stride[0] * s->W * run, .step = step};
    p.image_begin = w->image, p.image_end = w->image + w->channels * s->H * s->W * run;
    p.weight = w->weight, p.sum = w->sum;
    for (int64_t c = c0; c < c1; c++) {
        window at = {c, oh0, w->p0 - oh0 * OW};
        p.data = w->data + (c * area + row) * w->row;
        p.data_end = p.data + (area - row) * w->row; /* of the channel's rows */
        for (int64_t k = w->p0, n; k < w->p1; k += n * p.rows, at.ow = 0, at.oh += p.rows) {
            n = gd_min64(OW - at.ow, w->p1 - k);
            set_part(&p, w, &t, at, n);
            if (run == 1 && p.rows == 1)
                f(&p); /* without a loop over rows */
            else if (step == 1 || run == 1)
                f(&p);
            else
                each_run(&p, run, f);
            p.data += p.width * p.rows;
        }
    }
}

/* So many that the image's part of a share stays in the first level cache. */
static inline int64_t shares_of(int64_t channels, int64_t windows)
{
    return gd_divide_up(channels, gd_max64(1, SHARE / gd_max64(1, windows)));
}

/* Share t of the channels: the columns are those of the image. */
static void unfold_share(const void *work, int64_t t)
{
    const columns *w = work;
    const int64_t c0 = w->channels * t / w->shares, c1 = w->channels * (t + 1) / w->shares;
    for (int64_t i = 0; i < w->sizes->KH; i++)
        for (int64_t j = 0; j < w->sizes->KW; j++) {
            if (w->add)
                each_part(w, c0, c1, tap_of(w, i, j), add_to_row);
            else
                each_part(w, c0, c1, tap_of(w, i, j), copy_to_row);
        }
}

/* The columns are added to the image. */
static void fold_share(const void *work, int64_t t)
{
    const columns *w = work;
    const int64_t c0 = w->channels * t / w->shares, c1 = w->channels * (t + 1) / w->shares;
    for (int64_t i = 0; i < w->sizes->KH; i++)
        for (int64_t j = 0; j < w->sizes->KW; j++)
            each_part(w, c0, c1, tap_of(w, i, j), add_to_image);
}

#endif
