/* test_sparse.c - gradients of tables of which few rows are touched: clearing, clipping and updates
 * give the bits that those of all rows give, and read and write no row but the touched ones. */
#define _DEFAULT_SOURCE /* mkdtemp, MAP_ANONYMOUS */
#include "each_context.h"
#include "own_folder.h"
#include "ranks.h"
#include "sparse_tables.h"

static const gd_dtype dtypes[] = {GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16, GD_FLOAT64};

/* ---- The same bits --------------------------------------------------------------------------- */

typedef struct twins {
    tables sparse, dense;
} twins;

static twins make(gd_dtype dtype, int64_t rows, int64_t columns, int kind, int threads)
{
    twins t = {tables_make(test_context(threads), dtype, rows, columns, kind, false),
               tables_make(test_context(1), dtype, rows, columns, kind, true)};
    return t;
}

static void destroy(twins *t)
{
    gd_context *ctx[] = {t->sparse.ctx, t->dense.ctx};
    tables_free(&t->sparse), tables_free(&t->dense);
    for (int i = 0; i < 2; i++) {
        ck_assert_no_error(ctx[i]);
        gd_context_free(ctx[i]);
    }
}

static const int64_t sizes[][2] = {{1, 1},  {5, 3},   {31, 1},  {33, 1},  {64, 16},
                                   {65, 5}, {100, 7}, {700, 9}, {200, 70}};
enum { SIZES = sizeof sizes / sizeof *sizes };

TEST(any_steps_have_the_bits_of_dense_ones)
{
    int sparse = 0;
    for (int kind = 0; kind < SPARSE_KINDS; kind++)
        for (int i = 0; i < SIZES; i++) {
            const gd_dtype dtype = dtypes[(kind + i) % 4];
            twins t = make(dtype, sizes[i][0], sizes[i][1], kind, 1 + i % 3);
            if (i % 4 == 1) {
                gd_optimizer_average(t.sparse.optimizer, 0.9);
                gd_optimizer_average(t.dense.optimizer, 0.9);
            }
            const char *what =
                tables_run(&t.sparse, &t.dense, 40, (uint64_t)(kind * 100 + i), &sparse);
            ck_assert_msg(!what, "optimizer %d, %s, size %d: %s", kind, gd_dtype_name(dtype), i,
                          what);
            destroy(&t);
        }
    ck_assert_int_gt(sparse, SPARSE_KINDS * SIZES * 10);
}

/* Enough for several threads, and for several pieces of rows. */
TEST(large_tables_have_the_bits_of_dense_ones)
{
    int sparse = 0;
    for (int kind = 0; kind < 4; kind++) {
        twins t = make(dtypes[kind % 2], 1500, 24, kind, 4);
        ck_assert_ptr_null(tables_run(&t.sparse, &t.dense, 12, (uint64_t)kind, &sparse));
        destroy(&t);
    }
    ck_assert_int_gt(sparse, 0);
}

TEST(parameters_written_to_between_updates)
{
    for (int d = 0; d < 4; d++) {
        int sparse = 0;
        twins t = make(dtypes[d], 300, 6, 1, 1);
        for (uint64_t i = 0; i < 10; i++) {
            ck_assert_ptr_null(tables_run(&t.sparse, &t.dense, 3, i, &sparse));
            gd_tensor_fill(t.sparse.a, 0.3), gd_tensor_fill(t.dense.a, 0.3);
            if (i == 5) {
                gd_params_set_factors(t.sparse.params, t.sparse.a, 0.5, 1);
                gd_params_set_factors(t.dense.params, t.dense.a, 0.5, 1);
                gd_tensor_set_requires_grad(t.sparse.b, false);
                gd_tensor_set_requires_grad(t.dense.b, false);
            }
        }
        destroy(&t);
    }
}

/* One embedding of these ids, and a backward whose cotangent is 1. */
static void backward_of(tables *t, const int32_t *ids, int64_t n)
{
    gd_tensor *id = gd_constant(t->ctx, GD_INT32, GD_SHAPE(n), 0);
    gd_tensor_write(id, ids, (size_t)n * sizeof *ids);
    gd_backward(gd_sum_all(gd_embedding(t->a, id)));
}

