/* test.c - Philox against its published vectors and a slow model of its own, and the numbers
 * made of its words against long double arithmetic. */
#include "check_main.h"
#include "gradus/gradus.h"
#include "random/philox.h"
#include "random/random.h"
#include "core/services.h"

#include <math.h>
#include <string.h>

/* ---- A slow model ------------------------------------------------------------------------- */

/* Philox4x32-10 as the paper's figure gives it: one block. */
static void model_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(0xD2511F53) * c[0], b = UINT64_C(0xCD9E8D57) * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9;
        k[1] += 0xBB67AE85;
    }
    memcpy(out, c, sizeof c);
}

/* word(seed, subsequence, offset) as random.h names it. */
static uint32_t model_word(uint64_t seed, uint64_t subsequence, uint64_t offset)
{
    uint32_t counter[4] = {(uint32_t)(offset / 4), (uint32_t)(offset / 4 >> 32),
                           (uint32_t)subsequence, (uint32_t)(subsequence >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
    model_block(counter, key, out);
    return out[offset % 4];
}

static uint64_t model_wide(uint64_t seed, uint64_t offset)
{
    return (uint64_t)model_word(seed, 0, offset + 1) << 32 | model_word(seed, 0, offset);
}

static gd_context *context(uint64_t seed, int threads)
{
    gd_context *ctx =
        gd_context_create(&(gd_context_options){.seed = seed, .threads = threads, .poison = true});
    ck_assert_ptr_nonnull(ctx);
    return ctx;
}

/* ---- Words -------------------------------------------------------------------------------- */

TEST(published_vectors)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const uint32_t *c = vectors[i].counter, *k = vectors[i].key;
        uint32_t words[4], model[4];
        gd_philox_blocks((uint64_t)k[1] << 32 | k[0], (uint64_t)c[3] << 32 | c[2],
                         (uint64_t)c[1] << 32 | c[0], 1, words);
        model_block(c, k, model);
        ck_assert_mem_eq(words, vectors[i].out, sizeof words);
        ck_assert_mem_eq(model, vectors[i].out, sizeof model);
    }
}

TEST(any_offset_and_count)
{
    const uint64_t seed = UINT64_C(0x0123456789abcdef), subsequence = UINT64_C(0xfedcba9876543210);
    static const uint64_t offsets[] = {0, 1, 2, 3, 4, 1001, UINT64_C(17179869182)};
    for (size_t o = 0; o < sizeof offsets / sizeof *offsets; o++) {
        for (int64_t count = 0; count < 40; count++) {
            uint32_t words[41];
            memset(words, 0x5a, sizeof words);
            gd_philox(seed, subsequence, offsets[o], count, words);
            for (int64_t i = 0; i < count; i++) {
                ck_assert_uint_eq(words[i],
                                  model_word(seed, subsequence, offsets[o] + (uint64_t)i));
            }
            ck_assert_uint_eq(words[count], 0x5a5a5a5a);
        }
    }
    gd_philox(1, 0, 0, 4, NULL);
}

TEST(the_state_moves_by_blocks_and_repeats)
{
    gd_context *ctx = context(42, 1);
    ck_assert_uint_eq(gd_random_get(ctx).seed, 42);
    ck_assert_uint_eq(gd_random_take(ctx, 5), 0);
    ck_assert_uint_eq(gd_random_take(ctx, 8), 8);
    ck_assert_uint_eq(gd_random_take(ctx, 0), 16);
    ck_assert_uint_eq(gd_random_get(ctx).offset, 16);
    gd_random_set(ctx, (gd_random_state){7, 1});
    ck_assert_uint_eq(gd_random_take(ctx, 1), 4); /* the next block */

    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(7));
    float first[7], second[7], third[7];
    gd_random_state state = gd_random_get(ctx);
    gd_random_normal(t, 0, 1);
    gd_tensor_read(t, first, sizeof first);
    gd_random_normal(t, 0, 1);
    gd_tensor_read(t, second, sizeof second);
    gd_random_set(ctx, state);
    gd_random_normal(t, 0, 1);
    gd_tensor_read(t, third, sizeof third);
    ck_assert_no_error(ctx);
    ck_assert_mem_eq(first, third, sizeof first);
    ck_assert(memcmp(first, second, sizeof first) != 0);
    gd_context_free(ctx);
}

/* ---- Numbers against the model ------------------------------------------------------------ */

