/* test_cuda_sparse.c - gradients of tables of which few rows are touched, on a GPU: the bits of
 * dense ones, also in graphs. */
#include "gpu.h"
#include "sparse_tables.h"

static const gd_dtype dtypes[] = {GD_FLOAT32, GD_FLOAT16, GD_FLOAT64};
/* Smaller tables are summed by another kernel, which writes all rows. */
static const int64_t sizes[][2] = {{40, 5}, {2049, 1}, {2100, 3}, {2304, 16}, {2500, 70}};

TEST(any_steps_have_the_bits_of_dense_ones)
{
    int sparse = 0;
    for (int kind = 0; kind < SPARSE_KINDS; kind++)
        for (int i = 0; i < 5; i++) {
            const gd_dtype dtype = dtypes[(kind + i) % 3];
            gd_context *ctx[] = {gpu_context(), gpu_context()};
            tables x = tables_make(ctx[0], dtype, sizes[i][0], sizes[i][1], kind, false);
            tables y = tables_make(ctx[1], dtype, sizes[i][0], sizes[i][1], kind, true);
            const char *what = tables_run(&x, &y, 15, (uint64_t)(kind * 100 + i), &sparse);
            ck_assert_msg(!what, "optimizer %d, %s, size %d: %s", kind, gd_dtype_name(dtype), i,
                          what);
            tables_free(&x), tables_free(&y);
            for (int k = 0; k < 2; k++) gd_context_free(ctx[k]);
        }
    ck_assert_int_gt(sparse, 200);
}

typedef struct replayed {
    tables t;
    gd_tensor *ids;
} replayed;

static gd_status step(void *user)
{
    replayed *r = user;
    gd_tensor *h = gd_mul(gd_embedding(r->t.a, r->ids), gd_embedding(r->t.b, r->ids));
    gd_optimizer_backward(r->t.optimizer, gd_sum_all(h), 1);
    gd_optimizer_update(r->t.optimizer, 0.5);
    return gd_params_clear_grads(r->t.params);
}

TEST(graphs_have_the_bits_of_dense_steps)
{
    enum { STEPS = 30, IDS = 200, ROWS = 3000 };
    for (int kind = 0; kind < 4; kind++) {
        replayed r[2];
        gd_graph *graph[2];
        uint64_t seed = 1;
        for (int k = 0; k < 2; k++) {
            gd_context *ctx = gpu_context();
            r[k].t = tables_make(ctx, dtypes[kind % 2], ROWS, 24, kind, k == 1);
            r[k].ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(IDS));
            gd_optimizer_set_rate(r[k].t.optimizer, 0.1);
            graph[k] = gd_graph_create(ctx, &(gd_graph_options){.off = k == 1});
        }
        for (int i = 0; i < STEPS; i++) {
            int32_t id[IDS];
            for (int n = 0; n < IDS; n++) id[n] = (int32_t)random_below(&seed, ROWS);
            for (int k = 0; k < 2; k++) {
                gd_tensor_write(r[k].ids, id, sizeof id);
                gd_graph_run(graph[k], step, &r[k]);
                r[k].t.norm = 0;
                ck_assert_no_error(r[k].t.ctx);
            }
            ck_assert_pstr_eq(tables_differ(&r[0].t, &r[1].t), NULL);
            ck_assert(r[0].t.a->grad->sparse == (i < STEPS / 2));
            if (i == STEPS / 2 - 1) gd_grad_share(r[0].t.a->grad);
        }
        ck_assert_int_ge(gd_graph_count(graph[0]).replays, STEPS - 6);
        for (int k = 0; k < 2; k++) {
            gd_context *ctx = r[k].t.ctx;
            gd_graph_free(graph[k]);
            tables_free(&r[k].t);
            gd_tensor_free(r[k].ids);
            gd_context_free(ctx);
        }
    }
}

CHECK_MAIN_GPU(false, "sparse, on a GPU", NULL, NULL)
