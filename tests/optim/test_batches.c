/* test_batches.c - each epoch has every example once, in an order of its own, that is the same for
 * any number of ranks and after a run was resumed. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "check_main.h"
#include "gradus/gradus.h"
#include "own_folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The examples of the next batch; how many they are. */
static int64_t take(gd_batches *batches, int32_t *at)
{
    const gd_tensor *index = gd_batches_next(batches);
    const int64_t n = index ? gd_tensor_count(index) : 0;
    if (index) ck_assert_int_eq(gd_tensor_read(index, at, (size_t)n * sizeof *at), GD_OK);
    return n;
}

TEST(every_example_once_an_epoch)
{
    static const int64_t counts[] = {1, 2, 3, 5, 16, 17, 100, 1000};
    gd_context *ctx = gd_context_create(NULL);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const int64_t n = counts[c];
        for (int drop = 0; drop < 2; drop++) {
            const gd_batches_options options = {.size = 7, .seed = c, .drop_last = drop};
            if (drop && n < 7) continue;
            gd_batches *b = gd_batches_create(ctx, n, &options);
            const int64_t batches = drop ? n / 7 : (n + 6) / 7;
            ck_assert_int_eq(gd_batches_per_epoch(b), batches);
            int32_t order[2][1000];
            for (int epoch = 0; epoch < 2; epoch++) {
                int seen[1000] = {0}, of[1000] = {0};
                int64_t taken = 0;
                for (int64_t i = 0; i < batches; i++) {
                    const int64_t here = take(b, order[epoch] + taken);
                    ck_assert_int_eq(here, i + 1 < batches || drop || n % 7 == 0 ? 7 : n % 7);
                    taken += here;
                }
                ck_assert_int_eq(taken, drop ? n / 7 * 7 : n);
                for (int64_t i = 0; i < taken; i++) seen[order[epoch][i]]++;
                for (int64_t i = 0; i < n; i++) of[seen[i]]++;
                ck_assert_int_eq(of[1], taken);
                ck_assert_int_eq(of[0], n - taken);
            }
            if (n >= 16) ck_assert_mem_ne(order[0], order[1], (size_t)(n / 7 * 7) * 4);
            ck_assert_int_eq(gd_batches_made(b), 2 * batches);
            gd_batches_free(b);
        }
    }
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

/* Each of 5 examples comes first, second ... about as often: chi-squared of 24 degrees of freedom
 * is above 60 for one seed of 17,000, and the seeds are fixed. */
TEST(orders_are_even)
{
    int count[5][5] = {{0}};
    for (uint64_t key = 0; key < 5000; key++)
        for (int i = 0; i < 5; i++) count[i][gd_shuffled(i, 5, key)]++;
    double chi = 0;
    for (int i = 0; i < 25; i++) chi += pow(count[i / 5][i % 5] - 1000, 2) / 1000;
    ck_assert_double_lt(chi, 60);
    for (int i = 0; i < 1000; i++) {
        const int64_t at = gd_shuffled(i, INT64_MAX, 3);
        ck_assert_int_ge(at, 0);
        ck_assert_int_lt(at, INT64_MAX);
    }
    ck_assert_int_eq(gd_shuffled(5, 5, 0), -1);
    ck_assert_int_eq(gd_shuffled(-1, 5, 0), -1);
}

