/* test.c - attention against the textbook (test_reference.h): layouts, masks, biases and
 * windows, dropout; and what is refused. */

#include "each_context.h"
#include "attention/attention.h"
#include "test_reference.h"
#include "twin.h"

TWIN(attention)

static void check_attention(int threads, gd_dtype dtype, layout way, const sizes *z, double size,
                            uint64_t *seed)
{
    gd_context *ctx = test_context(threads);
    const shape qs = SHAPE(z->B, z->T, z->H, z->D), ks = SHAPE(z->B, z->S, z->KV, z->D);
    gd_tensor *q = random_tensor(ctx, dtype, qs, way, -size, size, seed);
    gd_tensor *k = random_tensor(ctx, dtype, ks, way, -size, size, seed);
    gd_tensor *v = random_tensor(ctx, dtype, SHAPE(z->B, z->S, z->KV, z->E), way, -1, 1, seed);
    gd_tensor *dy = random_leaf(ctx, dtype, GD_SHAPE(z->B, z->T, z->H, z->E), -1, 1, seed);
    gd_attention_options options = {.causal = z->causal, .scale = z->scale};
    gd_tensor *y = gd_keep(gd_attention(q, k, v, &options));
    ck_assert_no_error(ctx);
    double *vq = values_of(q), *vk = values_of(k), *vv = values_of(v), *vdy = values_of(dy);
    reference want = attend(z, (operands){.q = vq, .k = vk, .v = vv, .dy = vdy});
    /* The scores of size 100 inputs have as many digits less before their exponential. */
    double tolerance = tolerance_of(dtype) * size * size;
    assert_sums("y", y, want.y, tolerance);
    backward_with(y, dy);
    /* dq and dk are differences of larger numbers */
    double loose = tolerance * (dtype == GD_FLOAT32 || dtype == GD_FLOAT64 ? 4 : 2);
    assert_sums("dq", gd_grad(q), want.dq, loose);
    assert_sums("dk", gd_grad(k), want.dk, loose);
    assert_sums("dv", gd_grad(v), want.dv, loose);
    free(vq), free(vk), free(vv), free(vdy);
    free_reference(want);
    gd_context_free(ctx);
}

TEST(attention_is_the_textbook)
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32,  GD_FLOAT64,
                               GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    uint64_t seed = 3;
    for (int i = 0; i < 120; i++) {
        sizes z = {.causal = i & 1};
        z.B = random_size(&seed, 1, 3);
        z.T = random_size(&seed, 1, i % 7 ? 40 : 150);
        z.S = i & 2 ? z.T : random_size(&seed, 1, i % 5 ? 40 : 150);
        z.KV = random_size(&seed, 1, 3);
        z.H = z.KV * random_size(&seed, 1, 3);
        z.D = random_size(&seed, 1, i % 3 ? 20 : 70);
        z.E = i & 4 ? z.D : random_size(&seed, 1, 40);
        check_attention(1 + i % 2, dtypes[i / 2 % 6], (layout)(i / 3 % LAYOUTS), &z, 1, &seed);
    }
}

/* Sizes whose tiles and vectors are all whole, as in training. */
TEST(attention_of_round_sizes)
{
    const sizes all[] = {
        {2, 64, 64, 4, 4, 32, 32, true, 0},   {1, 64, 64, 4, 2, 32, 32, false, 0},
        {1, 128, 128, 2, 1, 64, 64, true, 0}, {1, 300, 300, 6, 2, 16, 16, true, 0},
        {1, 1, 200, 2, 2, 32, 32, true, 0},   {1, 48, 176, 20, 1, 16, 48, true, 0.3},
    };
    uint64_t seed = 4;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check_attention(2, GD_FLOAT32, PACKED, &all[i], 1, &seed);
        check_attention(1, GD_FLOAT64, SLICED, &all[i], 1, &seed);
    }
}

