/* test.c - attention of queries, keys and values that are packed and rotated, against the
 * textbook's attention of numbers rotated here; and what is refused. */

#include "attention/test_reference.h"
#include "rope_attention/rope_attention.h"
#include "twin.h"

TWIN(rope_attention)

/* The heads from `first` on of x [rows, all heads, D], as [rows, heads, D]. */
static double *some_heads(const double *x, int64_t rows, int64_t all, int64_t D, int64_t first,
                          int64_t heads)
{
    double *some = zeros(rows * heads * D);
    for (int64_t i = 0; i < rows * heads * D; i++)
        some[i] = x[(i / (heads * D) * all + first) * D + i % (heads * D)];
    return some;
}

/* x [B, T, heads, D], its pairs turned by `way` times the angles of rope. */
static void turn(double *x, const sizes *z, int64_t heads, const gd_rope_options *rope, double way)
{
    const int64_t half = z->D / 2;
    for (int64_t i = 0; i < z->B * z->T * heads * half; i++) {
        const int64_t row = i / half, p = i % half;
        const double position = (double)(rope->position + row / heads % z->T);
        const double angle = way * position * pow(rope->base, -2 * (double)p / (double)z->D);
        double *a = &x[row * z->D + (rope->interleaved ? 2 * p : p)];
        double *b = &x[row * z->D + (rope->interleaved ? 2 * p + 1 : p + half)];
        const double turned = *a * cos(angle) - *b * sin(angle);
        *b = *a * sin(angle) + *b * cos(angle);
        *a = turned;
    }
}

static void check_rope_attention(int threads, gd_dtype dtype, const sizes *z,
                                 const gd_rope_options *rope, uint64_t *seed)
{
    const int64_t rows = z->B * z->T, all = z->H + 2 * z->KV, H = z->H, KV = z->KV, D = z->D;
    gd_context *ctx = test_context(threads);
    gd_tensor *qkv = random_leaf(ctx, dtype, GD_SHAPE(z->B, z->T, all, D), -1, 1, seed);
    gd_tensor *dy = random_leaf(ctx, dtype, GD_SHAPE(z->B, z->T, H, D), -1, 1, seed);
    const gd_attention_options options = {.causal = z->causal, .scale = z->scale};
    double *x = values_of(qkv), *vdy = values_of(dy), *want_dx = zeros(rows * all * D);
    double *q = some_heads(x, rows, all, D, 0, H), *k = some_heads(x, rows, all, D, H, KV);
    double *v = some_heads(x, rows, all, D, H + KV, KV);
    turn(q, z, H, rope, 1), turn(k, z, KV, rope, 1);
    reference want = attend(z, (operands){.q = q, .k = k, .v = v, .dy = vdy});
    turn(want.dq, z, H, rope, -1), turn(want.dk, z, KV, rope, -1);
    const double *part[3] = {want.dq, want.dk, want.dv};
    for (int64_t i = 0; i < rows * all * D; i++) {
        const int64_t head = i / D % all, row = i / D / all;
        const int which = head < H ? 0 : head < H + KV ? 1 : 2;
        const int64_t heads = which ? KV : H, own = head - (which ? H + (which - 1) * KV : 0);
        want_dx[i] = part[which][(row * heads + own) * D + i % D];
    }
    const double tolerance = tolerance_of(dtype);
    gd_no_grad_begin(ctx);
    assert_sums("y without a tape", gd_rope_attention(qkv, KV, rope, &options), want.y, tolerance);
    gd_no_grad_end(ctx);
    gd_tensor *y = gd_keep(gd_rope_attention(qkv, KV, rope, &options));
    ck_assert_no_error(ctx);
    assert_sums("y", y, want.y, tolerance);
    backward_with(y, dy);
    assert_sums("dqkv", gd_grad(qkv), want_dx, 4 * tolerance);
    free(x), free(vdy), free(want_dx), free(q), free(k), free(v);
    free_reference(want);
    gd_context_free(ctx);
}

TEST(rope_attention_is_the_textbook)
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    uint64_t seed = 8;
    for (int i = 0; i < 48; i++) {
        sizes z = {.causal = i & 1, .scale = i & 2 ? 0 : 0.4};
        const gd_rope_options rope = {
            .base = i % 3 ? 10000 : 500, .position = i % 5 * 9, .interleaved = i & 8};
        z.B = random_size(&seed, 1, 3);
        z.T = z.S = random_size(&seed, 1, i % 7 ? 30 : 110);
        z.KV = random_size(&seed, 1, 3);
        z.H = z.KV * random_size(&seed, 1, 3);
        z.D = z.E = 2 * random_size(&seed, 1, i % 3 ? 10 : 32);
        check_rope_attention(1 + i % 2, dtypes[i / 2 % 4], &z, &rope, &seed);
    }
}

TEST(rope_attention_says_what_does_not_fit)
{
    gd_context *ctx = test_context(1);
    gd_tensor *qkv = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 2, 7, 4));
    REFUSED(gd_rope_attention(qkv, 2, NULL, NULL),
            "rope_attention: qkv [1, 2, 7, 4] has 3 heads of queries, wanted a "
            "multiple of the 2 heads of keys");
    REFUSED(gd_rope_attention(qkv, 4, NULL, NULL),
            "rope_attention: kv_heads is 4, wanted 1 to 3, since qkv [1, 2, 7, 4] has "
            "7 heads");
    gd_attention_options options = {.mask = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(2, 2))};
    REFUSED(gd_rope_attention(qkv, 1, NULL, &options),
            "rope_attention: options->mask is given, wanted NULL");
    ck_assert_ptr_null(gd_rope_attention(NULL, 1, NULL, NULL));
    gd_context_free(ctx);
}

/* In every layout, with all options, and without rows. */
LOOP_TEST(kernels_are_their_plain_twin, test_rounds(64))
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    const gd_dtype dtype = dtypes[_i % 4];
    uint64_t seed = 900 + (uint64_t)_i;
    gd_context *ctx = test_context(1 + _i % 3);
    const int64_t KV = random_size(&seed, 1, 3), H = KV * random_size(&seed, 1, 3);
    const shape s = SHAPE(random_size(&seed, 0, 3), random_size(&seed, 0, 90), H + 2 * KV,
                          2 * random_size(&seed, 1, 20));
    const rope_attention_args args = {
        {{.base = 1000, .position = _i % 3 * 7, .interleaved = random_chance(&seed, 0.5)}, KV},
        {.causal = _i & 1,
         .scale = random_in(&seed, -1, 1),
         .dropout = random_chance(&seed, 0.3) ? 0.25 : 0,
         .window = random_chance(&seed, 0.3) ? 9 : 0}};
    gd_tensor *qkv = random_tensor(ctx, dtype, s, (layout)(_i / 4 % LAYOUTS), -1, 1, &seed);
    assert_twin(rope_attention_twin(), &qkv, 1, &args, 16 * tolerance_of(dtype), &seed);
    gd_context_free(ctx);
}

CHECK_MAIN("rope_attention")