/* A weight that is infinite stays so without a gradient, whoever updates it. */
TEST(infinite_weights_in_other_rows)
{
    for (int kind = 0; kind < 4; kind++) {
        twins t = make(dtypes[kind % 2], 64, 2, kind, 1);
        for (int step = 0; step < 2; step++) {
            tables *const both[] = {&t.sparse, &t.dense};
            for (int i = 0; i < 2; i++) {
                gd_step_end(both[i]->ctx);
                gd_tensor_fill(both[i]->a, step ? -INFINITY : INFINITY);
                backward_of(both[i], (int32_t[]){3}, 1);
                gd_optimizer_step(both[i]->optimizer, 0.1);
            }
            ck_assert_ptr_null(tables_differ(&t.sparse, &t.dense));
            double *w = values_of(t.dense.a);
            ck_assert_double_eq(w[20], step ? -INFINITY : INFINITY);
            free(w);
        }
        destroy(&t);
    }
}

TEST(going_on_from_a_file)
{
    static const char path[] = "model.safetensors";
    enter_folder();
    for (int kind = 0; kind < 4; kind++) {
        int sparse = 0;
        twins t = make(dtypes[kind], 200, 8, kind, 1), later = make(dtypes[kind], 200, 8, kind, 1);
        ck_assert_ptr_null(tables_run(&t.sparse, &t.dense, 15, 1, &sparse));
        gd_params_clear_grads(t.sparse.params), gd_params_clear_grads(t.dense.params);
        ck_assert_int_eq(gd_optimizer_save(t.sparse.optimizer, path, NULL, 0), GD_OK);
        ck_assert_int_eq(gd_optimizer_load(later.sparse.optimizer, path, NULL), GD_OK);
        ck_assert_int_eq(gd_optimizer_load(later.dense.optimizer, path, NULL), GD_OK);
        ck_assert_ptr_null(tables_run(&later.sparse, &later.dense, 15, 2, &sparse));
        ck_assert_ptr_null(tables_run(&t.sparse, &t.dense, 15, 2, &sparse));
        ck_assert_ptr_null(tables_differ(&later.sparse, &t.dense));
        destroy(&t), destroy(&later);
    }
    leave_folder();
}

/* A program may keep the gradient and write to any row, whenever there is one. */
TEST(who_has_the_gradient_may_write_to_it)
{
    tables t = tables_make(ctx, GD_FLOAT32, 64, 2, 0, false);
    float *w = gd_tensor_data(t.a), before = w[2 * 50];
    backward_of(&t, (int32_t[]){3}, 1);
    ck_assert(t.a->grad->sparse);
    float *g = gd_tensor_data(gd_grad(t.a));
    for (int i = 0; i < 2; i++) {
        g[2 * 50] = 1;
        gd_optimizer_step(t.optimizer, 0.25);
        gd_params_clear_grads(t.params);
        gd_step_end(ctx);
        ck_assert(w[2 * 50] == before - 0.25F * (float)(i + 1));
        backward_of(&t, (int32_t[]){4}, 1);
        ck_assert(g[2 * 50] == 0 && g[2 * 3] == 0 && g[2 * 4] == 1);
    }
    tables_free(&t);
}

/* What looks at gradients leaves it known which rows were touched. */
TEST(looking_changes_nothing)
{
    tables t = tables_make(ctx, GD_FLOAT32, 64, 2, 0, false);
    FILE *file = tmpfile();
    backward_of(&t, (int32_t[]){3}, 1);
    gd_params_print(t.params, file);
    gd_tape_print_dot(ctx, file);
    ck_assert(t.a->grad->sparse);
    fclose(file);
    ck_assert_no_error(ctx);
    tables_free(&t);
}

/* Replicated parameters are dense, and end where one process does: both ranks have the same
 * batches, so their mean is exact. */