/* Scores of thousands: the largest takes all the weight, and nothing overflows. */
TEST(attention_of_huge_scores)
{
    sizes z = {1, 130, 130, 2, 1, 8, 8, true, 1};
    uint64_t seed = 5;
    check_attention(2, GD_FLOAT64, PACKED, &z, 100, &seed);
    z.scale = -3;
    check_attention(2, GD_FLOAT64, PACKED, &z, 100, &seed);
    gd_tensor *q = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 70, 2, 8), -1e10, 1e10, &seed);
    gd_tensor *v = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 70, 2, 8), -1, 1, &seed);
    gd_tensor *dy = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 70, 2, 8), -1, 1, &seed);
    gd_tensor *y = gd_keep(gd_attention(q, q, v, NULL));
    backward_with(y, dy);
    double *vy = values_of(y), *dq = values_of(gd_grad(q)), *dv = values_of(gd_grad(v));
    for (int i = 0; i < 70 * 2 * 8; i++)
        ck_assert(isfinite(vy[i]) && isfinite(dq[i]) && isfinite(dv[i]));
    free(vy), free(dq), free(dv);
}

/* With more queries than keys the first T - S see nothing: zeros, and they pull on nothing. */
TEST(attention_of_a_query_that_sees_nothing)
{
    gd_context *ctx = test_context(1);
    uint64_t seed = 6;
    gd_tensor *q = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 90, 2, 4), -1, 1, &seed);
    gd_tensor *k = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 3, 2, 4), -1, 1, &seed);
    gd_tensor *v = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 3, 2, 5), -1, 1, &seed);
    gd_tensor *dy = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 90, 2, 5), -1, 1, &seed);
    gd_attention_options options = {.causal = true};
    gd_tensor *y = gd_keep(gd_attention(q, k, v, &options));
    backward_with(y, dy);
    double *vy = values_of(y), *dq = values_of(gd_grad(q));
    for (int i = 0; i < 90 * 2 * 5; i++) ck_assert_int_eq(vy[i] != 0, i >= 87 * 2 * 5);
    for (int i = 0; i < 87 * 2 * 4; i++) ck_assert(dq[i] == 0);
    free(vy), free(dq);
    gd_context_free(ctx);

    /* No keys at all, and no queries. */
    ctx = test_context(2);
    q = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(2, 3, 2, 4), -1, 1, &seed);
    k = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(2, 0, 1, 4), -1, 1, &seed);
    y = gd_keep(gd_attention(q, k, k, NULL));
    dy = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(2, 3, 2, 4), -1, 1, &seed);
    backward_with(y, dy);
    double zero[48] = {0};
    assert_sums("y", y, zero, 0);
    assert_sums("dq", gd_grad(q), zero, 0);
    gd_tensor *none = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(2, 0, 2, 4), -1, 1, &seed);
    gd_tensor *k5 = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(2, 5, 1, 4), -1, 1, &seed);
    y = gd_attention(none, k5, k5, NULL);
    dy = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(2, 0, 2, 4), -1, 1, &seed);
    backward_with(y, dy);
    assert_sums("dk", gd_grad(k5), zero, 0);
    gd_context_free(ctx);
}

/* What a causal query may not see does not reach it, be it NaN. (Within its block the product with
 * weight 0 is taken, so the later rows here begin a block.) */
TEST(attention_does_not_look_ahead)
{
    uint64_t seed = 7;
    gd_tensor *q = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(1, 100, 1, 4), -1, 1, &seed);
    gd_tensor *v = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(1, 100, 1, 4), -1, 1, &seed);
    gd_attention_options options = {.causal = true};
    double *before = values_of(gd_attention(q, q, v, &options));
    for (int i = 48 * 4; i < 100 * 4; i++) ((double *)gd_tensor_data(q))[i] *= 5;
    double *after = values_of(gd_attention(q, q, v, &options));
    ck_assert_int_eq(memcmp(before, after, 48 * 4 * sizeof *before), 0);
    free(before), free(after);
}

