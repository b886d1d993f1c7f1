/* test_norm_linear_decode.c - the norm and the product of one op against sums in long double; strided
 * inputs; calls that it refuses. */
#include "each_context.h"

typedef struct kind {
    gd_dtype dtype;
    double tolerance;
} kind;

static void check_rows(kind as, int64_t M, int64_t N, int64_t K, double eps, uint64_t *seed)
{
    const gd_dtype dtype = as.dtype;
    gd_context *ctx = test_context(1 + (int)random_below(seed, 2));
    gd_tensor *x = random_leaf(ctx, dtype, GD_SHAPE(M, 1, K), -2, 2, seed);
    gd_tensor *residual = random_leaf(ctx, dtype, GD_SHAPE(M, 1, K), -2, 2, seed);
    gd_tensor *norm = random_leaf(ctx, dtype, GD_SHAPE(K), -1, 2, seed), *sum = NULL;
    gd_tensor *weight = random_leaf(ctx, dtype, GD_SHAPE(N, K), -1, 1, seed);
    gd_tensor *y = gd_norm_linear_decode(x, residual, norm, weight, eps, &sum);
    ck_assert_no_error(ctx);
    ck_assert(same_shape(shape_of(y), SHAPE(M, 1, N)));
    ck_assert(same_shape(shape_of(sum), SHAPE(M, 1, K)));
    gd_tensor *want_sum = gd_add(x, residual);
    size_t size;
    void *bytes = bytes_of(sum, &size), *want_bytes = bytes_of(want_sum, &size);
    ck_assert_mem_eq(bytes, want_bytes, size);
    double *a = values_of(x), *b = values_of(residual), *g = values_of(norm);
    double *w = values_of(weight), *got = values_of(y);
    for (int64_t m = 0; m < M; m++) {
        long double squares = 0;
        for (int64_t k = m * K; k < (m + 1) * K; k++) squares += powl((long double)a[k] + b[k], 2);
        const long double rstd = 1 / sqrtl(squares / (long double)K + eps);
        for (int64_t n = 0; n < N; n++) {
            long double want = 0, terms = 0;
            for (int64_t k = 0; k < K; k++) {
                const long double h = ((long double)a[m * K + k] + b[m * K + k]) * rstd * g[k];
                want += h * w[n * K + k];
                terms += fabsl(h * w[n * K + k]);
            }
            const double error = (double)fabsl(got[m * N + n] - want);
            ck_assert_msg(error <= as.tolerance * (double)terms, "[%lld, %lld] is %g, wanted %g",
                          (long long)m, (long long)n, got[m * N + n], (double)want);
        }
    }
    free(bytes), free(want_bytes), free(a), free(b), free(g), free(w), free(got);
    gd_context_free(ctx);
}

TEST(rows_are_those_of_exact_sums)
{
    static const kind kinds[] = {
        {GD_FLOAT64, 1e-14}, {GD_FLOAT32, 2e-6}, {GD_BFLOAT16, 0.004}, {GD_FLOAT16, 6e-4}};
    uint64_t seed = 11;
    for (int i = 0; i < 80; i++) {
        const int64_t K = random_size(&seed, 1, i % 5 ? 60 : 3000);
        check_rows(kinds[i % 4], random_size(&seed, 0, 3), random_size(&seed, 1, 40), K,
                   i % 3 ? 1e-5 : 0.5, &seed);
    }
}

TEST(the_sum_may_be_left_out)
{
    uint64_t seed = 12;
    gd_tensor *x = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 6), -2, 2, &seed);
    gd_tensor *norm = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(6), -1, 2, &seed), *sum;
    gd_tensor *weight = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(4, 6), -1, 1, &seed);
    size_t size;
    void *with = bytes_of(gd_norm_linear_decode(x, x, norm, weight, 0, &sum), &size);
    void *without = bytes_of(gd_norm_linear_decode(x, x, norm, weight, 0, NULL), &size);
    ck_assert_no_error(ctx);
    ck_assert_mem_eq(with, without, size);
    free(with), free(without);
}

TEST(bad_calls_are_refused)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 6));
    gd_tensor *row = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(6));
    gd_tensor *weight = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4, 6));
    gd_tensor *none = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(0, 6));
    gd_tensor *empty = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 0));
    gd_tensor *scalar = gd_tensor_create(ctx, GD_FLOAT32, 0, NULL);
    gd_tensor *sum;
#define BAD(a, b, c, d, eps, words)                                       \
    do {                                                                  \
        ck_assert_ptr_null(gd_norm_linear_decode(a, b, c, d, eps, &sum)); \
        ck_assert_ptr_null(sum);                                          \
        ck_assert_error(ctx, "norm_linear_decode: " words);               \
    } while (0)
    BAD(scalar, scalar, row, weight, 0, "x has shape [], wanted [..., K], K > 0");
    BAD(empty, empty, row, weight, 0, "x has shape [1, 0], wanted [..., K], K > 0");
    BAD(x, row, row, weight, 0, "residual has shape [6], wanted the same for x [1, 6]");
    BAD(x, x, row, none, 0, "weight has shape [0, 6], wanted [N, K], N > 0, for x [1, 6]");
    BAD(x, x, row, row, 0, "weight has shape [6]");
    BAD(x, x, row, weight, -1, "eps is -1, wanted a finite number of at least 0");
    BAD(x, x, row, weight, (double)INFINITY, "eps is inf");
    BAD(x, x, row, weight, (double)NAN, "eps is ");
}

CHECK_MAIN_WITHIN("norm_linear_decode", 0, setup, teardown)
