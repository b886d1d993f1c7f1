/* test_rms_norm_same.c - what must not change a bit of rms_norm: threads, other rows, the gradients
 * that are not needed, the memory of a gradient; and what is refused. Whether the numbers are right
 * is test_rms_norm.c's matter. */
#include "op_test.h"

/* ---- What must not make a difference ------------------------------------------------------ */

/* sum, dx, dresidual, dw, db and y of one problem with parameters [N] or [H, N]. */
static void run_with_threads(int threads, gd_dtype dtype, bool per_head, result_bits *first)
{
    enum { M = 701, H = 6, N = 17 };
    uint64_t seed = 77;
    gd_context *ctx = test_context(threads);
    const int64_t shape[] = {M, H, N}, *param = per_head ? shape + 1 : shape + 2;
    int ndim = per_head ? 2 : 1;
    gd_tensor *x = random_leaf(ctx, dtype, 3, shape, -2, 2, &seed), *sum;
    gd_tensor *r = random_leaf(ctx, dtype, 3, shape, -2, 2, &seed);
    gd_tensor *w = random_leaf(ctx, dtype, ndim, param, 0, 2, &seed);
    gd_tensor *b = random_leaf(ctx, dtype, ndim, param, -1, 1, &seed);
    gd_tensor *dy = random_leaf(ctx, dtype, 3, shape, -2, 2, &seed);
    gd_tensor *y = gd_add_rms_norm(x, r, w, b, &(gd_rms_norm_options){.eps = 1e-5}, &sum);
    gd_backward_from((gd_tensor *[]){y, sum}, 2,
                     &(gd_backward_options){.cotangents = (gd_tensor *[]){dy, dy}});
    ck_assert_no_error(ctx);
    gd_tensor *all[] = {sum, gd_grad(x), gd_grad(r), gd_grad(w), gd_grad(b), y};
    assert_same_bits(first, all, 6);
    gd_context_free(ctx);
}

TEST_CASE("no difference", 60, NULL, NULL)

LOOP_TEST(test_threads, 4)
{
    gd_dtype dtype = _i % 2 ? GD_FLOAT64 : GD_FLOAT32;
    result_bits first = {0};
    for (int n = 1; n <= 5; n++) run_with_threads(n, dtype, _i / 2, &first);
    free(first.all);
}

/* A row's result is the same whatever other rows there are. */
TEST(test_rows_do_not_see_each_other)
{
    gd_context *ctx = gd_context_create(NULL);
    uint64_t seed = 3;
    gd_tensor *x = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(500, 131), -2, 2, &seed);
    gd_tensor *all = gd_rms_norm(x, NULL, 1e-5);
    gd_tensor *one = gd_rms_norm(gd_slice(x, 0, 321, 322), NULL, 1e-5);
    ck_assert_no_error(ctx);
    const float *from_all = (const float *)gd_tensor_data(all) + 321 * 131;
    ck_assert(!memcmp(from_all, gd_tensor_data(one), 131 * sizeof(float)));
    gd_context_free(ctx);
}

/* Fused or not: the same numbers, to the bit where the sum is rounded to be stored. */
LOOP_TEST(test_add_is_add_then_norm, 4)
{
    static const gd_dtype dtypes[] = {GD_FLOAT32, GD_FLOAT64, GD_BFLOAT16, GD_FLOAT16};
    gd_context *ctx = gd_context_create(NULL);
    uint64_t seed = 11;
    gd_dtype dtype = dtypes[_i];
    gd_tensor *x = random_leaf(ctx, dtype, GD_SHAPE(9, 300), -2, 2, &seed);
    gd_tensor *r = random_leaf(ctx, dtype, GD_SHAPE(9, 300), -6, 6, &seed);
    gd_tensor *w = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(300), 0, 2, &seed);
    gd_rms_norm_options options = {.eps = 1e-5, .round_before_weight = true};
    gd_tensor *sum, *y = gd_add_rms_norm(x, r, w, NULL, &options, &sum);
    gd_tensor *again = gd_rms_norm_with(gd_detach(sum), w, NULL, &options);
    ck_assert_no_error(ctx);
    ck_assert(!memcmp(gd_tensor_data(y), gd_tensor_data(again), 9 * 300 * gd_dtype_size(dtype)));
    gd_context_free(ctx);
}

