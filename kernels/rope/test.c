/* test.c - rope as multiplication with exp(i angle), in double complex numbers. */
#include "each_context.h"

#include <complex.h>

typedef struct rope_case {
    int64_t B, T, H, D;
    gd_rope_options options;
} rope_case;

/* out = x turned by `way` times the angles. */
static double *turned(const rope_case *c, const double *x, double way)
{
    int64_t pairs = c->D / 2;
    double base = c->options.base != 0 ? c->options.base : 10000;
    double *out = zeros(c->B * c->T * c->H * c->D);
    for (int64_t row = 0; row < c->B * c->T * c->H; row++) {
        double position = (double)(c->options.position + row / c->H % c->T);
        for (int64_t i = 0; i < pairs; i++) {
            int64_t a = c->options.interleaved ? 2 * i : i;
            int64_t b = c->options.interleaved ? 2 * i + 1 : i + pairs;
            double angle = way * position * pow(base, -2.0 * (double)i / (double)c->D);
            double complex z = (x[row * c->D + a] + I * x[row * c->D + b]) * cexp(I * angle);
            out[row * c->D + a] = creal(z), out[row * c->D + b] = cimag(z);
        }
    }
    return out;
}

static void check_rope(const rope_case *c, gd_dtype dtype, int threads, bool by_heads,
                       uint64_t *seed)
{
    gd_context *ctx = test_context(threads);
    gd_tensor *leaf = by_heads
                          ? random_leaf(ctx, dtype, GD_SHAPE(c->B, c->H, c->T, c->D), -1, 1, seed)
                          : random_leaf(ctx, dtype, GD_SHAPE(c->B, c->T, c->H, c->D), -1, 1, seed);
    gd_tensor *x = by_heads ? gd_transpose(leaf, 1, 2) : leaf;
    gd_tensor *dy = random_leaf(ctx, dtype, GD_SHAPE(c->B, c->T, c->H, c->D), -1, 1, seed);
    gd_tensor *y = gd_keep(gd_rope(x, &c->options));
    ck_assert_no_error(ctx);
    double *vx = values_of(x), *vdy = values_of(dy);
    double *want = turned(c, vx, 1), *dx = turned(c, vdy, -1);
    /* An angle of n radians has an error of n roundings. */
    double farthest = (double)(c->options.position + c->T);
    double tolerance = fmax(tolerance_of(dtype), 1e-15 * farthest);
    assert_sums("y", y, want, tolerance);
    backward_with(y, dy);
    gd_tensor *gradient = by_heads ? gd_transpose(gd_grad(leaf), 1, 2) : gd_grad(leaf);
    assert_sums("dx", gradient, dx, tolerance);
    free(vx), free(vdy), free(want), free(dx);
    gd_context_free(ctx);
}

TEST(rope_is_a_complex_product)
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    uint64_t seed = 1;
    for (int i = 0; i < 64; i++) {
        rope_case c = {.options = {.base = i % 3 ? 0 : 500, .interleaved = i & 1}};
        c.B = random_size(&seed, 1, 3);
        c.T = random_size(&seed, 1, 70);
        c.H = random_size(&seed, 1, 4);
        c.D = 2 * random_size(&seed, 0, 40);
        c.options.position = i & 2 ? random_size(&seed, 0, 3000) : 0;
        check_rope(&c, dtypes[i / 4 % 4], 1 + i % 2, i & 8, &seed);
    }
}

/* Position 100 million: the angle of the first pair has no fraction left in float. */
TEST(rope_far_out)
{
    uint64_t seed = 2;
    rope_case c = {1, 5, 2, 8, {.position = 100000000}};
    check_rope(&c, GD_FLOAT32, 1, false, &seed);
    rope_case nothing = {2, 0, 3, 8, {.position = 0}};
    check_rope(&nothing, GD_FLOAT32, 2, false, &seed);
}