static void replicated_body(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    (void)rank;
    tables t = {.ctx = ctx, .params = gd_params_create(ctx, GD_FLOAT32)};
    t.a = gd_params_addf(t.params, 0, GD_SHAPE(200, 4), (gd_init){GD_INIT_NORMAL, 0, 1}, "a");
    gd_params_finish(t.params);
    gd_params_replicate(t.params, group, NULL);
    t.optimizer = gd_adagrad_create(t.params, NULL);
    uint64_t seed = 5;
    for (int step = 0; step < 10; step++) {
        int32_t id[6];
        for (int i = 0; i < 6; i++) id[i] = (int32_t)random_below(&seed, 200);
        gd_params_last_backward(t.params);
        backward_of(&t, id, 6);
        note(mine, t.a->grad->sparse);
        gd_clip_grad_norm(t.params, 1, NULL);
        gd_optimizer_step(t.optimizer, 0.1);
        gd_params_clear_grads(t.params);
        gd_step_end(ctx);
    }
    float w[800];
    gd_tensor_read(t.a, w, sizeof w);
    for (int i = 0; i < 800; i++) note(mine, (double)w[i]);
    tables_free(&t);
}

TEST(ranks_are_dense_and_end_in_the_same_place)
{
    static double alone[810];
    ranks_run_well(1, replicated_body);
    memcpy(alone, outcomes[0].number, sizeof alone);
    for (int i = 0; i < 10; i++) ck_assert(alone[i] == 1);
    ranks_run_well(2, replicated_body);
    for (int rank = 0; rank < 2; rank++)
        for (int i = 0; i < 810; i++)
            ck_assert_double_eq_tol(outcomes[rank].number[i], i < 10 ? 0 : alone[i], 1e-6);
}

/* ---- The cost is what was touched ------------------------------------------------------------ */

static const gd_services *real_services;
static int64_t counted; /* elements that the services were asked to read or write */

/* Elements of n that may be other than 0. */
static int64_t elements_of(const uint8_t *touched, int64_t n, size_t size)
{
    int64_t elements = 0;
    for (int64_t i = 0; i < n; i++) elements += !touched || touched[i * (int64_t)size / GD_GRANULE];
    return elements;
}

static void count_fill(void *x, gd_dtype dtype, double value, int64_t n, gd_context *ctx)
{
    counted += n;
    real_services->fill(x, dtype, value, n, ctx);
}

static void count_clear(void *x, int64_t bytes, uint8_t *touched, gd_context *ctx)
{
    counted += elements_of(touched, bytes / 4, 4);
    real_services->clear_touched(x, bytes, touched, ctx);
}

static void count_squares(double *sum, const void *x, gd_dtype dtype, int64_t n,
                          const uint8_t *touched, gd_context *ctx)
{
    counted += elements_of(touched, n, gd_dtype_size(dtype));
    real_services->sum_squares(sum, x, dtype, n, touched, ctx);
}

static void count_scale(void *x, gd_dtype dtype, double factor, int64_t n, const uint8_t *touched,
                        gd_context *ctx)
{
    counted += elements_of(touched, n, gd_dtype_size(dtype));
    real_services->scale(x, dtype, factor, n, touched, ctx);
}

static void count_optimize(const gd_update_arrays *arrays, const gd_rule *rule,
                           const gd_update_state *state, gd_context *ctx)
{
    counted += elements_of(arrays->touched, arrays->n, gd_dtype_size(arrays->dtype));
    real_services->update->optimize(arrays, rule, state, ctx);
}

/* Elements, and bytes of temporary memory, of a step that touches six rows of each table. */
static int64_t cost(int64_t rows, int kind, gd_dtype dtype, size_t *workspace)
{
    gd_context *ctx = test_context(1);
    tables t = tables_make(ctx, dtype, rows, 16, kind, false);
    real_services = ctx->services;
    gd_services counting = *real_services;
    counting.fill = count_fill, counting.clear_touched = count_clear;
    counting.sum_squares = count_squares, counting.scale = count_scale;
    gd_update_services updates = *real_services->update;
    updates.optimize = count_optimize;
    counting.update = &updates;
    ctx->services = &counting;
    for (int step = 0; step < 3; step++) {
        counted = 0; /* the first step does not know what the gradients hold */
        const int32_t last = (int32_t)rows - 1, id[] = {last, 0, 7, 7, last / 2, 9, last};
        gd_memory_reset_peak(ctx);
        gd_tensor *ids = gd_constant(ctx, GD_INT32, GD_SHAPE(7), 0);
        gd_tensor_write(ids, id, sizeof id);
        gd_tensor *h = gd_mul(gd_embedding(t.a, ids), gd_embedding(t.b, ids));
        gd_backward(gd_sum_all(h));
        *workspace = gd_memory(ctx).peak[GD_MEMORY_WORKSPACE];
        gd_clip_grad_norm(t.params, 1e-3, NULL);
        gd_optimizer_step(t.optimizer, 0.1);
        gd_params_clear_grads(t.params);
        gd_step_end(ctx);
    }
    ck_assert_no_error(ctx);
    ctx->services = real_services;
    tables_free(&t);
    gd_context_free(ctx);
    return counted;
}

