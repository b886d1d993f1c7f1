/* test_cuda_linear_cross_entropy.c - the forward that computes the gradients in pieces of rows, on
 * the GPU: against two ops in float64, in a captured step, and its memory. (test_cuda_ops.c
 * compares a small case with the CPU.) */
#include <math.h>
#include <string.h>

#include "gpu.h"

typedef struct head {
    gd_context *ctx;
    gd_params *params;
    gd_tensor *x, *weight, *targets, *scale; /* the loss is multiplied by the scale */
} head;

/* The weight is a parameter, whose gradient is float32 if it has 16 bits. */
static head make(gd_dtype dtype, int64_t M, int64_t K, int64_t V)
{
    head h = {.ctx = gpu_context()};
    h.params = gd_params_create(h.ctx, dtype);
    h.weight = gd_params_add(h.params, "weight", GD_SHAPE(V, K), GD_DECAY);
    gd_params_finish(h.params);
    h.x = gd_tensor_create(h.ctx, dtype, GD_SHAPE(M, K));
    h.targets = gd_tensor_create(h.ctx, GD_INT32, GD_SHAPE(M));
    h.scale = gd_tensor_create(h.ctx, dtype == GD_FLOAT64 ? dtype : GD_FLOAT32, 0, NULL);
    gd_random_normal(h.weight, 0, 0.1);
    gd_random_normal(h.x, 0, 1);
    gd_random_integers(h.targets, 0, V);
    gd_tensor_fill(h.scale, 1);
    gd_tensor_set_requires_grad(h.x, true);
    ck_assert_no_error(h.ctx);
    return h;
}

static void destroy(head *h)
{
    ck_assert_no_error(h->ctx);
    gd_params_free(h->params);
    gd_context_free(h->ctx);
}

static double *values_of(const gd_tensor *t)
{
    ck_assert_ptr_nonnull(t);
    double *values = malloc((size_t)gd_tensor_count(t) * sizeof *values);
    gd_tensor_read_f64(t, values, gd_tensor_count(t));
    return values;
}

/* A leaf with the same values in float64. */
static gd_tensor *wide(const gd_tensor *t)
{
    double *values = values_of(t);
    gd_tensor *copy = gd_tensor_create(gd_tensor_context(t), GD_FLOAT64, 2, gd_tensor_shape(t));
    gd_tensor_write_f64(copy, values, gd_tensor_count(t));
    gd_tensor_set_requires_grad(copy, true);
    free(values);
    return copy;
}

/* ---- Values ------------------------------------------------------------------------------- */

/* `tolerance` is relative to the largest. */
static void assert_near(const gd_tensor *got, const gd_tensor *want, double tolerance, int turn,
                        const char *what)
{
    double *g = values_of(got), *w = values_of(want), largest = 0, worst = 0;
    for (int64_t i = 0; i < gd_tensor_count(want); i++) largest = fmax(largest, fabs(w[i]));
    for (int64_t i = 0; i < gd_tensor_count(want); i++) {
        const double share = fabs(g[i] - w[i]) / (tolerance * largest);
        if (!(share <= 1))
            ck_abort_msg("turn %d: %s[%lld] is %.9g, wanted %.9g (largest %.3g)", turn, what,
                         (long long)i, g[i], w[i], largest);
        worst = fmax(worst, share);
    }
    ck_assert_double_gt(largest, 0);
    printf("turn %d: %s off by at most %.3g of the tolerance\n", turn, what, worst);
    free(g), free(w);
}

