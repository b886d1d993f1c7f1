/* test_attention_decode.c - attention token by token against all tokens at once, by rope_qkv and
 * attention; what it stores; calls that it refuses. */
#include "each_context.h"

enum { MOST = 23 };

typedef struct sizes {
    int64_t B, T, KV, G, D, capacity;
    gd_rope_options rope;
} sizes;

/* A view [B, capacity, KV, D] of a larger tensor, or a tensor of that shape; of NaN, or in 16 bits,
 * where the rows are converted, of zeros. */
static gd_tensor *make_rows(gd_context *ctx, gd_dtype dtype, const sizes *z, bool inside)
{
    const int64_t more = inside ? 2 : 0;
    gd_tensor *all =
        gd_tensor_create(ctx, dtype, GD_SHAPE(z->B, z->capacity + more, z->KV, z->D + more));
    gd_tensor_fill(all, (double)NAN);
    return inside ? gd_narrow(gd_narrow(all, 1, 1, z->capacity), 3, 1, z->D) : all;
}

/* Compares a [B, T, heads, D] with row `t` of b [B, T', heads, D], where a has one row. */
static void same_row(const char *what, const gd_tensor *a, gd_tensor *b, int64_t t,
                     double tolerance)
{
    double *left = values_of(a), *right = values_of(gd_narrow(b, 1, t, 1));
    for (int64_t i = 0; i < gd_tensor_count(a); i++)
        ck_assert_msg(fabs(left[i] - right[i]) <= tolerance, "%s, token %d: %.9g, wanted %.9g",
                      what, (int)t, left[i], right[i]);
    free(left), free(right);
}

static void check_text(const sizes *z, gd_dtype dtype, double tolerance, bool inside, int threads,
                       uint64_t *seed)
{
    const int64_t heads = (z->G + 2) * z->KV;
    const gd_attention_options causal = {.causal = true};
    gd_context *ctx = test_context(threads);
    gd_tensor *all = random_leaf(ctx, dtype, GD_SHAPE(z->B, z->T, heads, z->D), -2, 2, seed), *q,
              *k, *v;
    gd_no_grad_begin(ctx);
    gd_tensor *keys = make_rows(ctx, dtype, z, inside), *values = make_rows(ctx, dtype, z, inside);
    gd_tensor *position = gd_tensor_create(ctx, GD_INT32, 0, NULL);
    gd_rope_qkv(all, z->KV, &z->rope, &q, &k, &v);
    gd_tensor *want = gd_attention(q, k, v, &causal);
    for (int32_t t = 0; t < z->T; t++) {
        gd_tensor_write(position, &t, sizeof t);
        gd_tensor *y =
            gd_attention_decode(gd_narrow(all, 1, t, 1), keys, values, position, &z->rope);
        ck_assert_no_error(ctx);
        same_row("y", y, want, t, tolerance);
    }
    for (int64_t t = 0; t < z->T; t++) {
        same_row("k", gd_narrow(keys, 1, t, 1), k, t, tolerance);
        same_row("v", gd_narrow(values, 1, t, 1), v, t, 0);
    }
    double *rest = values_of(gd_narrow(keys, 1, z->T, z->capacity - z->T));
    for (int64_t i = 0; i < z->B * (z->capacity - z->T) * z->KV * z->D; i++)
        ck_assert(isnan(rest[i]));
    free(rest);
    gd_no_grad_end(ctx);
    gd_context_free(ctx);
}

TEST(token_by_token_is_all_at_once)
{
    static const struct {
        gd_dtype dtype;
        double tolerance;
    } kinds[] = {{GD_FLOAT64, 1e-14}, {GD_FLOAT32, 4e-6}, {GD_BFLOAT16, 0.03}, {GD_FLOAT16, 0.004}};
    uint64_t seed = 3;
    for (int i = 0; i < 48; i++) {
        sizes z = {.rope = {.base = i % 3 ? 0 : 500, .interleaved = i & 1}};
        z.B = random_size(&seed, 1, 3), z.T = random_size(&seed, 1, MOST);
        z.KV = random_size(&seed, 1, 3), z.G = random_size(&seed, 1, 3);
        z.D = 2 * random_size(&seed, 1, 20), z.capacity = z.T + random_below(&seed, 5);
        check_text(&z, kinds[i % 4].dtype, kinds[i % 4].tolerance, i / 4 % 2, 1 + i / 8 % 2, &seed);
    }
}

