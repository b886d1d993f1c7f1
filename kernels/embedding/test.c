/* test.c - rows of a table, and their gradient as sums. */
#include "each_context.h"

/* ids [2, n / 2] random below vocab. */
static gd_tensor *random_ids(gd_context *ctx, int64_t n, int64_t vocab, uint64_t *seed)
{
    gd_tensor *ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(2, n / 2));
    ck_assert_no_error(ctx);
    int32_t *id = gd_tensor_data(ids);
    for (int64_t i = 0; i < gd_tensor_count(ids); i++) {
        id[i] = (int32_t)random_size(seed, 0, vocab - 1);
    }
    return ids;
}

TEST(embedding_is_the_loop)
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    const int64_t sizes[][3] = {{1, 1, 2}, {7, 5, 40}, {300, 130, 60}, {3, 64, 0}, {5, 0, 8}};
    uint64_t seed = 1;
    for (int i = 0; i < 40; i++) {
        int64_t V = sizes[i / 8][0], C = sizes[i / 8][1], n = sizes[i / 8][2];
        gd_dtype dtype = dtypes[i % 4];
        gd_context *ctx = test_context(1 + i / 4 % 2);
        gd_tensor *table = random_leaf(ctx, dtype, GD_SHAPE(V, C), -1, 1, &seed);
        gd_tensor *ids = random_ids(ctx, n, V, &seed);
        gd_tensor *dy = random_leaf(ctx, dtype, GD_SHAPE(2, n / 2, C), -1, 1, &seed);
        gd_tensor *y = gd_keep(gd_embedding(table, ids));
        ck_assert_no_error(ctx);
        const int32_t *id = gd_tensor_data(ids);
        double *rows = values_of(table), *vdy = values_of(dy);
        double *want = zeros(n * C);
        double *dtable = zeros(V * C);
        for (int64_t k = 0; k < n; k++) {
            for (int64_t c = 0; c < C; c++) {
                want[k * C + c] = rows[id[k] * C + c];
                dtable[id[k] * C + c] += vdy[k * C + c];
            }
        }
        assert_sums("y", y, want, 0);
        backward_with(y, dy);
        assert_sums("dtable", gd_grad(table), dtable, tolerance_of(dtype));
        gd_step_end(ctx);
        /* Once more: the second backward adds. */
        backward_with(gd_embedding(table, ids), dy);
        for (int64_t k = 0; k < V * C; k++) dtable[k] *= 2;
        assert_sums("dtable", gd_grad(table), dtable, tolerance_of(dtype));
        free(rows), free(vdy), free(want), free(dtable);
        gd_context_free(ctx);
    }
}

/* A sum of 200000 times 0.1 in float would be wrong in the third digit. */
TEST(embedding_sums_many_equal_ids)
{
    uint64_t seed = 2;
    gd_tensor *table = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(2, 3), -1, 1, &seed);
    gd_tensor *ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(200000));
    gd_tensor *dy = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(200000, 3));
    gd_tensor_fill(ids, 1);
    gd_tensor_fill(dy, 0.1);
    backward_with(gd_embedding(table, ids), dy);
    double sum = 200000 * (double)0.1f, want[6] = {0, 0, 0, sum, sum, sum};
    assert_sums("dtable", gd_grad(table), want, 1e-7);
}

TEST(embedding_says_what_does_not_fit)
{
    gd_tensor *table = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(5, 2));
    gd_tensor *ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(4));
    ((int32_t *)gd_tensor_data(ids))[2] = 5;
    REFUSED(gd_embedding(table, ids),
            "embedding: ids[2] is 5, wanted 0 to 4, the rows of table [5, 2]");
    ((int32_t *)gd_tensor_data(ids))[2] = -1;
    REFUSED(gd_embedding(table, ids), "embedding: ids[2] is -1");
}

CHECK_MAIN_WITHIN("embedding", setup, teardown)
