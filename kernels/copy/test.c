/* test.c - the services of kernels/copy against slow models: conversions bit by bit, copies
 * element by element. */
#include "copy/convert.h"
#include "kernel.h"
#include "op_test.h"

/* threads[n]: a context with n threads, which must not affect any result. */
static gd_context *threads[5];

static void make_contexts(void)
{
    for (int n = 1; n < 5; n++) threads[n] = gd_context_create(&(gd_context_options){.threads = n});
}

static void free_contexts(void)
{
    for (int n = 1; n < 5; n++) gd_context_free(threads[n]);
}

/* ---- A slow model of the 16-bit formats --------------------------------------------------- */

typedef struct format {
    gd_dtype dtype;
    int exponent_bits, mantissa_bits;
} format;

static const format formats[] = {{GD_BFLOAT16, 8, 7}, {GD_FLOAT16, 5, 10}};

/* The number that `half` stands for, from the definition; infinity is given the value that the
 * next finite number would have. */
static double decode_slowly(format f, uint16_t half)
{
    int exponent = half >> f.mantissa_bits & ((1 << f.exponent_bits) - 1);
    int mantissa = half & ((1 << f.mantissa_bits) - 1);
    int bias = (1 << (f.exponent_bits - 1)) - 1;
    double value = exponent ? ldexp(1 + ldexp(mantissa, -f.mantissa_bits), exponent - bias)
                            : ldexp(mantissa, 1 - bias - f.mantissa_bits);
    return half & 0x8000 ? -value : value;
}

/* The same, remembered: positive numbers of both formats. */
static double decode(format f, uint16_t half)
{
    static double values[2][0x8000];
    double *table = values[f.dtype == GD_FLOAT16];
    if (table[1] == 0)
        for (int i = 1; i < 0x8000; i++) table[i] = decode_slowly(f, (uint16_t)i);
    return half & 0x8000 ? -table[half & 0x7fff] : table[half];
}

static uint16_t infinity_of(format f)
{
    return (uint16_t)(((1 << f.exponent_bits) - 1) << f.mantissa_bits);
}

/* Nearest even by bisection over all finite numbers of the format. The middle between two
 * neighbours is exact in double. */