/* The factor of the weight of query t and key s of a head, counted over the batch: from half s % 2
 * of a word of the tile of 16 queries and 16 keys, which has 128. p is a multiple of 2^-16. */
static double keep_of(const sizes *z, gd_random_state drawn, int64_t head, int64_t t, int64_t s,
                      double p)
{
    int64_t tile = (head * ((z->T + 15) / 16) + t / 16) * ((z->S + 15) / 16) + s / 16;
    int64_t block = t % 8 * 4 + s % 8 / 2, quarter = t % 16 / 8 * 2 + s % 16 / 8;
    uint32_t word;
    gd_philox(drawn.seed, 0, drawn.offset + (uint64_t)(128 * tile + 4 * block + quarter), 1, &word);
    return (s % 2 ? word / 65536 : word % 65536) < p * 65536 ? 0 : 1 / (1 - p);
}

/* Values that are the identity show the weights, and so which of them dropout keeps: those that the
 * random stream says, each with probability 1 - p, and divided by it. With the same random numbers,
 * any other values and the backward have these weights. */
LOOP_TEST(attention_drops_weights, 2)
{
    const double rates[] = {0.2, 0.25}, asked = rates[_i], p = floor(asked * 65536 + 0.5) / 65536;
    const gd_random_state drawn = {.seed = 77, .offset = 1004};
    const sizes z = {2, 45, 107, 4, 2, 8, 107, true, 0};
    uint64_t seed = 10;
    gd_tensor *q = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(2, 45, 4, 8), -1, 1, &seed);
    gd_tensor *k = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(2, 107, 2, 8), -1, 1, &seed);
    gd_tensor *v = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(2, 107, 2, 107), -1, 1, &seed);
    gd_tensor *dy = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(2, 45, 4, 107), -1, 1, &seed);
    gd_tensor *identity = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(2, 107, 2, 107));
    gd_tensor_fill(identity, 0);
    for (int64_t i = 0; i < 2 * 107 * 2; i++)
        ((double *)gd_tensor_data(identity))[i * 107 + i / 2 % 107] = 1;
    gd_attention_options options = {.causal = true}, dropping = {.causal = true, .dropout = asked};
    gd_random_set(ctx, drawn);
    double *all = values_of(gd_attention(q, k, identity, &options)); /* [B, T, H, S] */
    double *kept = values_of(gd_attention(q, k, identity, &dropping));
    ck_assert_uint_eq(gd_random_get(ctx).offset - drawn.offset, 2 * 4 * 3 * 7 * 128);
    double *keep = zeros(z.B * z.H * z.T * z.S), count = 0, stay = 0;
    for (int64_t i = 0; i < z.B * z.T * z.H * z.S; i++) {
        int64_t s = i % z.S, h = i / z.S % z.H, t = i / z.S / z.H % z.T, b = i / z.S / z.H / z.T;
        if (all[i] == 0) continue; /* not seen */
        double factor = keep_of(&z, drawn, b * z.H + h, t, s, p);
        count++, stay += kept[i] != 0;
        ck_assert(fabs(kept[i] - all[i] * factor) <= 1e-14);
        keep[((b * z.H + h) * z.T + t) * z.S + s] = factor;
    }
    ck_assert_msg(fabs(stay / count - (1 - p)) < 4 * sqrt(p * (1 - p) / count), "%g of %g stay",
                  stay, count);
    double *vq = values_of(q), *vk = values_of(k), *vv = values_of(v), *vdy = values_of(dy);
    reference want = attend(&z, (operands){.q = vq, .k = vk, .v = vv, .dy = vdy, .keep = keep});
    gd_random_set(ctx, drawn);
    gd_tensor *y = gd_keep(gd_attention(q, k, v, &dropping));
    assert_sums("y", y, want.y, 1e-12);
    backward_with(y, dy);
    assert_sums("dq", gd_grad(q), want.dq, 1e-12);
    assert_sums("dk", gd_grad(k), want.dk, 1e-12);
    assert_sums("dv", gd_grad(v), want.dv, 1e-12);
    free(all), free(kept), free(keep), free(vq), free(vk), free(vv), free(vdy);
    free_reference(want);
}