enum { MANY = 20011 }; /* several pieces, and a rest */

TEST(uniform_is_as_documented)
{
    static float f[MANY];
    static double d[MANY];
    gd_context *ctx = context(99, 2);
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(MANY));
    gd_random_uniform(t, -3, 5);
    gd_tensor_read(t, f, sizeof f);
    for (int i = 0; i < MANY; i++) {
        double u = model_word(99, 0, (uint64_t)i) / 256 / 16777216.0;
        ck_assert_double_eq_tol(f[i], -3 + 8 * u, 5e-7);
        ck_assert(f[i] >= -3 && f[i] < 5);
    }
    uint64_t offset = gd_random_get(ctx).offset;
    ck_assert_uint_eq(offset, 20012);
    gd_tensor *t64 = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(MANY));
    gd_random_uniform(t64, 0, 1);
    gd_tensor_read(t64, d, sizeof d);
    for (int i = 0; i < MANY; i++) {
        double u = (double)(model_wide(99, offset + 2 * (uint64_t)i) >> 11) * 0x1p-53;
        ck_assert(d[i] == u);
    }
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

static gd_distribution within(gd_dtype dtype, double low, double high)
{
    gd_distribution d = {.a = low, .b = high};
    gd_numbers_within(dtype, low, high, &d.first, &d.last);
    return d;
}

TEST(uniform_never_reaches_high)
{
    const uint32_t ones[4] = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};
    const uint32_t zeros[4] = {0};
    float f[2];
    double d[2];
    const gd_distribution f1 = within(GD_FLOAT32, 1, 2), d1 = within(GD_FLOAT64, 1, 2);
    gd_uniform_from_words_f32(f, ones, 1, &f1); /* 1 + (1 - 2^-24) would round to 2 */
    gd_uniform_from_words_f64(d, ones, 1, &d1);
    ck_assert(f[0] == nextafterf(2, 0));
    ck_assert(d[0] == nextafter(2, 0));
    const gd_distribution below = within(GD_FLOAT32, -1, 0), three = within(GD_FLOAT32, 3, 3);
    gd_uniform_from_words_f32(f, ones, 1, &below);
    ck_assert(f[0] < 0);
    gd_uniform_from_words_f32(f, zeros, 1, &below);
    ck_assert(f[0] == -1);
    gd_uniform_from_words_f32(f, ones, 1, &three);
    ck_assert(f[0] == 3);
}

/* The numbers of each dtype at the ends of an interval. */
TEST(numbers_within)
{
    static const struct {
        gd_dtype dtype;
        double low, high, first, last;
    } rows[] = {
        {GD_FLOAT32, 0, 1, 0, 1 - 0x1p-24},
        {GD_FLOAT64, 0, 1, 0, 1 - 0x1p-53},
        {GD_BFLOAT16, 0, 1, 0, 1 - 0x1p-8},
        {GD_FLOAT16, 0, 1, 0, 1 - 0x1p-11},
        {GD_BFLOAT16, -1, 0, -1, -0x1p-133}, /* the least numbers of all */
        {GD_FLOAT16, -0x1p-30, 0x1p-30, 0, 0},
        {GD_BFLOAT16, 1.001, 2.001, 1 + 0x1p-7, 2},
        {GD_BFLOAT16, 1.006, 1.02, 1 + 0x1p-7, 1 + 0x1p-6},
        {GD_FLOAT32, 0.7, 0.9, 0.7f + 0x1p-24, 0.9f - 0x1p-24 * (0.9f >= 0.9)},
        {GD_FLOAT16, -1e5, 1e9, -65504, 65504},
        {GD_BFLOAT16, -INFINITY, INFINITY, -INFINITY, 0x1.fep127},
        {GD_BFLOAT16, 1.001, 1.002, 1, 1}, /* none */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const gd_distribution d = within(rows[i].dtype, rows[i].low, rows[i].high);
        ck_assert_msg(d.first == rows[i].first && d.last == rows[i].last, "row %zu: %.9g to %.9g",
                      i, d.first, d.last);
    }
}

