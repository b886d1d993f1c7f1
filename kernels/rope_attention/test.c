/* test.c - attention of queries, keys and values that are packed and rotated, against its plain
 * twin; and what is refused. */

#include "rope_attention/rope_attention.h"
#include "twin.h"

TWIN(rope_attention)

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
    const gd_rope_options rope = {.base = args.rope.rope.base,
                                  .position = args.rope.rope.position,
                                  .interleaved = args.rope.rope.interleaved};
    const gd_attention_options options = {.causal = args.attention.causal,
                                          .scale = args.attention.scale,
                                          .window = args.attention.window};
    gd_tensor *q, *k, *v;
    gd_rope_qkv(qkv, KV, &rope, &q, &k, &v);
    double *want = values_of(gd_attention(q, k, v, &options));
    assert_sums("y", gd_rope_attention(qkv, KV, &rope, &options), want, tolerance_of(dtype));
    free(want);
    gd_context_free(ctx);
}

CHECK_MAIN("rope_attention")