/* ---- A mask, a bias, a window ------------------------------------------------------------- */

/* Whether query t sees key s by the window. */
static bool in_window(const sizes *z, int64_t window, int64_t t, int64_t s)
{
    const int64_t apart = t + z->S - z->T - s;
    return window == 0 || (apart < window && -apart < window);
}

/* Also against the plain twin, with dropout. */
LOOP_TEST(attention_with_a_mask, test_rounds(120))
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_FLOAT64, GD_BFLOAT16, GD_FLOAT16};
    uint64_t seed = 100 + (uint64_t)_i;
    const gd_dtype dtype = dtypes[_i % 5];
    const bool numbers = _i / 5 % 2; /* a bias, not a mask */
    gd_context *ctx = test_context(1 + _i % 2);
    sizes z = {.causal = _i & 1, .KV = random_size(&seed, 1, 2)};
    z.B = random_size(&seed, 1, 3), z.H = z.KV * random_size(&seed, 1, 2);
    z.T = random_size(&seed, 1, _i % 3 ? 30 : 140), z.S = random_size(&seed, 1, _i % 3 ? 30 : 230);
    z.D = random_size(&seed, 1, 20), z.E = random_size(&seed, 1, 20);
    const int64_t window = random_chance(&seed, 0.5) ? random_size(&seed, 1, _i % 3 ? 9 : 120) : 0;
    const shape whole = SHAPE(z.B, z.H, z.T, z.S);
    shape s = whole;
    if (random_chance(&seed, 0.3)) s = SHAPE(z.T, z.S);
    for (int d = 0; d < s.ndim; d++)
        if (random_chance(&seed, 0.3)) s.dim[d] = 1;
    const enum layout way = (enum layout)random_below(&seed, EXPANDED);
    gd_tensor *q = random_leaf(ctx, dtype, GD_SHAPE(z.B, z.T, z.H, z.D), -1, 1, &seed);
    gd_tensor *k = random_leaf(ctx, dtype, GD_SHAPE(z.B, z.S, z.KV, z.D), -1, 1, &seed);
    gd_tensor *v = random_leaf(ctx, dtype, GD_SHAPE(z.B, z.S, z.KV, z.E), -1, 1, &seed);
    gd_tensor *dy = random_leaf(ctx, dtype, GD_SHAPE(z.B, z.T, z.H, z.E), -1, 1, &seed);
    gd_tensor *mask = random_tensor(ctx, numbers ? dtype : GD_INT32, s, numbers ? way : PACKED, -2,
                                    numbers ? 2 : 3, &seed);
    if (random_chance(&seed, 0.2)) mask = NULL;
    const attention_args args = {.causal = z.causal,
                                 .scale = 1 / sqrt((double)z.D),
                                 .dropout = random_chance(&seed, 0.3) ? 0.25 : 0,
                                 .window = window};
    assert_twin(attention_twin(), (gd_tensor *[]){q, k, v, mask}, 4, &args,
                16 * tolerance_of(dtype), &seed);
    double *given = mask ? values_of(mask) : NULL, *bias = zeros(count_of(whole));
    double *dbias = zeros(count_of(s));
    for (int64_t i = 0; i < count_of(whole); i++) {
        const double m = mask ? given[broadcast_place(s, whole, i)] : 1;
        if (numbers) bias[i] = mask ? m : 0;
        if (!numbers && m == 0) bias[i] = -INFINITY;
        if (!in_window(&z, window, i / z.S % z.T, i % z.S)) bias[i] = -INFINITY;
    }
    double *vq = values_of(q), *vk = values_of(k), *vv = values_of(v), *vdy = values_of(dy);
    reference want = attend(&z, (operands){.q = vq, .k = vk, .v = vv, .dy = vdy, .bias = bias});
    for (int64_t i = 0; i < count_of(whole); i++) dbias[broadcast_place(s, whole, i)] += want.ds[i];
    gd_attention_options options = {.causal = z.causal, .mask = mask, .window = window};
    gd_tensor *y = gd_keep(gd_attention(q, k, v, &options));
    ck_assert_no_error(ctx);
    const double tolerance = tolerance_of(dtype), loose = 4 * tolerance;
    assert_sums("y", y, want.y, tolerance);
    backward_with(y, dy);
    assert_sums("dq", gd_grad(q), want.dq, loose);
    assert_sums("dk", gd_grad(k), want.dk, loose);
    assert_sums("dv", gd_grad(v), want.dv, loose);
    if (numbers && mask) assert_sums("dbias", gd_grad(mask), dbias, loose);
    free(given), free(bias), free(dbias), free(vq), free(vk), free(vv), free(vdy);
    free_reference(want);
    gd_context_free(ctx);
}

