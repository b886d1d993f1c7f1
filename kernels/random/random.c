/* random.c - the random fills of the core (src/core/services.h), in pieces.
 *
 * Word i of the stream depends on i alone, so any thread may compute any piece. */
#include "kernel.h"

#include "copy/convert.h"
#include "random/philox.h"
#include "random/random.h"

/* Elements computed at a time: their words and values stay in the first-level cache. */
#define PIECE 1024

void gd_philox(uint64_t seed, uint64_t subsequence, uint64_t offset, int64_t count, uint32_t *words)
{
    if (count <= 0 || !words) return;
    uint64_t block = offset / 4;
    int64_t skip = (int64_t)(offset % 4);
    if (skip) {
        uint32_t first[4];
        gd_philox_blocks(seed, subsequence, block++, 1, first);
        int64_t taken = gd_min64(4 - skip, count);
        memcpy(words, first + skip, (size_t)taken * sizeof *words);
        words += taken;
        count -= taken;
    }
    int64_t whole = count / 4;
    gd_philox_blocks(seed, subsequence, block, whole, words);
    if (count % 4) {
        uint32_t last[4];
        gd_philox_blocks(seed, subsequence, block + (uint64_t)whole, 1, last);
        memcpy(words + 4 * whole, last, (size_t)(count % 4) * sizeof *words);
    }
}

/* Computes n values of a real type from `words_each` words per value and stores them; 16-bit types
 * are rounded from float. */
typedef void (*from_words)(void *y, const uint32_t *words, int64_t n, const gd_distribution *d);

typedef struct values {
    void *dst;
    gd_dtype dtype;
    int64_t n;
    from_words make;
    gd_distribution distribution;
    uint64_t seed, offset;
    gd_context *ctx;
} values;

static void fill_piece(const void *work, int64_t p)
{
    const values *v = work;
    const int64_t words_each = v->dtype == GD_FLOAT64 ? 2 : 1;
    uint32_t words[2 * PIECE];
    double made[PIECE]; /* of the computed type, at most a double each */
    const int64_t start = p * PIECE, count = gd_min64(PIECE, v->n - start);
    /* Normal values come in pairs. */
    const int64_t word_count = (count + count % 2) * words_each;
    gd_philox(v->seed, 0, v->offset + (uint64_t)(start * words_each), word_count, words);
    v->make(made, words, count, &v->distribution);

    void *at = (char *)v->dst + (size_t)start * gd_dtype_size(v->dtype);
    if (v->dtype == GD_FLOAT32 || v->dtype == GD_FLOAT64) {
        memcpy(at, made, (size_t)count * gd_dtype_size(v->dtype));
    } else {
        const int64_t packed = 1;
        gd_layout from = {made, GD_FLOAT32, 1, &count, &packed};
        gd_layout to = {at, v->dtype, 1, &count, &packed};
        gd_copy_cpu(to, from, v->ctx);
    }
}

static void fill(void *dst, gd_dtype dtype, int64_t n, from_words make,
                 gd_distribution distribution, uint64_t seed, uint64_t offset, gd_context *ctx)
{
    const values v = {dst, dtype, n, make, distribution, seed, offset, ctx};
    gd_for_each(gd_threads_for(gd_context_threads(ctx), n), n / PIECE + (n % PIECE != 0),
                fill_piece, &v);
}

/* ---- The numbers of a dtype in an interval --------------------------------------------------- */

static double rounded(gd_dtype dtype, double x)
{
    double bits = 0, y;
    gd_find_converter(dtype, GD_FLOAT64)(&bits, 1, &x, 1, 1);
    gd_find_converter(GD_FLOAT64, dtype)(&y, 1, &bits, 1, 1);
    return y;
}

/* The least number that is not below x. Half of the first d that helps reaches no further than to
 * the middle between two numbers, so d does not reach beyond the upper one. */