/* A product of a turned query and a turned key depends on the distance alone. */
TEST(rope_is_relative)
{
    uint64_t seed = 3;
    gd_tensor *x = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(1, 2, 1, 16), -1, 1, &seed);
    double product[2];
    for (int i = 0; i < 2; i++) {
        gd_rope_options options = {.position = i * 777};
        double *y = values_of(gd_rope(x, &options));
        product[i] = 0;
        for (int d = 0; d < 16; d++) product[i] += y[d] * y[16 + d];
        free(y);
    }
    ck_assert_double_eq_tol(product[0], product[1], 1e-12);
}

/* Queries, keys and values by one op: as gd_rope of slices, and values as they are. The gradients
 * of one, two or all three of the outputs come back. */
TEST(rope_qkv_is_rope_of_q_and_k)
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    uint64_t seed = 5;
    for (int i = 0; i < 56; i++) {
        const gd_dtype dtype = dtypes[i % 4];
        const int64_t kv = 1 + i % 3, H = kv * (1 + i / 3 % 3), all = H + 2 * kv;
        const int64_t B = 1 + i % 5, T = 1 + i % 7, D = 2 * (1 + i % 9),
                      first[] = {0, H, H + kv, all};
        const gd_rope_options options = {.position = i, .interleaved = i & 4};
        gd_context *ctx = test_context(1 + i % 2);
        gd_tensor *qkv = random_leaf(ctx, dtype, GD_SHAPE(B, T, all, D), -1, 1, &seed);
        gd_tensor *out[3] = {NULL}, *ends[2][3], *cotangents[3];
        gd_rope_qkv(qkv, kv, &options, &out[0], &out[1], &out[2]);
        int count = 0;
        for (int k = 0; k < 3; k++) {
            gd_tensor *part = gd_slice(qkv, 2, first[k], first[k + 1]);
            gd_tensor *want = gd_keep(k < 2 ? gd_rope(part, &options) : gd_contiguous(part));
            double *values = values_of(want);
            assert_sums("an output", gd_keep(out[k]), values, tolerance_of(dtype));
            free(values);
            if (!((i % 7 + 1) >> k & 1)) continue;
            ends[0][count] = want, ends[1][count] = out[k];
            cotangents[count++] =
                random_leaf(ctx, dtype, GD_SHAPE(B, T, first[k + 1] - first[k], D), -1, 1, &seed);
        }
        double *dx = NULL;
        for (int fused = 0; fused < 2; fused++) {
            gd_backward_from(ends[fused], count, &(gd_backward_options){.cotangents = cotangents});
            ck_assert_no_error(ctx);
            if (fused) assert_sums("dqkv", gd_grad(qkv), dx, tolerance_of(dtype));
            if (!fused) dx = values_of(gd_grad(qkv));
            gd_grad_clear(qkv);
        }
        free(dx);
        gd_context_free(ctx);
    }
}

TEST(rope_qkv_says_what_does_not_fit)
{
    gd_tensor *qkv = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 2, 6, 4));
    gd_tensor *q, *k, *v;
    ck_assert_int_ne(gd_rope_qkv(qkv, 3, NULL, &q, &k, &v), GD_OK);
    ck_assert(!q && !k && !v);
    ck_assert_error(ctx, "rope_qkv: kv_heads is 3, wanted 1 to 2, since qkv [1, 2, 6, 4] has 6");
    gd_rope_qkv(qkv, 0, NULL, &q, &k, &v);
    ck_assert_error(ctx, "rope_qkv: kv_heads is 0, wanted 1 to 2");
    gd_rope_qkv(qkv, 1, NULL, &q, NULL, &v);
    ck_assert_error(ctx, "rope_qkv: k is NULL, wanted a place for the tensor");
    ck_assert(!q && !v && gd_rope_qkv(NULL, 1, NULL, NULL, NULL, NULL));
}

CHECK_MAIN_WITHIN("rope", setup, teardown)