/* Queries that see nothing, by a mask, by a bias of -inf, by a window: zeros, and no gradient. NaN
 * in a bias stays with its query. */
TEST(attention_of_masked_rows)
{
    uint64_t seed = 13;
    gd_tensor *q = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 2, 1, 3), -1, 1, &seed);
    gd_tensor *k = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 130, 1, 3), -1, 1, &seed);
    gd_tensor *none = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(2, 1));
    gd_tensor *bias = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 1));
    gd_tensor_write_f64(none, (double[]){0, 1}, 2);
    gd_tensor_write_f64(bias, (double[]){-INFINITY, NAN}, 2);
    gd_tensor_set_requires_grad(bias, true);
    const gd_attention_options by[] = {{.mask = none}, {.mask = bias}};
    for (int i = 0; i < 2; i++) {
        gd_tensor *y = gd_keep(gd_attention(q, k, k, &by[i]));
        gd_tensor *dy = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 2, 1, 3), -1, 1, &seed);
        backward_with(y, dy);
        double *vy = values_of(y), *dq = values_of(gd_grad(q));
        for (int j = 0; j < 3; j++) {
            ck_assert(vy[j] == 0 && dq[j] == 0);
            ck_assert(i == 0 ? vy[3 + j] != 0 && isfinite(dq[3 + j]) : isnan(vy[3 + j]));
        }
        if (i == 1) {
            double *db = values_of(gd_grad(bias));
            ck_assert(db[0] == 0 && isnan(db[1]));
            free(db);
        }
        free(vy), free(dq);
        gd_grad_clear(q);
        gd_step_end(ctx);
    }
    /* 5 queries on 2 keys, at the places -3 to 1: from -2 on a key is near enough */
    gd_tensor *five = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(1, 5, 1, 3), -1, 1, &seed);
    gd_tensor *y = gd_attention(five, q, q, &(gd_attention_options){.window = 3});
    double *vy = values_of(y);
    for (int i = 0; i < 15; i++) ck_assert_int_eq(vy[i] != 0, i >= 3);
    free(vy);
}

/* ---- Refusals ----------------------------------------------------------------------------- */

TEST(attention_says_what_does_not_fit)
{
    gd_tensor *q = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 5, 4, 8));
    gd_tensor *k = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 7, 2, 8));
    gd_tensor *v = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 7, 2, 6));
    gd_tensor *three = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 7, 3, 8));
    ck_assert_ptr_nonnull(gd_attention(q, k, v, NULL));
    REFUSED(gd_attention(q, three, three, NULL),
            "attention: q [2, 5, 4, 8] has 4 heads, wanted a multiple of the 3 heads of k");
    const gd_attention_options options = {.mask = gd_constant(ctx, GD_FLOAT64, GD_SHAPE(5, 7), 0)};
    REFUSED(gd_attention(q, k, v, &options),
            "attention: mask is float64 [5, 7], wanted float32 as in q float32 [2, 5, 4, 8]");
}

CHECK_MAIN_WITHIN("attention", setup, teardown)