TEST(ranks_divide_a_batch)
{
    gd_context *ctx = gd_context_create(NULL);
    for (int ranks = 1; ranks <= 4; ranks++) {
        gd_batches *whole = gd_batches_create(ctx, 108, &(gd_batches_options){.size = 24});
        gd_batches *part[4];
        for (int r = 0; r < ranks; r++)
            part[r] = gd_batches_create(
                ctx, 108, &(gd_batches_options){.size = 24, .rank = r, .ranks = ranks});
        for (int i = 0; i < 11; i++) {
            int32_t all[24], own[24];
            const int64_t n = take(whole, all);
            int64_t taken = 0;
            for (int r = 0; r < ranks; r++) taken += take(part[r], own + taken);
            ck_assert_int_eq(taken, n);
            ck_assert_mem_eq(own, all, (size_t)n * sizeof *all);
        }
        gd_batches_free(whole);
        for (int r = 0; r < ranks; r++) gd_batches_free(part[r]);
    }
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

/* ---- A model that is trained on batches, saved, and resumed ---------------------------------- */

typedef struct run {
    gd_context *ctx;
    gd_params *params;
    gd_tensor *w, *data;
    gd_optimizer *sgd;
    gd_batches *batches;
} run;

static run start(void)
{
    run r = {.ctx = gd_context_create(NULL)};
    r.params = gd_params_create(r.ctx, GD_FLOAT32);
    r.w = gd_params_add(r.params, "w", GD_SHAPE(3), 0);
    gd_params_finish(r.params);
    r.sgd = gd_sgd_create(r.params, &(gd_sgd_options){.momentum = 0.9});
    r.data = gd_tensor_create(r.ctx, GD_FLOAT32, GD_SHAPE(10, 3));
    gd_random_set(r.ctx, (gd_random_state){.seed = 5});
    gd_random_normal(r.data, 0, 1);
    r.batches = gd_batches_create(r.ctx, 10, &(gd_batches_options){.size = 4, .saved_with = r.sgd});
    return r;
}

static void train(run *r, int steps)
{
    for (int i = 0; i < steps; i++) {
        gd_tensor *x = gd_index_select(r->data, 0, gd_batches_next(r->batches));
        gd_backward(gd_mean_all(gd_pow(gd_sub(x, r->w), 2)));
        gd_optimizer_step(r->sgd, 0.1);
        gd_params_clear_grads(r->params);
        gd_step_end(r->ctx);
    }
    ck_assert_no_error(r->ctx);
}

static void stop(run *r)
{
    gd_tensor_free(r->data);
    gd_batches_free(r->batches);
    gd_optimizer_free(r->sgd);
    gd_params_free(r->params);
    gd_context_free(r->ctx);
}

TEST(a_file_goes_on_with_the_next_batch)
{
    static const char path[] = "model.safetensors";
    run one = start(), two;
    const gd_status status = gd_optimizer_save(one.sgd, path, NULL, 0);
    stop(&one);
    if (status == GD_ERROR_UNSUPPORTED) return; /* a build without jansson */
    for (int saved = 1; saved < 8; saved++) {
        one = start(), two = start();
        float w[2][3];
        train(&one, saved);
        ck_assert_int_eq(gd_optimizer_save(one.sgd, path, NULL, 0), GD_OK);
        ck_assert_int_eq(gd_optimizer_load(two.sgd, path, NULL), GD_OK);
        ck_assert_int_eq(gd_batches_made(two.batches), saved);
        train(&one, 9 - saved), train(&two, 9 - saved);
        gd_tensor_read(one.w, w[0], sizeof w[0]), gd_tensor_read(two.w, w[1], sizeof w[1]);
        ck_assert_mem_eq(w[0], w[1], sizeof w[0]);
        stop(&one), stop(&two);
    }
    one = start(), two = start();
    gd_batches_free(two.batches);
    two.batches = NULL;
    gd_optimizer_save(two.sgd, path, NULL, 0);
    ck_assert_int_ne(gd_optimizer_load(one.sgd, path, NULL), GD_OK);
    ck_assert_error(one.ctx, "has \"\" for \"optimizer.batches\" in its metadata");
    gd_optimizer_save(one.sgd, path, NULL, 0);
    ck_assert_int_eq(gd_optimizer_load(two.sgd, path, NULL), GD_OK);
    stop(&one), stop(&two);
}

TEST(refusals)
{
    static const struct {
        int64_t examples;
        gd_batches_options options;
        const char *words;
    } rows[] = {
        {0, {.size = 1}, "batches_create: examples is 0, wanted 1 to 2147483647"},
        {(int64_t)1 << 31, {.size = 1}, "batches_create: examples is 2147483648"},
        {10, {.size = 0}, "batches_create: size is 0, wanted 1 to 2147483647"},
        {10, {.size = 11, .drop_last = true}, "size is 11, wanted at most the 10 examples"},
        {10, {.size = 4, .rank = 2, .ranks = 2}, "rank is 2 of 2, wanted 0 <= rank < ranks"},
        {10, {.size = 4, .rank = 1}, "rank is 1 of 0, wanted 0 <= rank < ranks"},
        {12, {.size = 4, .ranks = 3}, "a batch has 4 examples, wanted a multiple of the 3 ranks"},
        {13,
         {.size = 4, .ranks = 2},
         "has 1 examples, wanted a multiple of the 2 ranks, or drop_l"},
    };
    run r = start();
    gd_context *ctx = r.ctx;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        REFUSED(gd_batches_create(ctx, rows[i].examples, &rows[i].options), rows[i].words);
    REFUSED(gd_batches_create(ctx, 10, NULL), "size is 0");
    const gd_batches_options again = {.size = 4, .saved_with = r.sgd};
    REFUSED(gd_batches_create(ctx, 10, &again), "saved_with saves other batches already");
    ck_assert_int_ne(gd_batches_seek(r.batches, -1), GD_OK);
    ck_assert_error(ctx, "batches_seek: made is -1, wanted 0 or more");
    ck_assert_ptr_null(gd_batches_create(NULL, 10, &again));
    ck_assert_ptr_null(gd_batches_next(NULL));
    ck_assert_int_eq(gd_batches_seek(NULL, 0), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_batches_made(NULL) + gd_batches_per_epoch(NULL), 0);
    stop(&r);
}

TEST(a_batch_that_a_backward_needs_is_overwritten)
{
    run r = start();
    gd_tensor_set_requires_grad(r.data, true);
    gd_tensor *loss = gd_sum_all(gd_index_select(r.data, 0, gd_batches_next(r.batches)));
    gd_batches_next(r.batches);
    ck_assert_int_ne(gd_backward(loss), GD_OK);
    ck_assert_error(r.ctx, "overwritten since");
    stop(&r);
}

CHECK_MAIN_WITHIN("batches", enter_folder, leave_folder)