static uint16_t encode(format f, double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0, low = 0, high = infinity_of(f);
    double magnitude = fabs(value);
    if (magnitude >= decode(f, high)) return sign | high;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (decode(f, middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double middle = (decode(f, low) + decode(f, high)) / 2;
    bool up = magnitude > middle || (magnitude == middle && low % 2);
    return sign | (up ? high : low);
}

static uint16_t from_f32(format f, float value)
{
    return f.dtype == GD_BFLOAT16 ? gd_f32_to_bf16(value) : gd_f32_to_f16(value);
}

static uint16_t from_f64(format f, double value)
{
    return f.dtype == GD_BFLOAT16 ? gd_f64_to_bf16(value) : gd_f64_to_f16(value);
}

static float to_f32(format f, uint16_t half)
{
    return f.dtype == GD_BFLOAT16 ? gd_bf16_to_f32(half) : gd_f16_to_f32(half);
}

static uint64_t seed = 1;

/* An assertion for each number would be slow. */
static void check_half(uint16_t half, uint16_t wanted)
{
    if (half != wanted) ck_abort_msg("the bits are %04x, expected %04x", half, wanted);
}

TEST_CASE("convert", NULL, NULL)

LOOP_TEST(every_16_bit_number_widens_and_comes_back, 2)
{
    format f = formats[_i];
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t half = (uint16_t)bits, magnitude = half & 0x7fff;
        float wide = to_f32(f, half);
        if (magnitude > infinity_of(f)) {
            ck_assert(isnan(wide));
            ck_assert((from_f32(f, wide) & 0x7fff) > infinity_of(f));
            ck_assert((from_f64(f, wide) & 0x7fff) > infinity_of(f));
            continue;
        }
        if (magnitude == infinity_of(f))
            ck_assert(isinf(wide) && !signbit(wide) == !(half & 0x8000));
        else
            ck_assert(wide == decode(f, half) && !signbit(wide) == !(half & 0x8000));
        check_half(from_f32(f, wide), half);
        check_half(from_f64(f, wide), half);
    }
}

/* The middles between neighbours, and the floats and doubles next to them on both sides. */
LOOP_TEST(narrowing_rounds_to_nearest_even, 2)
{
    format f = formats[_i];
    for (uint32_t bits = 0; bits < infinity_of(f); bits++) {
        uint16_t half = (uint16_t)bits;
        double middle = (decode(f, half) + decode(f, (uint16_t)(half + 1))) / 2;
        const double near[] = {middle, nextafter(middle, 0), nextafter(middle, INFINITY)};
        const float nearf[] = {(float)middle, nextafterf((float)middle, 0),
                               nextafterf((float)middle, INFINITY)};
        for (int i = 0; i < 3; i++) {
            check_half(from_f64(f, near[i]), encode(f, near[i]));
            check_half(from_f64(f, -near[i]), encode(f, -near[i]));
            check_half(from_f32(f, nearf[i]), encode(f, nearf[i]));
            check_half(from_f32(f, -nearf[i]), encode(f, -nearf[i]));
        }
    }
}

LOOP_TEST(narrowing_agrees_on_random_bits, 2)
{
    format f = formats[_i];
    for (int i = 0; i < 50000; i++) {
        uint64_t bits = random_bits(&seed);
        double wide;
        float single = gd_f32_from_bits((uint32_t)bits);
        memcpy(&wide, &bits, sizeof wide);
        if (!isnan(single)) check_half(from_f32(f, single), encode(f, single));
        if (!isnan(wide)) check_half(from_f64(f, wide), encode(f, wide));
        double usual = ldexp((double)(int64_t)bits, -63 - (int)(bits % 40) + 16);
        check_half(from_f64(f, usual), encode(f, usual));
    }
}

TEST(whole_numbers_truncate_and_saturate)
{
    const double given[] = {0,         -0.9,         0.9,           1.5,
                            -1.5,      2147483646.7, 2147483647.0,  2147483648.0,
                            1e300,     INFINITY,     -2147483648.0, -2147483649.0,
                            -INFINITY, NAN};
    const int32_t wanted[] = {0,          0,          0,          1,          -1,
                              2147483646, 2147483647, 2147483647, 2147483647, 2147483647,
                              INT32_MIN,  INT32_MIN,  INT32_MIN,  0};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        ck_assert_int_eq(gd_f64_to_i32(given[i]), wanted[i]);
}

/* ---- A slow model of memory --------------------------------------------------------------- */

static double get(const void *data, gd_dtype dtype, int64_t i)
{
    switch (dtype) {
    case GD_FLOAT32:
        return ((const float *)data)[i];
    case GD_FLOAT64:
        return ((const double *)data)[i];
    case GD_INT32:
        return ((const int32_t *)data)[i];
    default:
        return decode(formats[dtype == GD_FLOAT16], ((const uint16_t *)data)[i]);
    }
}

static void set(void *data, gd_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case GD_FLOAT32:
        ((float *)data)[i] = (float)value;
        break;
    case GD_FLOAT64:
        ((double *)data)[i] = value;
        break;
    case GD_INT32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    default:
        ((uint16_t *)data)[i] = encode(formats[dtype == GD_FLOAT16], value);
        break;
    }
}

/* Room for n elements of any dtype, filled with numbers that need rounding in 16 bits. */
static void *numbers(gd_dtype dtype, int64_t n)
{
    void *data = calloc((size_t)n + 1, sizeof(double));
    ck_assert_ptr_nonnull(data);
    for (int64_t i = 0; i < n; i++)
        set(data, dtype, i, ((double)random_below(&seed, 2000001) - 1000000) / 1000);
    return data;
}

/* ---- Copies ------------------------------------------------------------------------------- */

typedef struct array {
    int64_t size, shape[GD_MAX_DIMS], strides[GD_MAX_DIMS];
} array;