/* Also of 16 bits, whose rounding comes after that of float32. */
TEST(uniform_stays_within)
{
    enum { N = 1 << 18 };
    gd_context *ctx = context(1, 2);
    double *x = malloc(N * sizeof *x);
    for (int dtype = 0; dtype < 4; dtype++) {
        gd_tensor *t = gd_tensor_create(ctx, (gd_dtype)dtype, GD_SHAPE(N));
        for (int k = 0; k < 2; k++) {
            const double low = k ? -0.3 : 0, high = k ? 0.7 : 1;
            gd_random_uniform(t, low, high);
            gd_tensor_read_f64(t, x, N);
            int outside = 0;
            for (int i = 0; i < N; i++) outside += !(x[i] >= low && x[i] < high);
            ck_assert_int_eq(outside, 0);
        }
        gd_tensor_free(t);
    }
    free(x);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

/* Element j of pair (a, b) of uniform numbers in (0, 1). */
static long double model_normal(long double a, long double b, int j)
{
    long double radius = sqrtl(-2 * logl(a)), angle = 2 * acosl(-1) * b;
    return radius * (j ? cosl(angle) : sinl(angle));
}

TEST(normal_is_as_documented)
{
    static float f[MANY];
    static double d[MANY];
    gd_context *ctx = context(5, 2);
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(MANY));
    gd_tensor *t64 = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(MANY));
    gd_random_normal(t, 0, 1);
    uint64_t offset = gd_random_get(ctx).offset;
    gd_random_normal(t64, 10, 0.5);
    gd_tensor_read(t, f, sizeof f);
    gd_tensor_read(t64, d, sizeof d);
    ck_assert_no_error(ctx);
    for (int i = 0; i < MANY; i++) {
        uint64_t pair = (uint64_t)(i - i % 2);
        long double a = (model_word(5, 0, pair) + 0.5L) * 0x1p-32L;
        long double b = (model_word(5, 0, pair + 1) + 0.5L) * 0x1p-32L;
        /* Near a = 1 the square root magnifies the rounding of a. */
        double tolerance = a > 0.999L ? 1e-4 : 2e-6;
        ck_assert_double_eq_tol(f[i], (double)model_normal(a, b, i % 2), tolerance);

        a = ((long double)(model_wide(5, offset + 2 * pair) >> 11) + 0.5L) * 0x1p-53L;
        b = ((long double)(model_wide(5, offset + 2 * pair + 2) >> 11) + 0.5L) * 0x1p-53L;
        tolerance = a > 0.999L ? 1e-11 : 4e-15;
        ck_assert_double_eq_tol(d[i], (double)(10 + model_normal(a, b, i % 2) / 2), tolerance);
    }
    gd_context_free(ctx);
}

/* The ends of the words: largest, smallest and nearest-to-an-axis numbers are finite. */
TEST(normal_of_extreme_words)
{
    static const uint32_t extremes[] = {0,          1,          0x1fffffff, 0x20000000,
                                        0x3fffffff, 0x40000000, 0x7fffffff, 0x80000000,
                                        0xdfffffff, 0xe0000000, 0xffffffff};
    const int n = sizeof extremes / sizeof *extremes;
    for (int i = 0; i < n * n; i++) {
        uint32_t words[2] = {extremes[i / n], extremes[i % n]};
        uint32_t wide[4] = {words[0], words[0], words[1], words[1]};
        float f[2];
        double d[2];
        gd_normal_from_words_f32(f, words, 2, &(gd_distribution){0, 1, 0, 0});
        gd_normal_from_words_f64(d, wide, 2, &(gd_distribution){0, 1, 0, 0});
        long double a = (words[0] + 0.5L) * 0x1p-32L, b = (words[1] + 0.5L) * 0x1p-32L;
        for (int j = 0; j < 2; j++) {
            ck_assert_double_eq_tol(f[j], (double)model_normal(a, b, j), 1e-4);
            ck_assert(fabs(d[j]) < 8.7);
        }
    }
}

TEST(integers_are_as_documented)
{
    static int32_t n[MANY];
    gd_context *ctx = context(3, 2);
    gd_tensor *t = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(MANY));
    static const int64_t ranges[][2] = {
        {0, 6}, {-10, -3}, {5, 6}, {INT32_MIN, INT64_C(2147483648)}};
    for (int r = 0; r < 4; r++) {
        uint64_t offset = gd_random_get(ctx).offset;
        gd_random_integers(t, ranges[r][0], ranges[r][1]);
        gd_tensor_read(t, n, sizeof n);
        for (int i = 0; i < MANY; i++) {
            long double u = model_word(3, 0, offset + (uint64_t)i) * 0x1p-32L;
            long double wanted =
                (long double)ranges[r][0] + floorl(u * (long double)(ranges[r][1] - ranges[r][0]));
            ck_assert_int_eq(n[i], (int64_t)wanted);
        }
    }
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

