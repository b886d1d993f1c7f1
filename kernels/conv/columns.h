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
} columns;

/* A part of a row of the columns: `rows` rows of `width` numbers, one after the other. Of each row a to b
 * are the image's, number k the one at image[k step], and the others are outside of it. Nothing is read
 * or written beyond these ends; what follows the part before data_end is written later. */
typedef struct part {
    REAL *data, *image;
    int64_t rows, width, next; /* from one row of the image to the next */
    int64_t a, b, step;
    const REAL *data_end, *image_begin, *image_end;
} part;

typedef void part_function(const part *p, REAL weight, double *sum);

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
static inline void copy_to_row(const part *p, REAL weight, double *sum)
{
    (void)weight, (void)sum;
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
static inline __attribute__((always_inline)) void add_to_row(const part *p, REAL weight,
                                                             double *sum)
{
    (void)sum;
    const int64_t n = p->b - p->a;
    REAL *data = p->data + p->a, *image = p->image + p->a * p->step;
    for (int64_t r = 0; r < p->rows; r++, data += p->width, image += p->next)
        add_numbers(data, 1, image, p->step, n, weight);
}

/* image += weight part */
static inline __attribute__((always_inline)) void add_to_image(const part *p, REAL weight,
                                                               double *sum)
{
    (void)sum;
    const int64_t n = p->b - p->a;
    REAL *data = p->data + p->a, *image = p->image + p->a * p->step;
    for (int64_t r = 0; r < p->rows; r++, data += p->width, image += p->next)
        add_numbers(image, p->step, data, 1, n, weight);
}

/* sum += part image */
static inline __attribute__((always_inline)) void add_product(const part *p, REAL weight,
                                                              double *sum)
{
    (void)weight;
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
        *sum += (double)dot;
    }
}

/* Calls f for the runs of a part with a step of more than 1. */
static inline __attribute__((always_inline)) void
each_run(const part *p, int64_t run, part_function *f, REAL weight, double *sum)
{
    part own = *p;
    own.rows = 1, own.step = 1, own.width = run, own.a = 0;
    for (int64_t r = 0; r < p->rows; r++) {
        own.image = p->image + r * p->next;
        for (int64_t k = 0; k < p->width; k += run, own.data += run, own.image += run * p->step) {
            own.b = k >= p->a && k < p->b ? run : 0;
            f(&own, weight, sum);
        }
    }
}

/* Calls f for the parts of rows (c, i, j) of the columns, for c from c0 to c1: whole rows of windows that
 * have a row of the image are one part, every other row another. */
static inline __attribute__((always_inline)) void each_part(const columns *w, int64_t c0,
                                                            int64_t c1, int64_t i, int64_t j,
                                                            part_function *f, REAL weight,
                                                            double *sum)
{
    const conv_sizes *s = w->sizes;
    const int64_t OW = s->OW, run = w->run, plane = s->H * s->W * run;
    const int64_t down = s->stride[0], step = s->stride[1];
    const int64_t above = i * s->dilation[0] - s->padding[0];
    const int64_t left = j * s->dilation[1] - s->padding[1];
    const int64_t first = gd_windows_within(OW, step, -left),
                  end = gd_windows_within(OW, step, s->W - left);
    const int64_t top = gd_windows_within(s->OH, down, -above),
                  bottom = gd_windows_within(s->OH, down, s->H - above);
    const int64_t oh0 = w->p0 > 0 ? w->p0 / OW : 0; /* divisions are slow */
    const int64_t whole = gd_min64(w->p1 == s->OH * OW ? s->OH : w->p1 / OW, bottom);
    part p = {.next = down * s->W * run, .step = step};
    p.image_begin = w->image, p.image_end = w->image + w->channels * plane;
    for (int64_t c = c0; c < c1; c++) {
        int64_t at = c * plane + ((oh0 * down + above) * s->W + left) * run;
        int64_t oh = oh0, ow = w->p0 - oh0 * OW;
        p.data = w->data + ((c * s->KH + i) * s->KW + j) * w->row;
        p.data_end = p.data + (s->KH * s->KW - i * s->KW - j) * w->row; /* of the channel's rows */
        for (int64_t k = w->p0, n; k < w->p1; k += n * p.rows, ow = 0, oh += p.rows) {
            const bool inside = oh >= top && oh < bottom;
            int64_t a = first, b = end;
            n = gd_min64(OW - ow, w->p1 - k);
            p.rows = 1;
            if (n < OW) /* the columns may begin and end within a row */
                a = gd_min64(gd_max64(first - ow, 0), n), b = gd_min64(end - ow, n);
            else if (inside)
                p.rows = whole - oh;
            p.width = n * run;
            const bool some = inside && a < b; /* or the image may be NULL */
            p.a = some ? a * run : 0, p.b = some ? b * run : 0;
            p.image = some ? w->image + at + ow * step * run : w->image;
            if (run == 1 && p.rows == 1)
                f(&p, weight, sum); /* without a loop over rows */
            else if (step == 1 || run == 1)
                f(&p, weight, sum);
            else
                each_run(&p, run, f, weight, sum);
            p.data += p.width * p.rows, at += p.next * p.rows;
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
                each_part(w, c0, c1, i, j, add_to_row, 1, NULL);
            else
                each_part(w, c0, c1, i, j, copy_to_row, 1, NULL);
        }
}

/* The columns are added to the image. */
static void fold_share(const void *work, int64_t t)
{
    const columns *w = work;
    const int64_t c0 = w->channels * t / w->shares, c1 = w->channels * (t + 1) / w->shares;
    for (int64_t i = 0; i < w->sizes->KH; i++)
        for (int64_t j = 0; j < w->sizes->KW; j++)
            each_part(w, c0, c1, i, j, add_to_image, 1, NULL);
}

#endif