TEST(threads_do_not_change_a_bit)
{
    void *bytes[2];
    size_t size;
    int32_t at = 899;
    for (int threads = 1; threads <= 2; threads++) {
        uint64_t seed = 5;
        gd_context *ctx = test_context(threads);
        gd_tensor *qkv = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 1, 16, 64), -2, 2, &seed);
        gd_tensor *keys = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 900, 4, 64), -2, 2, &seed);
        gd_tensor *values = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 900, 4, 64), -2, 2, &seed);
        gd_tensor *position = gd_tensor_from(ctx, GD_INT32, 0, NULL, &at);
        gd_tensor *y = gd_attention_decode(qkv, keys, values, position, NULL);
        bytes[threads - 1] = bytes_of(y, &size);
        gd_context_free(ctx);
    }
    ck_assert_mem_eq(bytes[0], bytes[1], size);
    free(bytes[0]), free(bytes[1]);
}

/* ---- Updates in place --------------------------------------------------------------------- */

TEST(a_backward_notices_the_update)
{
    uint64_t seed = 7;
    gd_tensor *qkv = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 1, 3, 4), -1, 1, &seed);
    gd_tensor *keys = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 5, 1, 4), -1, 1, &seed);
    gd_tensor *values = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 5, 1, 4), -1, 1, &seed);
    gd_tensor *position = gd_tensor_create(ctx, GD_INT32, 0, NULL);
    gd_tensor *loss = gd_sum_all(gd_mul(values, values));
    gd_tensor *y = gd_attention_decode(qkv, keys, values, position, NULL);
    ck_assert_no_error(ctx);
    gd_backward(loss);
    ck_assert_error(ctx, "mul: its backward needs the input [1, 5, 1, 4] as it was");
    gd_error_clear(ctx);
    gd_backward(gd_sum_all(y));
    ck_assert_error(ctx, "attention_decode");
    gd_error_clear(ctx);
}

/* ---- Bad calls ---------------------------------------------------------------------------- */

static gd_tensor *make(gd_context *ctx, gd_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return gd_tensor_create(ctx, dtype, GD_SHAPE(a, b, c, d));
}

TEST(bad_calls_are_refused)
{
    gd_tensor *qkv = make(ctx, GD_FLOAT32, 2, 1, 8, 6), *rows = make(ctx, GD_FLOAT32, 2, 9, 2, 6);
    gd_tensor *other = make(ctx, GD_FLOAT32, 2, 8, 2, 6),
              *at = gd_tensor_create(ctx, GD_INT32, 0, NULL);
    gd_tensor *one = gd_expand(make(ctx, GD_FLOAT32, 2, 1, 2, 6), GD_SHAPE(2, 9, 2, 6));
    const gd_rope_options base = {.base = -1}, position = {.position = 3};
#define BAD(a, b, c, d, options, words)                               \
    do {                                                              \
        ck_assert_ptr_null(gd_attention_decode(a, b, c, d, options)); \
        ck_assert_error(ctx, "attention_decode: " words);             \
    } while (0)
    BAD(make(ctx, GD_FLOAT32, 2, 2, 8, 6), rows, rows, at, NULL,
        "qkv has shape [2, 2, 8, 6], wanted [B, 1, H + 2 KV, D] with D even");
    BAD(make(ctx, GD_FLOAT32, 2, 1, 8, 5), rows, rows, at, NULL, "qkv has shape [2, 1, 8, 5]");
    BAD(gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 1, 48)), rows, rows, at, NULL,
        "qkv has shape [2, 1, 48]");
    BAD(make(ctx, GD_FLOAT32, 2, 1, 7, 6), rows, rows, at, NULL, /* 3 heads for 2 */
        "keys has shape [2, 9, 2, 6], wanted [2, capacity, KV, 6]");
    BAD(make(ctx, GD_FLOAT32, 2, 1, 4, 6), rows, rows, at, NULL, "keys has shape");
    BAD(qkv, make(ctx, GD_FLOAT32, 1, 9, 2, 6), rows, at, NULL, "keys has shape [1, 9, 2, 6]");
    BAD(qkv, make(ctx, GD_FLOAT32, 2, 9, 0, 6), rows, at, NULL, "keys has shape [2, 9, 0, 6]");
    BAD(qkv, rows, other, at, NULL, "values has shape [2, 8, 2, 6]");
    BAD(qkv, rows, one, at, NULL, "the tensor [2, 9, 2, 6] is an expanded view");
    BAD(qkv, rows, rows, at, &base, "base is -1");
    BAD(qkv, rows, rows, at, &position, "options->position is 3, wanted it unset");
    for (int32_t place = -1; place <= 9; place += 10) {
        gd_tensor_write(at, &place, sizeof place);
        BAD(qkv, rows, rows, at, NULL, "position is ");
    }
}

CHECK_MAIN_WITHIN("attention_decode", 0, setup, teardown)
