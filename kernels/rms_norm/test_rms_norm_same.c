/* test_rms_norm_same.c - what must not change a bit of rms_norm: other rows, an addition before it,
 * the memory of a gradient; and weights that are not expanded. That threads and gradients which are
 * not needed change nothing is tested for every op (test_op_contract.c and gradcheck), whether the
 * numbers are right by test.c. */
#include "op_test.h"

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
    size_t peak[2];
    for (int keep = 1; keep >= 0; keep--) {
        seed = 41;
        gd_tensor *x = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(20, 300), -2, 2, &seed);
        gd_tensor *w = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(300), 0, 2, &seed);
        gd_tensor *dy = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(20, 300), -2, 2, &seed);
        gd_tensor *y = x;
        const size_t before = gd_memory(ctx).current_total;
        gd_memory_reset_peak(ctx);
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
        peak[keep] = gd_memory(ctx).peak_total - before;
        gd_step_end(ctx);
    }
    ck_assert_uint_gt(peak[1] - peak[0], 2 * 6000 * sizeof(float));
    free(first);
    gd_context_free(ctx);
}

/* What other ops would expand is refused. */
TEST(test_weights_are_not_expanded)
{
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 4)), *sum = x;
    for (int ndim = 0; ndim <= 2; ndim++) { /* [], [1], [1, 4] */
        gd_tensor *w = gd_tensor_create(ctx, GD_FLOAT32, ndim, (int64_t[]){1, 4});
        ck_assert_ptr_null(gd_add_rms_norm(x, x, w, NULL, NULL, &sum));
        ck_assert_error(ctx, "rms_norm: weight has shape [");
        ck_assert_ptr_null(sum);
        gd_error_clear(ctx);
    }
    gd_context_free(ctx);
}

CHECK_MAIN("rms_norm_same")