/* A vocabulary of odd size, a last piece of a few rows, ignored rows; the second turn adds. */
LOOP_TEST(agrees_with_two_ops, 4)
{
    static const gd_dtype dtypes[] = {GD_FLOAT32, GD_BFLOAT16, GD_FLOAT64, GD_FLOAT16};
    static const double tolerances[] = {1e-5, 0x1p-6, 1e-12, 0x1p-9};
    const gd_cross_entropy_options options = {.ignore_index = 3};
    if (gpu_refuses(dtypes[_i])) return;
    head h = make(dtypes[_i], 3 * 4096 + 100, 64, 5003);
    gd_tensor *x = wide(h.x), *weight = wide(h.weight);
    gd_tensor_fill(h.scale, 1000);
    gd_tensor *got = gd_linear_cross_entropy(h.x, h.weight, h.targets, &options);
    gd_tensor *want = gd_cross_entropy_with(gd_linear(x, weight, NULL), h.targets, &options);
    ck_assert_double_eq_tol(gd_item(got), gd_item(want), tolerances[_i] * 10);
    gd_tensor *losses[2] = {gd_mul(got, h.scale), gd_scale(want, 1000)};
    for (int turn = 0; turn < 2; turn++) {
        gd_backward_from(losses, 2, &(gd_backward_options){.keep_tape = true});
        ck_assert_no_error(h.ctx);
        assert_near(gd_grad(h.x), gd_grad(x), tolerances[_i], turn, "dx");
        assert_near(gd_grad(h.weight), gd_grad(weight), tolerances[_i], turn, "dweight");
    }
    destroy(&h);
}

/* ---- A captured step ---------------------------------------------------------------------- */

static gd_status step(void *user)
{
    const head *h = user;
    return gd_backward(
        gd_mul(gd_linear_cross_entropy(h->x, h->weight, h->targets, NULL), h->scale));
}

/* The gradients after a step, which it clears: dx, then dweight. */
static double *run_step(head *h, gd_graph *graph)
{
    gd_tensor *const leaf[2] = {h->x, h->weight};
    double *both = NULL;
    size_t count = 0;
    gd_graph_run(graph, step, h);
    for (int i = 0; i < 2; i++) {
        double *values = values_of(gd_grad(leaf[i]));
        const size_t more = (size_t)gd_tensor_count(leaf[i]);
        both = realloc(both, (count + more) * sizeof *both);
        memcpy(both + count, values, more * sizeof *both);
        count += more;
        free(values);
        gd_grad_clear(leaf[i]);
    }
    return both;
}

TEST(a_replayed_step_has_the_same_bits)
{
    enum { M = 16384, K = 16, V = 500, RUNS = 6 };
    if (gpu_refuses(GD_BFLOAT16)) return;
    head h = make(GD_BFLOAT16, M, K, V);
    gd_graph *graph = gd_graph_create(h.ctx, NULL);
    gd_graph *plain = gd_graph_create(h.ctx, &(gd_graph_options){.off = true});
    for (int run = 0; run < RUNS; run++) {
        gd_random_normal(h.x, 0, 1);
        gd_random_integers(h.targets, 0, V);
        gd_tensor_fill(h.scale, 1 + run);
        double *got = run_step(&h, graph), *want = run_step(&h, plain);
        ck_assert_no_error(h.ctx);
        ck_assert(!memcmp(got, want, (size_t)(M + V) * K * sizeof *got));
        free(got), free(want);
    }
    ck_assert_int_ge(gd_graph_count(graph).replays, RUNS - 2);
    gd_graph_free(graph);
    gd_graph_free(plain);
    destroy(&h);
}

/* ---- Memory ------------------------------------------------------------------------------- */

/* GPT-2's vocabulary and width: d alone would have 1.65 GB. */
TEST(most_of_d_is_never_in_memory)
{
    if (gpu_refuses(GD_BFLOAT16)) return;
    head h = make(GD_BFLOAT16, 16384, 768, 50304);
    gd_memory_reset_peak(h.ctx);
    const size_t before = gd_memory(h.ctx).current_total;
    step(&h);
    ck_assert_no_error(h.ctx);
    const size_t most = gd_memory(h.ctx).peak_total - before;
    printf("16384 rows, K 768, V 50304: %.0f MB at most\n", (double)most / 1e6);
    ck_assert_uint_lt(most, 700000000);
    destroy(&h);
}

CHECK_MAIN_GPU(false, "linear_cross_entropy on the GPU", NULL, NULL)
