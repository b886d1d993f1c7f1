/* test_sample_token.c - the next token of a text against sums in long double; what it stores; logits
 * that are not finite; calls that it refuses. */
#include "each_context.h"

enum { ROOM = 9, MOST = 5000 };

/* The id for u, or -1 if u is too close to where another one begins. */
static int32_t reference(const double *logits, int64_t V, double temperature, double u)
{
    static long double weight[MOST];
    long double largest = -INFINITY, sum = 0, passed = 0;
    for (int64_t v = 0; v < V; v++) largest = fmaxl(largest, logits[v]);
    for (int64_t v = 0; v < V; v++) {
        weight[v] = temperature > 0 ? expl((logits[v] - largest) / temperature)
                                    : (long double)(logits[v] == largest);
        sum += weight[v];
    }
    const long double goal = temperature > 0 ? u * sum : 0;
    for (int64_t v = 0; v < V; v++) {
        const bool close = temperature > 0 && V > 1 && fabsl(goal - passed) < 1e-11L * sum;
        if (close && v > 0) return -1;
        passed += weight[v];
        if (goal < passed) return (int32_t)v;
    }
    return -1;
}

static void check_draw(gd_dtype dtype, int64_t V, double temperature, uint64_t *seed)
{
    gd_context *ctx = test_context(1);
    const int32_t at = (int32_t)random_below(seed, ROOM), before[2] = {77, at};
    const gd_random_state state = {random_bits(seed), 4 * (uint64_t)random_below(seed, 1000)};
    int32_t ids[ROOM], next[2], id;
    uint32_t word;
    gd_tensor *logits = random_leaf(ctx, dtype, GD_SHAPE(1, 1, V), -4, 4, seed);
    gd_tensor *token = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), before);
    gd_tensor *all = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(ROOM));
    gd_tensor_fill(all, 5);
    gd_random_set(ctx, state);
    gd_tensor_read(gd_sample_token(logits, token, all, temperature), &id, sizeof id);
    gd_tensor_read(token, next, sizeof next);
    gd_tensor_read(all, ids, sizeof ids);
    ck_assert_no_error(ctx);
    ck_assert_uint_eq(gd_random_get(ctx).offset, state.offset + 4);
    gd_philox(state.seed, 0, state.offset, 1, &word);
    double *values = values_of(logits);
    const int32_t want = reference(values, V, temperature, word / 4294967296.0);
    if (want >= 0) ck_assert_int_eq(id, want);
    ck_assert_int_eq(next[0], id);
    ck_assert_int_eq(next[1], at + 1);
    for (int i = 0; i < ROOM; i++) ck_assert_int_eq(ids[i], i == at ? id : 5);
    free(values);
    gd_context_free(ctx);
}

TEST(draws_are_those_of_exact_sums)
{
    static const gd_dtype dtypes[] = {GD_FLOAT32, GD_FLOAT64, GD_BFLOAT16, GD_FLOAT16};
    static const double temperatures[] = {0, 0.05, 0.8, 1, 30};
    uint64_t seed = 4;
    for (int i = 0; i < 400; i++)
        check_draw(dtypes[i % 4], random_size(&seed, 1, i % 3 ? 40 : MOST), temperatures[i % 5],
                   &seed);
}

TEST(logits_that_are_not_finite_stop_it)
{
    const int32_t before[2] = {3, 2};
    int32_t next[2], ids[ROOM];
    gd_tensor *token = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), before);
    gd_tensor *all = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(ROOM));
    gd_tensor *logits = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    for (int bad = 0; bad < 3; bad++) {
        float value[3] = {1, 2, 3};
        value[bad] = bad == 0 ? NAN : bad == 1 ? INFINITY : -INFINITY;
        gd_tensor_write(logits, value, sizeof value);
        gd_tensor_fill(all, 5);
        gd_sample_token(logits, token, all, bad);
        gd_tensor_read(token, next, sizeof next);
        gd_tensor_read(all, ids, sizeof ids);
        ck_assert_no_error(ctx);
        ck_assert_mem_eq(next, before, sizeof next);
        for (int i = 0; i < ROOM; i++) ck_assert_int_eq(ids[i], i == 2 ? -1 : 5);
    }
}

TEST(bad_calls_are_refused)
{
    gd_tensor *logits = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 7));
    gd_tensor *next = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(2));
    gd_tensor *ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(ROOM));
    gd_tensor *rows = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 7));
    gd_tensor *none = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(0));
#define BAD(a, b, c, temperature, words)                           \
    do {                                                           \
        ck_assert_ptr_null(gd_sample_token(a, b, c, temperature)); \
        ck_assert_error(ctx, "sample_token: " words);              \
    } while (0)
    BAD(rows, next, ids, 1, "logits has shape [2, 7], wanted [V] or [..., V] of one row");
    BAD(none, next, ids, 1, "logits has shape [0]");
    BAD(gd_tensor_create(ctx, GD_FLOAT32, 0, NULL), next, ids, 1, "logits has shape []");
    BAD(logits, next, ids, -1, "temperature is -1, wanted a finite number, at least 0");
    BAD(logits, next, ids, (double)INFINITY, "temperature is inf");
    BAD(logits, next, ids, (double)NAN, "temperature is ");
    for (int32_t place = -1; place <= ROOM; place += ROOM + 1) {
        const int32_t at[2] = {0, place};
        gd_tensor_write(next, at, sizeof at);
        BAD(logits, next, ids, 1, "the position in next is ");
    }
}

CHECK_MAIN_WITHIN("sample_token", 0, setup, teardown)