/* A layout of `shape` with its dimensions in some order in memory, and gaps between elements. */
static array random_array(int ndim, const int64_t *shape, bool repeat)
{
    array a = {.size = 1};
    int order[GD_MAX_DIMS] = {0};
    for (int d = 0; d < ndim; d++) {
        int swap = (int)random_below(&seed, d + 1);
        order[d] = order[swap];
        order[swap] = d;
        a.shape[d] = shape[d];
    }
    if (random_below(&seed, 3) == 0) /* often the usual order */
        for (int d = 0; d < ndim; d++) order[d] = ndim - 1 - d;
    for (int i = 0; i < ndim; i++) {
        int d = order[i];
        if (random_below(&seed, 4) == 0) a.size += random_below(&seed, 3);
        a.strides[d] = repeat && random_below(&seed, 4) == 0 ? 0 : a.size;
        if (a.strides[d]) a.size *= gd_max64(shape[d], 1);
    }
    return a;
}

/* Copies one random array, twice with different numbers of threads, and looks at every element of
 * dst's memory: those of the array are src's, and those between are as they were. */
static void check_copy(int ndim, const int64_t *shape, gd_dtype to, gd_dtype from)
{
    array d = random_array(ndim, shape, false), s = random_array(ndim, shape, true);
    void *dst = numbers(to, d.size), *src = numbers(from, s.size), *again = numbers(to, d.size);
    void *wanted = calloc((size_t)d.size + 1, sizeof(double));
    ck_assert_ptr_nonnull(wanted);
    size_t bytes = (size_t)d.size * gd_dtype_size(to);
    memcpy(wanted, dst, bytes);
    memcpy(again, dst, bytes);

    int64_t count = 1;
    for (int i = 0; i < ndim; i++) count *= shape[i];
    for (int64_t place = 0; place < count; place++) {
        int64_t rest = place, i = 0, j = 0;
        for (int k = ndim - 1; k >= 0; k--) {
            i += rest % shape[k] * d.strides[k];
            j += rest % shape[k] * s.strides[k];
            rest /= shape[k];
        }
        set(wanted, to, i, get(src, from, j));
    }
    gd_layout to_layout = {dst, to, ndim, d.shape, d.strides};
    gd_layout from_layout = {src, from, ndim, s.shape, s.strides};
    gd_copy_cpu(to_layout, from_layout, threads[1]);
    ck_assert_mem_eq(dst, wanted, bytes);
    to_layout.data = again;
    gd_copy_cpu(to_layout, from_layout, threads[3]);
    ck_assert_mem_eq(again, wanted, bytes);
    free(dst), free(src), free(again), free(wanted);
}

TEST_CASE("copy", make_contexts, free_contexts)

TEST(copies_any_strides_and_dtypes)
{
    for (int round = 0; round < test_rounds(1000); round++) {
        int ndim = (int)random_below(&seed, 6);
        int64_t shape[GD_MAX_DIMS];
        for (int d = 0; d < ndim; d++) {
            const int64_t sizes[] = {1, 2, 3, 5, 8, 17};
            shape[d] = random_below(&seed, 40) == 0 ? 0 : sizes[random_below(&seed, 6)];
        }
        check_copy(ndim, shape, (gd_dtype)random_below(&seed, 5), (gd_dtype)random_below(&seed, 5));
    }
}

TEST(copies_large_arrays)
{
    const int64_t shapes[][2] = {{1, 40000}, {130, 257}, {257, 130}, {9001, 3}, {3, 9001}};
    for (int i = 0; i < 5; i++)
        for (int round = 0; round < 8; round++)
            check_copy(2, shapes[i], round % 2 ? GD_FLOAT32 : GD_BFLOAT16, GD_FLOAT32);
}

TEST(copies_eight_dimensions)
{
    const int64_t shape[] = {2, 1, 3, 2, 2, 3, 1, 2};
    for (int round = 0; round < 50; round++) check_copy(8, shape, GD_FLOAT64, GD_FLOAT32);
}

/* ---- Packed arithmetic -------------------------------------------------------------------- */

static const int64_t lengths[] = {0, 1, 7, 511, 513, 4096, 4097, 20011, 70000};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

TEST_CASE("packed", make_contexts, free_contexts)

