/* test_cuda_reduce.c - reductions on a GPU over the whole range of float32, of zeros and NaN, and
 * long gathers and sorts: the cases of test_cuda_ops.c are of ordinary numbers and sizes. */
#include "gpu.h"
#include "axis/test_long_gathers.h"
#include "axis/test_long_sorts.h"
#include "test_special.h"
#include "test_ranges.h"

static gd_context *ctx;

static void setup(void)
{
    ctx = gpu_context();
}

static void teardown(void)
{
    gd_context_free(ctx);
}

/* Sums of float: some units in the last place. */
LOOP_TEST(variances_of_any_size, VARIANCE_RANGES)
{
    check_variances(ctx, &variance_ranges[_i], 2e-6);
}

/* As on the CPU, whose test has the reasons (test_reduce.c). */
TEST(variances_of_nothing_and_of_nan)
{
    check_special_variances(ctx);
}

TEST(products_norms_and_truth)
{
    check_products_with_zeros(ctx);
    check_norms(ctx);
    check_norms_of_any_size(ctx);
    check_norms_of_any_power(ctx);
    check_any_and_all(ctx);
}

static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};

LOOP_TEST(long_gathers_are_the_definition, 4 * LONG_GATHERS)
{
    uint64_t seed = 1;
    if (test_brief() && dtypes[_i % 4] != GD_FLOAT32) return; /* under a sanitizer */
    check_long_gather(ctx, &long_gathers[_i / 4], dtypes[_i % 4], &seed);
}

/* A kernel tells the place of an index that is outside: of one line for all, in that line. */
TEST(long_gathers_outside)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 600));
    gd_tensor *index = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(600));
    double at[600] = {0};
    at[411] = 600;
    gd_tensor_fill(x, 1);
    gd_tensor_write_f64(index, at, 600);
    gd_index_select(x, 1, index);
    ck_assert(gd_synchronize(ctx) != GD_OK);
    ck_assert_error(ctx, "index_select: the index at position 411 is outside [0, 600)");
    at[411] = -1;
    gd_tensor_write_f64(index, at, 600);
    gd_tensor *row = gd_reshape(index, GD_SHAPE(1, 600));
    gd_tensor *y = gd_scatter_add(x, 1, row, x);
    ck_assert(gd_synchronize(ctx) != GD_OK);
    ck_assert_error(ctx, "scatter_add: the index at position 411 is outside [0, 600)");
    gd_tensor_free(y);
}

LOOP_TEST(long_sorts, 4)
{
    uint64_t seed = 1;
    if (test_brief() && dtypes[_i] != GD_FLOAT32) return;
    check_long_sorts(ctx, dtypes[_i], &seed);
}

CHECK_MAIN_GPU(false, "cuda reduce", setup, teardown)
