/* packed.c - the core's arithmetic on packed arrays: accumulate, fill, sum of squares, scale.
 *
 * All go by blocks of GD_BLOCK elements. Arrays of 16-bit elements are widened to float, a few at
 * a time, on the stack. */
#include "copy/convert.h"
#include "kernel.h"

/* Elements that are widened at once. */
#define WINDOW 512

static int64_t block_count(int64_t n)
{
    return gd_divide_up(n, GD_BLOCK);
}

static const void *const_at(const void *data, gd_dtype dtype, int64_t i)
{
    return (const char *)data + i * (int64_t)gd_dtype_size(dtype);
}

static void *at(void *data, gd_dtype dtype, int64_t i)
{
    return (char *)data + i * (int64_t)gd_dtype_size(dtype);
}

/* ---- Accumulate --------------------------------------------------------------------------- */

static void add_f32(float *restrict dst, const float *restrict src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] += src[i];
}

static void add_f64(double *restrict dst, const double *restrict src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] += src[i];
}

/* Any other pair: both to the wider type, the sum, and back. */
static void add_mixed(void *dst, gd_dtype dst_dtype, const void *src, gd_dtype src_dtype, int64_t n)
{
    bool wide = dst_dtype == GD_FLOAT64 || src_dtype == GD_FLOAT64;
    gd_dtype type = wide ? GD_FLOAT64 : GD_FLOAT32;
    double sum[WINDOW], term[WINDOW];
    for (int64_t i = 0; i < n; i += WINDOW) {
        int64_t count = gd_min64(WINDOW, n - i);
        gd_find_converter(type, dst_dtype)(sum, 1, at(dst, dst_dtype, i), 1, count);
        gd_find_converter(type, src_dtype)(term, 1, const_at(src, src_dtype, i), 1, count);
        if (wide)
            add_f64(sum, term, count);
        else
            add_f32((float *)(void *)sum, (const float *)(const void *)term, count);
        gd_find_converter(dst_dtype, type)(at(dst, dst_dtype, i), 1, sum, 1, count);
    }
}

typedef struct sum {
    void *dst;
    const void *src;
    gd_dtype dst_dtype, src_dtype;
    int64_t n;
} sum;

static void add_block(const void *work, int64_t block)
{
    const sum *w = work;
    const int64_t start = block * GD_BLOCK, count = gd_min64(GD_BLOCK, w->n - start);
    void *to = at(w->dst, w->dst_dtype, start);
    const void *from = const_at(w->src, w->src_dtype, start);
    if (w->dst_dtype == GD_FLOAT32 && w->src_dtype == GD_FLOAT32)
        add_f32(to, from, count);
    else if (w->dst_dtype == GD_FLOAT64 && w->src_dtype == GD_FLOAT64)
        add_f64(to, from, count);
    else
        add_mixed(to, w->dst_dtype, from, w->src_dtype, count);
}

void gd_accumulate_cpu(void *dst, gd_dtype dst_dtype, const void *src, gd_dtype src_dtype,
                       int64_t n, gd_context *ctx)
{
    const sum w = {dst, src, dst_dtype, src_dtype, n};
    gd_for_each(gd_threads_for(gd_context_threads(ctx), n), block_count(n), add_block, &w);
}

/* ---- Fill --------------------------------------------------------------------------------- */

/* For every element of x: a value, or a factor. */
typedef struct one_number {
    void *x;
    gd_dtype dtype;
    double number;
    int64_t n;
} one_number;

static void fill_block(const void *work, int64_t block)
{
    const one_number *w = work;
    const int64_t start = block * GD_BLOCK, count = gd_min64(GD_BLOCK, w->n - start);
    const size_t size = gd_dtype_size(w->dtype), bytes = (size_t)count * size;
    char *to = at(w->x, w->dtype, start);
    gd_find_converter(w->dtype, GD_FLOAT64)(to, 1, &w->number, 0, 1);
    for (size_t done = size; done < bytes; done *= 2)
        memcpy(to + done, to, done < bytes - done ? done : bytes - done);
}

void gd_fill_cpu(void *dst, gd_dtype dtype, double value, int64_t n, gd_context *ctx)
{
    const one_number w = {dst, dtype, value, n};
    gd_for_each(gd_threads_for(gd_context_threads(ctx), n), block_count(n), fill_block, &w);
}

/* ---- Sum of squares ----------------------------------------------------------------------- */

static double squares_f32(const float *x, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static double squares_f64(const double *x, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

static double squares(const void *x, gd_dtype dtype, int64_t n)
{
    if (dtype == GD_FLOAT32) return squares_f32(x, n);
    if (dtype == GD_FLOAT64) return squares_f64(x, n);
    double sum = 0;
    float wide[WINDOW];
    for (int64_t i = 0; i < n; i += WINDOW) {
        int64_t count = gd_min64(WINDOW, n - i);
        gd_find_converter(GD_FLOAT32, dtype)(wide, 1, const_at(x, dtype, i), 1, count);
        sum += squares_f32(wide, count);
    }
    return sum;
}

typedef struct square_pieces {
    const void *x;
    gd_dtype dtype;
    int64_t n, length; /* of x, and of a piece */
    double *part;
} square_pieces;

static void sum_piece(const void *work, int64_t piece)
{
    const square_pieces *w = work;
    const int64_t start = piece * w->length;
    w->part[piece] =
        squares(const_at(w->x, w->dtype, start), w->dtype, gd_min64(w->length, w->n - start));
}

/* A fixed number of pieces, each a whole number of blocks, summed in order. */
void gd_sum_squares_cpu(double *sum, const void *x, gd_dtype dtype, int64_t n, gd_context *ctx)
{
    enum { PIECES = 256 };
    double part[PIECES];
    const int64_t length = gd_divide_up(block_count(n), PIECES) * GD_BLOCK;
    const int64_t pieces = length ? gd_divide_up(n, length) : 0;
    const square_pieces w = {x, dtype, n, length, part};
    gd_for_each(gd_threads_for(gd_context_threads(ctx), n), pieces, sum_piece, &w);
    *sum = 0;
    for (int64_t piece = 0; piece < pieces; piece++) *sum += part[piece];
}

/* ---- Scale -------------------------------------------------------------------------------- */

static void scale_f64(double *x, double factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static void scale_f32(float *x, double factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(x[i] * factor);
}

static void scale_16(uint16_t *x, gd_dtype dtype, double factor, int64_t n)
{
    double wide[WINDOW];
    for (int64_t i = 0; i < n; i += WINDOW) {
        int64_t count = gd_min64(WINDOW, n - i);
        gd_find_converter(GD_FLOAT64, dtype)(wide, 1, x + i, 1, count);
        scale_f64(wide, factor, count);
        gd_find_converter(dtype, GD_FLOAT64)(x + i, 1, wide, 1, count);
    }
}

static void scale_block(const void *work, int64_t block)
{
    const one_number *w = work;
    const int64_t start = block * GD_BLOCK, count = gd_min64(GD_BLOCK, w->n - start);
    void *to = at(w->x, w->dtype, start);
    if (w->dtype == GD_FLOAT32)
        scale_f32(to, w->number, count);
    else if (w->dtype == GD_FLOAT64)
        scale_f64(to, w->number, count);
    else
        scale_16(to, w->dtype, w->number, count);
}

void gd_scale_cpu(void *x, gd_dtype dtype, double factor, int64_t n, gd_context *ctx)
{
    const one_number w = {x, dtype, factor, n};
    gd_for_each(gd_threads_for(gd_context_threads(ctx), n), block_count(n), scale_block, &w);
}
