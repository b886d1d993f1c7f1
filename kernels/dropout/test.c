/* test.c - dropout against the words of the random stream. */
#include "each_context.h"

/* p as it takes effect: the nearest multiple of 2^-16 below 1. */
static double in_effect(double p)
{
    return fmin(floor(p * 65536 + 0.5), 65535) / 65536;
}

/* Element i is kept if half i % 2, the low one first, of word i / 2 of the stream is not below p
 * 2^16, and then divided by 1 - p. */
TEST(dropout_follows_the_stream)
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    const double rates[] = {0, 0.2, 0.5, 0.99};
    const int64_t sizes[] = {0, 1, 5, 13, 4095, 4096, 4097, 30000};
    uint64_t seed = 1;
    for (int i = 0; i < 8 * 16; i++) {
        int64_t n = sizes[i / 16];
        double p = rates[i / 4 % 4];
        gd_dtype dtype = dtypes[i % 4];
        gd_context *ctx = test_context(1 + i % 2);
        gd_random_state state = {.seed = 77, .offset = (uint64_t)i * 1004};
        gd_random_set(ctx, state);
        gd_tensor *x = random_leaf(ctx, dtype, GD_SHAPE(n), -1, 1, &seed);
        gd_tensor *dy = random_leaf(ctx, dtype, GD_SHAPE(n), -1, 1, &seed);
        uint32_t *words = malloc(((size_t)n / 2 + 1) * sizeof *words);
        gd_philox(state.seed, 0, state.offset, (n + 1) / 2, words);
        gd_tensor *y = gd_keep(gd_dropout(x, p));
        ck_assert_no_error(ctx);
        int64_t taken = p > 0 ? (n + 7) / 8 * 4 : 0;
        ck_assert_int_eq((int64_t)(gd_random_get(ctx).offset - state.offset), taken);
        double *vx = values_of(x), *vdy = values_of(dy);
        for (int64_t k = 0; k < n; k++) {
            double bits = k % 2 ? words[k / 2] / 65536 : words[k / 2] % 65536;
            double factor = bits / 65536 < in_effect(p) ? 0 : 1 / (1 - in_effect(p));
            vx[k] *= factor, vdy[k] *= factor;
        }
        assert_sums("y", y, vx, tolerance_of(dtype));
        backward_with(y, dy);
        assert_sums("dx", gd_grad(x), vdy, tolerance_of(dtype));
        free(vx), free(vdy), free(words);
        gd_context_free(ctx);
    }
}

/* A p that rounds to 0 drops nothing and draws nothing; one that would round to 1 keeps one element
 * of 65536. */
TEST(dropout_near_0_and_1)
{
    enum { N = 1 << 21 };
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(N));
    gd_tensor_fill(x, 1);
    const uint64_t start = gd_random_get(ctx).offset;
    double *all = values_of(gd_dropout(x, 0x1p-18));
    ck_assert_uint_eq(gd_random_get(ctx).offset, start);
    double *few = values_of(gd_dropout(x, 1 - 0x1p-40));
    ck_assert_uint_eq(gd_random_get(ctx).offset, start + N / 2);
    int wrong = 0, kept = 0;
    for (int i = 0; i < N; i++) {
        wrong += all[i] != 1 || (few[i] != 0 && few[i] != 65536);
        kept += few[i] != 0;
    }
    ck_assert_int_eq(wrong, 0);
    ck_assert_msg(kept > 32 - 5 * 6 && kept < 32 + 5 * 6, "%d kept, wanted about 32", kept);
    free(all), free(few);
}

/* A dropped NaN is 0, a kept one NaN. */
TEST(dropout_of_nan)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(100));
    gd_tensor_fill(x, NAN);
    double *y = values_of(gd_dropout(x, 0.5));
    int nan = 0, zero = 0;
    for (int i = 0; i < 100; i++) nan += isnan(y[i]) != 0, zero += y[i] == 0;
    ck_assert(nan > 20 && zero > 20 && nan + zero == 100);
    free(y);
}

CHECK_MAIN_WITHIN("dropout", setup, teardown)
