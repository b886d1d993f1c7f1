/* packed.c - the core's arithmetic on packed arrays: accumulate, fill, sum of squares, scale;
 * what few rows touch.
 *
 * All go by blocks of GD_BLOCK elements. A few elements at a time are widened on the stack, by the
 * table of conversions between dtypes. */
#include "copy/convert.h"
#include "touched.h"

/* Elements that are widened at once. */
#define CHUNK 512

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
    double sum[CHUNK], term[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t count = gd_min64(CHUNK, n - i);
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

/* ---- Parts that may be other than 0 ------------------------------------------------------- */

enum { PIECES = 256 }; /* at most, each a whole number of blocks */

static int64_t piece_length(int64_t n)
{
    return gd_max64(gd_divide_up(block_count(n), PIECES), 1) * GD_BLOCK;
}

/* The argument of scale_part and add_squares. */
typedef struct array {
    void *x;
    gd_dtype dtype;
    int64_t n, length; /* of x, and of a piece */
    const uint8_t *touched;
    double factor, *part;
} array;

/* Eight sums, of which element i of a piece is added to number i % LANES, so that zeros may be
 * left out. */
enum { LANES = 8 };
typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef float narrow_lanes __attribute__((vector_size(LANES * sizeof(float))));

/* What is done to elements [begin, end). */
typedef void part_body(const array *a, int64_t begin, int64_t end, lanes *sum);

/* Calls it for all elements of the piece that may be other than 0, in order, whole lanes
 * at a time. */
static void each_part(const array *a, int64_t piece, part_body *body, lanes *sum)
{
    const int64_t begin = piece * a->length, end = gd_min64(begin + a->length, a->n);
    const int64_t unit = GD_GRANULE / (int64_t)gd_dtype_size(a->dtype);
    for (gd_run run = {begin, begin}; gd_next_run(a->touched, unit, end, &run);)
        body(a, run.begin, run.end, sum);
}

/* ---- Sum of squares ----------------------------------------------------------------------- */

#define ADD_SQUARES(name, type, vector)                                                  \
    static void name(lanes *sum, const type *x, int64_t n)                               \
    {                                                                                    \
        lanes own = *sum;                                                                \
        int64_t i = 0;                                                                   \
        for (; i + LANES <= n; i += LANES) {                                             \
            vector some;                                                                 \
            memcpy(&some, x + i, sizeof some);                                           \
            const lanes wide = __builtin_convertvector(some, lanes);                     \
            own += wide * wide;                                                          \
        }                                                                                \
        for (int lane = 0; i < n; i++, lane++) own[lane] += (double)x[i] * (double)x[i]; \
        *sum = own;                                                                      \
    }
ADD_SQUARES(add_squares_f32, float, narrow_lanes)
ADD_SQUARES(add_squares_f64, double, lanes)

static void add_squares(const array *a, int64_t begin, int64_t end, lanes *sum)
{
    const void *x = const_at(a->x, a->dtype, begin);
    if (a->dtype == GD_FLOAT32) add_squares_f32(sum, x, end - begin);
    if (a->dtype == GD_FLOAT64) add_squares_f64(sum, x, end - begin);
    if (gd_dtype_size(a->dtype) > 2) return;
    float wide[CHUNK];
    for (int64_t i = begin; i < end; i += CHUNK) {
        const int64_t count = gd_min64(CHUNK, end - i);
        gd_find_converter(GD_FLOAT32, a->dtype)(wide, 1, const_at(a->x, a->dtype, i), 1, count);
        add_squares_f32(sum, wide, count);
    }
}

static void sum_piece(const void *work, int64_t piece)
{
    const array *a = work;
    lanes sum = {0};
    each_part(a, piece, add_squares, &sum);
    a->part[piece] = 0;
    for (int lane = 0; lane < LANES; lane++) a->part[piece] += sum[lane];
}

/* The sums of the pieces are added in order. */
void gd_sum_squares_cpu(double *sum, const void *x, gd_dtype dtype, int64_t n,
                        const uint8_t *touched, gd_context *ctx)
{
    double part[PIECES];
    const array a = {.x = (void *)(uintptr_t)x,
                     .dtype = dtype,
                     .n = n,
                     .length = piece_length(n),
                     .touched = touched,
                     .part = part};
    const int64_t pieces = gd_divide_up(n, a.length);
    gd_for_each(gd_threads_for(gd_context_threads(ctx), n), pieces, sum_piece, &a);
    *sum = 0;
    for (int64_t piece = 0; piece < pieces; piece++) *sum += part[piece];
}

/* ---- Scale -------------------------------------------------------------------------------- */

static void scale_part(const array *a, int64_t begin, int64_t end, lanes *sum)
{
    (void)sum;
    gd_converter *widen = gd_find_converter(GD_FLOAT64, a->dtype);
    gd_converter *narrow = gd_find_converter(a->dtype, GD_FLOAT64);
    double wide[CHUNK];
    for (int64_t i = begin; i < end; i += CHUNK) {
        const int64_t count = gd_min64(CHUNK, end - i);
        void *x = at(a->x, a->dtype, i);
        widen(wide, 1, x, 1, count);
        for (int64_t k = 0; k < count; k++) wide[k] *= a->factor;
        narrow(x, 1, wide, 1, count);
    }
}

static void scale_piece(const void *work, int64_t piece)
{
    each_part(work, piece, scale_part, NULL);
}

void gd_scale_cpu(void *x, gd_dtype dtype, double factor, int64_t n, const uint8_t *touched,
                  gd_context *ctx)
{
    const array a = {.x = x,
                     .dtype = dtype,
                     .n = n,
                     .length = piece_length(n),
                     .touched = touched,
                     .factor = factor};
    gd_for_each(gd_threads_for(gd_context_threads(ctx), n), gd_divide_up(n, a.length), scale_piece,
                &a);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

void gd_touch_rows_cpu(uint8_t *touched, const int32_t *ids, int64_t n, int64_t rows,
                       int64_t row_bytes, gd_context *ctx)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = ids[i], begin = id * row_bytes / GD_GRANULE;
        const int64_t end = gd_divide_up((id + 1) * row_bytes, GD_GRANULE);
        if (id >= 0 && id < rows) memset(touched + begin, 1, (size_t)(end - begin));
    }
}

typedef struct cleared {
    char *x;
    int64_t bytes;
    uint8_t *touched;
} cleared;

static void clear_piece(const void *work, int64_t piece)
{
    enum { LENGTH = GD_TOUCHED_PIECE * GD_GRANULE };
    const cleared *w = work;
    const int64_t begin = piece * LENGTH, end = gd_min64(begin + LENGTH, w->bytes);
    for (gd_run run = {begin, begin}; gd_next_run(w->touched, GD_GRANULE, end, &run);)
        memset(w->x + run.begin, 0, (size_t)(run.end - run.begin));
    memset(w->touched + begin / GD_GRANULE, 0, (size_t)gd_divide_up(end - begin, GD_GRANULE));
}

void gd_clear_touched_cpu(void *x, int64_t bytes, uint8_t *touched, gd_context *ctx)
{
    const cleared w = {x, bytes, touched};
    gd_for_each(gd_threads_for(gd_context_threads(ctx), bytes / 4),
                gd_divide_up(bytes, GD_TOUCHED_PIECE * GD_GRANULE), clear_piece, &w);
}