static double rounded_up(gd_dtype dtype, double x)
{
    static const double largest[] = {[GD_FLOAT32] = (double)FLT_MAX,
                                     [GD_FLOAT64] = DBL_MAX,
                                     [GD_BFLOAT16] = 0x1.fep127,
                                     [GD_FLOAT16] = 65504};
    if (isfinite(x)) x = fmax(x, -largest[dtype]);
    double y = rounded(dtype, x);
    for (double d = fmax(fabs(x) * 0x1p-53, 0x1p-1074); y < x; d *= 2) y = rounded(dtype, x + d);
    return y;
}

void gd_numbers_within(gd_dtype dtype, double low, double high, double *first, double *last)
{
    *first = rounded_up(dtype, low);
    *last = -rounded_up(dtype, -nextafter(high, low));
    if (!(*first <= *last)) *first = *last = rounded(dtype, low);
}

/* ---- Fills -------------------------------------------------------------------------------- */

void gd_uniform_cpu(void *dst, gd_dtype dtype, int64_t n, double low, double high, uint64_t seed,
                    uint64_t offset, gd_context *ctx)
{
    from_words make = dtype == GD_FLOAT64 ? gd_uniform_from_words_f64 : gd_uniform_from_words_f32;
    gd_distribution uniform = {.a = low, .b = high};
    gd_numbers_within(dtype, low, high, &uniform.first, &uniform.last);
    fill(dst, dtype, n, make, uniform, seed, offset, ctx);
}

void gd_normal_cpu(void *dst, gd_dtype dtype, int64_t n, double mean, double stddev, uint64_t seed,
                   uint64_t offset, gd_context *ctx)
{
    from_words make = dtype == GD_FLOAT64 ? gd_normal_from_words_f64 : gd_normal_from_words_f32;
    fill(dst, dtype, n, make, (gd_distribution){.a = mean, .b = stddev}, seed, offset, ctx);
}

typedef struct whole_numbers {
    int32_t *dst;
    int64_t n, low;
    uint64_t range, seed, offset;
} whole_numbers;

static void integer_piece(const void *work, int64_t p)
{
    const whole_numbers *w = work;
    uint32_t words[PIECE];
    const int64_t start = p * PIECE, count = gd_min64(PIECE, w->n - start);
    gd_philox(w->seed, 0, w->offset + (uint64_t)start, count, words);
    for (int64_t i = 0; i < count; i++)
        w->dst[start + i] = (int32_t)(w->low + (int64_t)(words[i] * w->range >> 32));
}

void gd_integers_cpu(int32_t *dst, int64_t n, int64_t low, int64_t high, uint64_t seed,
                     uint64_t offset, gd_context *ctx)
{
    const uint64_t range = (uint64_t)(high - low); /* at most 2^32: the product fits */
    const whole_numbers w = {dst, n, low, range, seed, offset};
    gd_for_each(gd_threads_for(gd_context_threads(ctx), n), n / PIECE + (n % PIECE != 0),
                integer_piece, &w);
}

/* floor(r * n / 2^64) for n <= 2^32, from the two halves of r. */
static uint64_t below(uint32_t r_low, uint32_t r_high, uint64_t n)
{
    return (r_high * n + (r_low * n >> 32)) >> 32;
}

/* Fisher-Yates, inside out: before step i the first i places hold a random order of 0 .. i-1; i
 * goes to a random place j <= i, and its previous content to place i. One thread: every step
 * depends on the one before it. */
void gd_permutation_cpu(int32_t *dst, int64_t n, uint64_t seed, uint64_t offset, gd_context *ctx)
{
    (void)ctx;
    uint32_t words[2 * PIECE];
    for (int64_t start = 0; start < n; start += PIECE) {
        const int64_t count = gd_min64(PIECE, n - start);
        gd_philox(seed, 0, offset + 2 * (uint64_t)start, 2 * count, words);
        for (int64_t i = start; i < start + count; i++) {
            const uint32_t *r = words + 2 * (i - start);
            int64_t j = (int64_t)below(r[0], r[1], (uint64_t)i + 1);
            dst[i] = dst[j];
            dst[j] = (int32_t)i;
        }
    }
}