TEST(accumulate_adds_and_rounds_once)
{
    for (int pair = 0; pair < 16; pair++) {
        gd_dtype to = (gd_dtype)(pair / 4), from = (gd_dtype)(pair % 4);
        bool wide = to == GD_FLOAT64 || from == GD_FLOAT64;
        for (int l = 0; l < LENGTHS; l++) {
            int64_t n = lengths[l];
            void *dst = numbers(to, n), *src = numbers(from, n), *again = numbers(to, n);
            void *wanted = calloc((size_t)n + 1, sizeof(double));
            memcpy(again, dst, (size_t)n * gd_dtype_size(to));
            for (int64_t i = 0; i < n; i++) {
                double a = get(dst, to, i), b = get(src, from, i);
                set(wanted, to, i, wide ? a + b : (float)a + (float)b);
            }
            gd_accumulate_cpu(dst, to, src, from, n, threads[1]);
            gd_accumulate_cpu(again, to, src, from, n, threads[2]);
            ck_assert_mem_eq(dst, wanted, (size_t)n * gd_dtype_size(to));
            ck_assert_mem_eq(again, wanted, (size_t)n * gd_dtype_size(to));
            free(dst), free(src), free(again), free(wanted);
        }
    }
}

TEST(fill_sets_exactly_n)
{
    const double values[] = {0, 1, -2.7182818284590452, 12345678, -0.0};
    for (int d = 0; d < GD_DTYPE_COUNT; d++)
        for (int l = 0; l < LENGTHS; l++)
            for (int v = 0; v < 5; v++) {
                int64_t n = lengths[l];
                gd_dtype dtype = (gd_dtype)d;
                void *data = numbers(dtype, n + 1), *wanted = numbers(dtype, n + 1);
                memcpy(wanted, data, (size_t)(n + 1) * gd_dtype_size(dtype));
                for (int64_t i = 0; i < n; i++) set(wanted, dtype, i, values[v]);
                gd_fill_cpu(data, dtype, values[v], n, threads[1 + l % 2]);
                ck_assert_mem_eq(data, wanted, (size_t)(n + 1) * gd_dtype_size(dtype));
                free(data), free(wanted);
            }
}

static double sum_squares(const void *x, gd_dtype dtype, int64_t n, gd_context *ctx)
{
    double sum = NAN;
    gd_sum_squares_cpu(&sum, x, dtype, n, NULL, ctx);
    return sum;
}

TEST(sum_of_squares_is_close_and_the_same_for_all_threads)
{
    for (int d = 0; d < 4; d++)
        for (int l = 0; l <= LENGTHS; l++) {
            int64_t n = l < LENGTHS ? lengths[l] : 256 * GD_BLOCK + 12345;
            gd_dtype dtype = (gd_dtype)d;
            void *x = numbers(dtype, n);
            double wanted = 0;
            for (int64_t i = 0; i < n; i++) wanted += get(x, dtype, i) * get(x, dtype, i);
            double sum = sum_squares(x, dtype, n, threads[1]);
            ck_assert_double_le(fabs(sum - wanted), 1e-12 * wanted);
            for (int k = 2; k < 5; k++) ck_assert(sum_squares(x, dtype, n, threads[k]) == sum);
            free(x);
        }
}

/* Squares that overflow float32 do not overflow a sum in double; NaN comes through. */
TEST(sum_of_squares_of_extremes)
{
    float x[] = {1e30f, -1e30f, 1e-30f};
    ck_assert_double_le(fabs(sum_squares(x, GD_FLOAT32, 3, threads[1]) / 2e60 - 1), 1e-6);
    x[1] = NAN;
    ck_assert(isnan(sum_squares(x, GD_FLOAT32, 3, threads[1])));
}

TEST(scale_multiplies_and_rounds_once)
{
    for (int d = 0; d < 4; d++)
        for (int l = 0; l < LENGTHS; l++) {
            int64_t n = lengths[l];
            gd_dtype dtype = (gd_dtype)d;
            void *x = numbers(dtype, n), *wanted = numbers(dtype, n);
            for (int64_t i = 0; i < n; i++) set(wanted, dtype, i, get(x, dtype, i) * 0.3);
            gd_scale_cpu(x, dtype, 0.3, n, NULL, threads[1 + l % 2]);
            ck_assert_mem_eq(x, wanted, (size_t)n * gd_dtype_size(dtype));
            free(x), free(wanted);
        }
}

CHECK_MAIN("copy")