/* Any subset of gradients has the bits that all of them together have. */
TEST(test_subsets)
{
    unsigned char *bits[4] = {NULL};
    for (int subset = 15; subset > 0; subset--) {
        uint64_t seed = 21;
        gd_context *ctx = test_context(1);
        gd_tensor *in[] = {random_leaf(ctx, GD_FLOAT64, GD_SHAPE(37, 6, 19), -2, 2, &seed),
                           random_leaf(ctx, GD_FLOAT64, GD_SHAPE(37, 6, 19), -2, 2, &seed),
                           random_leaf(ctx, GD_FLOAT64, GD_SHAPE(6, 19), 0, 2, &seed),
                           random_leaf(ctx, GD_FLOAT64, GD_SHAPE(19), -2, 2, &seed)};
        gd_tensor *dy = random_leaf(ctx, GD_FLOAT64, GD_SHAPE(37, 6, 19), -2, 2, &seed);
        for (int i = 0; i < 4; i++) gd_tensor_set_requires_grad(in[i], subset >> i & 1);
        gd_rms_norm_options options = {.eps = 1e-5};
        gd_tensor *y = gd_add_rms_norm(in[0], in[1], in[2], in[3], &options, NULL);
        gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
        ck_assert_no_error(ctx);
        for (int i = 0; i < 4; i++) {
            size_t size = (size_t)gd_tensor_count(in[i]) * sizeof(double);
            ck_assert_int_eq(gd_grad(in[i]) != NULL, subset >> i & 1);
            if (!gd_grad(in[i])) continue;
            if (subset == 15) bits[i] = memcpy(malloc(size), gd_tensor_data(gd_grad(in[i])), size);
            ck_assert(!memcmp(bits[i], gd_tensor_data(gd_grad(in[i])), size));
        }
        gd_context_free(ctx);
    }
    for (int i = 0; i < 4; i++) free(bits[i]);
}

/* add_rms_norm when a gradient came to one of its outputs alone. */
TEST(test_missing_cotangents)
{
    gd_context *ctx = test_context(1);
    uint64_t seed = 31;
    gd_tensor *x = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(6, 10), -2, 2, &seed);
    gd_tensor *r = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(6, 10), -2, 2, &seed);
    gd_tensor *w = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(10), 0, 2, &seed);
    gd_tensor *u = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(6, 10), -2, 2, &seed);
    gd_rms_norm_options options = {.eps = 1e-5};
    gd_tensor *sum, *y = gd_add_rms_norm(x, r, w, NULL, &options, &sum);
    gd_backward_options given = {.cotangents = &u, .keep_tape = true};
    double *want = values_of(u), *nothing = zeros(10);
    for (int round = 1; round <= 2; round++) { /* the second time it adds */
        gd_backward_from(&sum, 1, &given);
        ck_assert_no_error(ctx);
        double *dx = values_of(gd_grad(x)), *dr = values_of(gd_grad(r));
        double *dw = values_of(gd_grad(w));
        for (int i = 0; i < 60; i++) dx[i] /= round, dr[i] /= round;
        arrays_near(dx, want, 60, (bound){0}, GD_FLOAT32, "dx");
        arrays_near(dr, want, 60, (bound){0}, GD_FLOAT32, "dresidual");
        arrays_near(dw, nothing, 10, (bound){0}, GD_FLOAT32, "dw");
        free(dx), free(dr), free(dw);
    }
    gd_grad_clear(x), gd_grad_clear(w);
    gd_backward_from(&y, 1, &given);
    double *dx = values_of(gd_grad(x)), *dw = values_of(gd_grad(w));
    gd_step_end(ctx);
    gd_grad_clear(x), gd_grad_clear(w);
    double *added = values_of(x), *rest = values_of(r);
    for (int i = 0; i < 60; i++) added[i] += rest[i];
    gd_tensor *plain = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(6, 10), -2, 2, &seed);
    gd_tensor_write_f64(plain, added, 60);
    y = gd_rms_norm(plain, w, 1e-5);
    gd_backward_from(&y, 1, &given);
    ck_assert_no_error(ctx);
    double *plain_dx = values_of(gd_grad(plain)), *plain_dw = values_of(gd_grad(w));
    arrays_near(dx, plain_dx, 60, (bound){0}, GD_FLOAT32, "dx");
    arrays_near(dw, plain_dw, 10, (bound){0}, GD_FLOAT32, "dw");
    free(want), free(nothing), free(dx), free(dw), free(added), free(rest);
    free(plain_dx), free(plain_dw);
    gd_context_free(ctx);
}

/* In a chain the gradient of each middle tensor takes the memory of the one after it. */
TEST(test_dx_in_place_of_dy)
{
    gd_context *ctx = test_context(1);
    uint64_t seed = 41;
    double *first = NULL;
    for (int keep = 1; keep >= 0; keep--) {
        seed = 41;
        gd_tensor *x = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(20, 300), -2, 2, &seed);
        gd_tensor *w = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(300), 0, 2, &seed);
        gd_tensor *dy = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(20, 300), -2, 2, &seed);
        gd_tensor *y = x;
        for (int i = 0; i < 4; i++) {
            y = gd_rms_norm(y, w, 1e-1);
            if (keep) gd_retain_grad(y); /* then nothing may be written over it */
        }
        gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
        ck_assert_no_error(ctx);
        double *dx = values_of(gd_grad(x)), *dw = values_of(gd_grad(w));
        first = first ? first : memcpy(zeros(6300), dx, 6000 * sizeof *dx);
        if (keep) memcpy(first + 6000, dw, 300 * sizeof *dw);
        arrays_near(dx, first, 6000, (bound){0}, GD_FLOAT32, "dx");
        arrays_near(dw, first + 6000, 300, (bound){0}, GD_FLOAT32, "dw");
        free(dx), free(dw);
        gd_step_end(ctx);
    }
    free(first);
    gd_context_free(ctx);
}

