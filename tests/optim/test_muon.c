/* test_muon.c - Muon makes updates of matrices nearly orthogonal, with the same bits for any number
 * of threads. Its rule is compared with PyTorch's in python/tests/test_optimizers.py. */
#include "each_context.h"

#include <math.h>
#include <stdint.h>

/* One update of a zero matrix [rows, columns] by `grad`, or by a random gradient: minus lr size U. */
static void orthogonalize(gd_context *ctx, gd_dtype dtype, int64_t rows, int64_t columns,
                          const double *grad, double *update)
{
    gd_params *params = gd_params_create(ctx, dtype);
    gd_tensor *w = gd_params_add(params, "w", 2, (int64_t[]){rows, columns}, GD_MUON);
    gd_params_finish(params);
    gd_optimizer *muon = gd_muon_create(params, NULL);
    gd_backward_from(&w, 1, NULL);
    gd_random_set(ctx, (gd_random_state){.seed = 7});
    gd_random_normal(gd_grad(w), 0, 1e-3);
    if (grad) gd_tensor_write_f64(gd_grad(w), grad, rows * columns);
    gd_optimizer_step(muon, 1);
    gd_tensor_read_f64(w, update, rows * columns);
    ck_assert_no_error(ctx);
    gd_optimizer_free(muon);
    gd_params_free(params);
}

/* The singular values of U are between 0.6 and 1.3: so is |U a| / |a| for any a on the smaller
 * side, and the sum of squares is about the rank. A matrix and its transpose have the same ones. */
LOOP_TEST(muon_makes_matrices_nearly_orthogonal, 6)
{
    static const int64_t shapes[][2] = {{5, 50}, {12, 60}, {60, 12}, {1, 9}, {9, 1}, {40, 32}};
    const int64_t rows = shapes[_i][0], columns = shapes[_i][1];
    const int64_t small = rows < columns ? rows : columns, large = rows + columns - small;
    const double size = rows > columns ? sqrt((double)rows / (double)columns) : 1;
    double u[60 * 60], squares = 0;
    orthogonalize(ctx, GD_FLOAT64, rows, columns, NULL, u);
    for (int64_t i = 0; i < rows * columns; i++) squares += u[i] * u[i] / (size * size);
    ck_assert_double_ge(squares, 0.4 * (double)small);
    ck_assert_double_le(squares, 1.6 * (double)small);
    for (int trial = 0; trial < 20; trial++) {
        double length = 0, image = 0, a[60];
        for (int64_t i = 0; i < small; i++) {
            a[i] = sin(12.9898 * (double)i + 78.233 * trial + 1);
            length += a[i] * a[i];
        }
        for (int64_t j = 0; j < large; j++) {
            double dot = 0;
            for (int64_t i = 0; i < small; i++)
                dot += a[i] * (rows < columns ? u[i * columns + j] : u[j * columns + i]) / size;
            image += dot * dot;
        }
        ck_assert_double_ge(sqrt(image / length), 0.6);
        ck_assert_double_le(sqrt(image / length), 1.3);
    }
}

/* The step for a gradient with two equal singular values, however small: U does not depend on
 * its size. */
TEST(no_gradient_is_too_small_for_muon)
{
    for (int wide = 0; wide < 2; wide++) {
        for (double norm = 1; norm > (wide ? 1e-140 : 1e-35); norm *= 1e-5) {
            const double grad[4] = {norm, 0, 0, -norm};
            double u[4];
            orthogonalize(ctx, wide ? GD_FLOAT64 : GD_FLOAT32, 2, 2, grad, u);
            ck_assert_double_ge(-u[0], 0.68);
            ck_assert_double_le(-u[0], 1.21);
            ck_assert_double_eq_tol(u[3], -u[0], 1e-6);
        }
    }
}

/* One of 0, or in float64 with squares that vanish, moves nothing. */
TEST(nothing_moves_by_nothing)
{
    for (int i = 0; i < 2; i++) {
        const double tiny = i ? 1e-160 : 0, grad[4] = {tiny, tiny, tiny, tiny};
        double u[4];
        orthogonalize(ctx, GD_FLOAT64, 2, 2, grad, u);
        for (int k = 0; k < 4; k++) ck_assert(u[k] == 0);
    }
}

/* The products are large enough for several threads and tiles. */
LOOP_TEST(threads_do_not_change_muon, 2)
{
    enum { ROWS = 150, COLUMNS = 301 };
    static double update[2][ROWS * COLUMNS];
    for (int run = 0; run < 2; run++) {
        gd_context *ctx = test_context(1 + 2 * run);
        orthogonalize(ctx, _i ? GD_BFLOAT16 : GD_FLOAT32, ROWS, COLUMNS, NULL, update[run]);
        gd_context_free(ctx);
    }
    ck_assert_mem_eq(update[0], update[1], sizeof update[0]);
}

CHECK_MAIN_WITHIN("muon", setup, teardown)
