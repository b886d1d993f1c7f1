/* test.c - the loss of a last layer against its plain twin, and what its pieces save. */
#include "each_context.h"
#include "cross_entropy/cross_entropy.h"
#include "twin.h"

TWIN(linear_cross_entropy)

typedef struct problem {
    int64_t M, K, V;
    const int32_t *targets;
    gd_cross_entropy_options options;
} problem;

static void check_problem(problem p, gd_dtype dtype, uint64_t seed)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 2, .poison = true});
    gd_tensor *x = random_leaf(ctx, dtype, GD_SHAPE(p.M, p.K), -1, 1, &seed);
    gd_tensor *w = random_leaf(ctx, dtype, GD_SHAPE(p.V, p.K), -1, 1, &seed);
    gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(p.M), p.targets), *in[] = {x, w, t};
    const gd_cross_entropy_args args = {.reduction = p.options.reduction,
                                        .ignore_index = (int32_t)p.options.ignore_index,
                                        .use_ignore_index = p.options.ignore_index != 0};
    assert_twin(linear_cross_entropy_twin(), in, 3, &args, 20 * tolerance_of(dtype), &seed);
    gd_tensor *y = gd_linear_cross_entropy(x, w, t, &p.options);
    assert_called(y, SCALAR_SHAPE, "linear_cross_entropy", in, 3, &args);
    const double loss = gd_item(y), rtol = dtype == GD_FLOAT64 ? 1e-12 : 2e-6 * (double)(p.K + 4);
    gd_no_grad_begin(ctx);
    const double alone = gd_item(gd_linear_cross_entropy(x, w, t, &p.options));
    gd_no_grad_end(ctx);
    arrays_near(&alone, &loss, 1, (bound){1, rtol, 1}, gd_tensor_dtype(y), "loss without a tape");
    gd_context_free(ctx);
}

LOOP_TEST(is_its_plain_twin, 40)
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    uint64_t seed = 100 + (uint64_t)_i;
    problem p = {.M = random_size(&seed, 1, 40),
                 .K = random_size(&seed, 1, 20),
                 .V = random_size(&seed, 2, _i % 5 ? 30 : 1100)};
    p.options.reduction = _i / 4 % 2 ? GD_SUM : GD_MEAN;
    const bool ignores = random_chance(&seed, 0.5);
    if (ignores) p.options.ignore_index = -100;
    int32_t *targets = malloc((size_t)p.M * sizeof *targets);
    for (int64_t i = 0; i < p.M; i++) {
        targets[i] = (int32_t)random_below(&seed, p.V);
        if (ignores && i > 0 && random_chance(&seed, 0.3)) targets[i] = -100;
    }
    p.targets = targets;
    check_problem(p, dtypes[_i % 4], seed);
    free(targets);
}

/* So many rows that the forward computes the gradients in pieces, the last of a few rows. */
LOOP_TEST(gradients_in_pieces, 8)
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    uint64_t seed = 500 + (uint64_t)_i;
    problem p = {.M = 3 * 4096 + 5, .K = 3, .V = 40};
    p.options.reduction = _i / 4 ? GD_SUM : GD_MEAN;
    p.options.ignore_index = 7;
    int32_t *targets = malloc((size_t)p.M * sizeof *targets);
    for (int64_t i = 0; i < p.M; i++) targets[i] = (int32_t)random_below(&seed, p.V);
    p.targets = targets;
    check_problem(p, dtypes[_i % 4], seed);
    free(targets);
}

/* In pieces d is never in memory as a whole, and a gradient that is not needed is not computed. One
 * that is required only after the forward is refused. */
TEST(pieces_save_what_is_needed)
{
    enum { M = 16384, K = 2, V = 100 };
    uint64_t seed = 3;
    gd_tensor *in[2] = {random_leaf(ctx, GD_FLOAT32, GD_SHAPE(M, K), -1, 1, &seed),
                        random_leaf(ctx, GD_FLOAT32, GD_SHAPE(V, K), -1, 1, &seed)};
    gd_tensor *t = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(M));
    gd_random_integers(t, 0, V);
    gd_memory_reset_peak(ctx);
    const size_t before = gd_memory(ctx).peak_total;
    gd_backward(gd_linear_cross_entropy(in[0], in[1], t, NULL));
    ck_assert_uint_lt(gd_memory(ctx).peak_total - before, (size_t)M * V * sizeof(float) / 2);
    ck_assert_no_error(ctx);
    for (int i = 0; i < 2; i++) {
        size_t size, same_size;
        void *both = bytes_of(gd_grad(in[i]), &size);
        gd_step_end(ctx);
        gd_grad_clear(in[0]), gd_grad_clear(in[1]);
        gd_tensor_set_requires_grad(in[1 - i], false);
        const size_t empty = gd_memory(ctx).current_total;
        gd_tensor *loss = gd_linear_cross_entropy(in[0], in[1], t, NULL);
        const size_t saved = gd_memory(ctx).current_total - empty;
        ck_assert_uint_eq(saved,
                          (size_t)gd_tensor_count(in[i]) * sizeof(float) + 2 * sizeof(float));
        gd_backward(loss);
        ck_assert_no_error(ctx);
        void *alone = bytes_of(gd_grad(in[i]), &same_size);
        ck_assert(size == same_size && !memcmp(both, alone, size));
        ck_assert_ptr_null(gd_grad(in[1 - i]));
        free(both), free(alone);
        loss = gd_linear_cross_entropy(in[0], in[1], t, NULL);
        gd_tensor_set_requires_grad(in[1 - i], true);
        ck_assert_error(ctx,
                        "set_requires_grad: linear_cross_entropy of this step has read the tensor");
        gd_step_end(ctx);
        gd_tensor_set_requires_grad(in[1 - i], true);
        gd_grad_clear(in[0]), gd_grad_clear(in[1]);
        gd_backward(gd_linear_cross_entropy(in[0], in[1], t, NULL));
    }
}

/* Without a backward to come the logits are made in pieces of rows: their memory shows it, and the
 * loss does not. */
TEST(pieces)
{
    enum { M = 700, K = 3, V = 100000 };
    uint64_t seed = 1;
    gd_tensor *x = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(M, K), -1, 1, &seed);
    gd_tensor *w = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(V, K), -1, 1, &seed);
    gd_tensor *t = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(M));
    gd_random_integers(t, 0, V);
    gd_no_grad_begin(ctx);
    double loss = gd_item(gd_linear_cross_entropy(x, w, t, NULL));
    const size_t peak = gd_memory(ctx).peak_total;
    gd_step_end(ctx);
    double want = gd_item(gd_cross_entropy(gd_linear(x, w, NULL), t));
    gd_no_grad_end(ctx);
    ck_assert_no_error(ctx);
    ck_assert_double_eq_tol(loss, want, 1e-5);
    ck_assert_uint_lt(peak, (size_t)M * V * sizeof(float) / 2);
}

TEST(says_what_does_not_fit)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 3));
    gd_tensor *w = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(5, 3));
    gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), ((const int32_t[]){4, 5}));
    REFUSED(gd_linear_cross_entropy(x, w, x, NULL),
            "linear_cross_entropy: targets is float32 [2, 3], wanted int32 and the "
            "shape of x weight^T [2, 5] without its last dimension");
    REFUSED(gd_linear_cross_entropy(x, w, t, NULL),
            "linear_cross_entropy: targets[1] is 5, wanted 0 to 4");
}

CHECK_MAIN_WITHIN("linear_cross_entropy", setup, teardown)