TEST(permutations_are_fair)
{
    static int32_t p[5000];
    static bool seen[5000];
    gd_context *ctx = context(8, 1);
    gd_tensor *t = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(5000));
    gd_random_permutation(t);
    gd_tensor_read(t, p, sizeof p);
    for (int i = 0; i < 5000; i++) {
        ck_assert(p[i] >= 0 && p[i] < 5000 && !seen[p[i]]);
        seen[p[i]] = true;
    }
    /* All 24 orders of 4, 1000 times each on average: chi^2 with 23 degrees of freedom exceeds
     * 49.7 once in a thousand. */
    gd_tensor *four = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(4));
    int counts[256] = {0};
    for (int i = 0; i < 24000; i++) {
        int32_t q[4];
        gd_random_permutation(four);
        gd_tensor_read(four, q, sizeof q);
        counts[q[0] * 64 + q[1] * 16 + q[2] * 4 + q[3]]++;
    }
    double chi2 = 0;
    int orders = 0;
    for (int i = 0; i < 256; i++) {
        orders += counts[i] > 0;
        if (counts[i]) chi2 += (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000;
    }
    ck_assert_int_eq(orders, 24);
    ck_assert_double_lt(chi2, 49.7);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

/* ---- Where the numbers go ----------------------------------------------------------------- */

typedef gd_status (*fill)(gd_tensor *);

static gd_status fill_uniform(gd_tensor *t)
{
    return gd_random_uniform(t, -1, 1);
}

static gd_status fill_normal(gd_tensor *t)
{
    return gd_random_normal(t, 1, 2);
}

static gd_status fill_integers(gd_tensor *t)
{
    return gd_random_integers(t, 0, 1000);
}

TEST(threads_change_nothing)
{
    static const struct {
        fill fill;
        gd_dtype dtype;
    } fills[] = {{fill_uniform, GD_FLOAT32},
                 {fill_uniform, GD_FLOAT64},
                 {fill_normal, GD_FLOAT32},
                 {fill_normal, GD_FLOAT64},
                 {fill_integers, GD_INT32}};
    static double one[100003], three[100003];
    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            gd_context *ctx = context(1, threads);
            gd_tensor *t = gd_tensor_create(ctx, fills[i].dtype, GD_SHAPE(100003));
            fills[i].fill(t);
            gd_tensor_read_f64(t, threads == 1 ? one : three, 100003);
            ck_assert_no_error(ctx);
            gd_context_free(ctx);
        }
        ck_assert_mem_eq(one, three, sizeof one);
    }
}

/* A strided view gets in row-major order what a packed tensor would; 16-bit types are float32's
 * numbers, rounded. */
TEST(views_and_small_types)
{
    gd_context *ctx = context(4, 1);
    double packed[15], strided[15], small[15], rounded[15];
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(5, 3));
    gd_random_normal(t, 0, 1);
    gd_tensor_read_f64(t, packed, 15);

    gd_tensor *u = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 5));
    gd_tensor *view = gd_transpose(u, 0, 1);
    gd_random_set(ctx, (gd_random_state){4, 0});
    gd_random_normal(view, 0, 1);
    gd_tensor_read_f64(view, strided, 15);
    ck_assert_mem_eq(packed, strided, sizeof packed);

    for (int dtype = GD_BFLOAT16; dtype <= GD_FLOAT16; dtype++) {
        gd_tensor *random = gd_tensor_create(ctx, (gd_dtype)dtype, GD_SHAPE(5, 3));
        gd_tensor *copy = gd_tensor_create(ctx, (gd_dtype)dtype, GD_SHAPE(5, 3));
        gd_random_set(ctx, (gd_random_state){4, 0});
        gd_random_normal(random, 0, 1);
        gd_tensor_copy(copy, t);
        gd_tensor_read_f64(random, small, 15);
        gd_tensor_read_f64(copy, rounded, 15);
        ck_assert_mem_eq(small, rounded, sizeof small);
    }
    gd_tensor *empty = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(0, 3));
    ck_assert_int_eq(gd_random_normal(empty, 0, 1), GD_OK);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

CHECK_MAIN("random")
