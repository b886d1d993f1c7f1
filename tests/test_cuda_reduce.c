/* test_cuda_reduce.c - var and std on a GPU over the whole range of float32: the cases of
 * test_cuda_ops.c are of ordinary sizes. */
#include "gpu.h"
#include "variance_ranges.h"

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
START_TEST(variances_of_any_size)
{
    check_variances(ctx, &variance_ranges[_i], 2e-6);
}
END_TEST

/* As on the CPU, whose test has the reasons (test_reduce.c). */
START_TEST(variances_of_nothing_and_of_nan)
{
    check_special_variances(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda reduce");
    TCase *tcase = tcase_create("variances");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, variances_of_any_size, 0, VARIANCE_RANGES);
    tcase_add_test(tcase, variances_of_nothing_and_of_nan);
    suite_add_tcase(suite, tcase);
    return check_main_gpu(suite);
}