TEST(the_cost_does_not_grow_with_the_table)
{
    for (int kind = 0; kind < 4; kind++)
        for (int d = 0; d < 4; d++) {
            size_t small, large;
            const int64_t few = cost(100, kind, dtypes[d], &small);
            const int64_t many = cost(20000, kind, dtypes[d], &large);
            ck_assert_int_eq(few, many);
            ck_assert_int_lt(many, 4000);
            /* 16 bits are widened on the CPU, all of them. */
            if (gd_dtype_size(dtypes[d]) > 2) ck_assert_uint_eq(small, large);
        }
}

/* Rows that are not touched hold garbage, which nobody may see. */
TEST(services_leave_other_rows_alone)
{
    enum { ROWS = 1500, COLUMNS = 16, N = ROWS * COLUMNS };
    for (int kind = 0; kind < 2; kind++)
        for (int threads = 1; threads <= 3; threads++) {
            gd_context *ctx = test_context(threads);
            const gd_services *s = ctx->services;
            static float g[N], w[N], v[N], before[N];
            /* A row is a granule. Those of others are before and after the array's. */
            uint8_t granules[ROWS + 2] = {1}, *touched = granules + 1, kept[ROWS];
            uint64_t seed = (uint64_t)threads;
            int32_t ids[62] = {ROWS - 1, -1, ROWS};
            for (int i = 3; i < 62; i++) ids[i] = (int32_t)random_below(&seed, ROWS);
            s->touch_rows(touched, ids, 62, ROWS, COLUMNS * sizeof(float), ctx);
            for (int r = 0; r < ROWS; r++) {
                bool named = false;
                for (int i = 0; i < 62; i++) named = named || ids[i] == r;
                ck_assert_uint_eq(touched[r], named);
            }
            ck_assert(granules[0] == 1 && touched[ROWS] == 0);
            touched[ROWS] = 1;
            double squares = 0, sum;
            for (int i = 0; i < N; i++) {
                const bool is = touched[i / COLUMNS];
                before[i] = w[i] = 1;
                v[i] = 0;
                g[i] = is ? (float)random_in(&seed, -1, 1) : 3e30F;
                if (is) squares += (double)g[i] * (double)g[i];
            }
            s->sum_squares(&sum, g, GD_FLOAT32, N, touched, ctx);
            ck_assert_double_eq_tol(sum, squares, 1e-12 * squares);
            s->scale(g, GD_FLOAT32, 0.5, N, touched, ctx);
            const gd_update_state state = {.apply = true, .factor = 1, .rate = 0.5};
            const gd_update_count count = {.made = 1};
            const gd_rule rule = {
                .kind = kind ? GD_RULE_ADAGRAD : GD_RULE_SGD, .rate = 1, .eps = 1e-10};
            const gd_update_arrays arrays = {.w = w,
                                             .state = {kind ? v : NULL},
                                             .g = g,
                                             .count = &count,
                                             .dtype = GD_FLOAT32,
                                             .n = N,
                                             .touched = touched};
            s->update->optimize(&arrays, &rule, &state, ctx);
            for (int i = 0; i < N; i++) {
                const bool is = touched[i / COLUMNS];
                ck_assert(is ? g[i] < 1 : g[i] == 3e30F);
                ck_assert(is == (w[i] != before[i]));
            }
            memcpy(kept, touched, sizeof kept);
            s->clear_touched(g, sizeof g, touched, ctx);
            for (int i = 0; i < N; i++) ck_assert(g[i] == (kept[i / COLUMNS] ? 0 : 3e30F));
            for (int r = -1; r <= ROWS; r++) ck_assert(touched[r] == (r < 0 || r == ROWS));
            gd_context_free(ctx);
        }
}

CHECK_MAIN_WITHIN("sparse", setup, teardown)