/* ---- What is refused ---------------------------------------------------------------------- */

/* Of an argument; not given: NULL. */
typedef struct argument {
    bool given;
    int ndim;
    int64_t dims[3];
} argument;

static const struct refusal {
    const char *message;
    argument x, weight, bias;
    gd_dtype dtype; /* of x */
    gd_rms_norm_options options;
} refused[] = {
    {.message =
         "rms_norm: weight has shape [768], wanted the last dimension of x [32, 64, 512], or "
         "the last two for one row per head",
     .x = {true, 3, {32, 64, 512}},
     .weight = {true, 1, {768}}},
    {.message =
         "rms_norm: bias has shape [1], wanted the last dimension of x [3, 4], or the last two "
         "for one row per head",
     .x = {true, 2, {3, 4}},
     .weight = {true, 1, {4}},
     .bias = {true, 1, {1}}},
    {.message = "rms_norm: weight has shape [2, 4], wanted the last dimension of x [2, 3, 4], or "
                "the last two for one row per head",
     .x = {true, 3, {2, 3, 4}},
     .weight = {true, 2, {2, 4}}},
    {.message =
         "rms_norm: weight has shape [1, 4], wanted the last dimension of x [4], or the last two "
         "for one row per head",
     .x = {true, 1, {4}},
     .weight = {true, 2, {1, 4}}},
    {.message =
         "rms_norm: weight has shape [], wanted the last dimension of x [3, 4], or the last two "
         "for one row per head",
     .x = {true, 2, {3, 4}},
     .weight = {true, 0, {0}}},
    {.message = "rms_norm: bias has shape [1, 3, 4], wanted the last dimension of x [3, 4], or the "
                "last two for one row per head",
     .x = {true, 2, {3, 4}},
     .bias = {true, 3, {1, 3, 4}}},
    {.message = "rms_norm: x has no dimensions, wanted [..., N]", .x = {true, 0, {0}}},
    {.message = "rms_norm: x is int32, wanted a real dtype",
     .x = {true, 2, {3, 4}},
     .dtype = GD_INT32},
    {.message = "rms_norm: eps is -1, wanted a finite number of at least 0",
     .x = {true, 2, {3, 4}},
     .options = {.eps = -1}},
    {.message = "rms_norm: eps is nan, wanted a finite number of at least 0",
     .x = {true, 2, {3, 4}},
     .options = {.eps = (double)NAN}},
    {.message = "rms_norm: offset is inf, wanted a finite number",
     .x = {true, 2, {3, 4}},
     .options = {.offset = (double)INFINITY}},
};

static gd_tensor *tensor_like(gd_context *ctx, gd_dtype dtype, const argument *s)
{
    return s->given ? gd_tensor_create(ctx, dtype, s->ndim, s->dims) : NULL;
}

TEST_CASE("refused", 0, NULL, NULL)

LOOP_TEST(test_refused, (int)(sizeof refused / sizeof *refused))
{
    const struct refusal *r = &refused[_i];
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *x = tensor_like(ctx, r->dtype, &r->x);
    gd_tensor *w = tensor_like(ctx, GD_FLOAT32, &r->weight);
    gd_tensor *b = tensor_like(ctx, GD_FLOAT32, &r->bias);
    ck_assert_ptr_null(gd_rms_norm_with(x, w, b, &r->options));
    ck_assert_int_eq(gd_error_status(ctx), GD_ERROR_ARGUMENT);
    ck_assert_error(ctx, r->message);
    gd_context_free(ctx);
}

TEST(test_refused_add)
{
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 4)), *sum = x;
    gd_tensor *r = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4, 3));
    gd_rms_norm_options options = {.eps = 1e-5};
    ck_assert_ptr_null(gd_add_rms_norm(x, r, NULL, NULL, &options, &sum));
    ck_assert_ptr_null(sum);
    ck_assert_error(ctx, "add_rms_norm: residual has shape [4, 3], but that of x is [3, 4]");
    ck_assert_ptr_null(gd_rms_norm(NULL, NULL, 1e-5));
    gd_context_free(ctx);
}

CHECK_MAIN("rms_norm_same", 0)
