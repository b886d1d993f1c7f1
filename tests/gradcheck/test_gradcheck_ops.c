/* test_gradcheck_ops.c - one seed of every case of every op, and seeds that were hard. */
#include "all_cases.h"
#include "check_main.h"

#include <string.h>

TEST_CASE("float64", NULL, NULL)

TEST(every_case_passes_in_float64)
{
    all_cases all = all_cases_check(GD_FLOAT64, 1, 1, 1);
    ck_assert_int_eq(all.troubled, 0);
    ck_assert(!all.idle);
    ck_assert(all.largest_smooth <= 1e-6);
}

TEST_CASE("float32", NULL, NULL)

TEST(every_case_passes_in_float32)
{
    ck_assert_int_eq(all_cases_check(GD_FLOAT32, 1, 1, 1).troubled, 0);
}

TEST_CASE("16 bits", NULL, NULL)

TEST(every_case_passes_in_16_bits)
{
    if (!test_brief()) ck_assert_int_eq(all_cases_check(GD_FLOAT16, 1, 1, 1).troubled, 0);
    ck_assert_int_eq(all_cases_check(GD_BFLOAT16, 1, 1, 1).troubled, 0);
}

/* A sum of terms of size 1 that is 3e-4, which in another order differs by 1e-12 of itself; a scalar
 * whose first values lie within a step of a kink, so that others are drawn; and where the usual
 * float32 step is too long and the shortest too noisy, so that one between decides: beside a kink
 * that moves the slope by little more than the tolerance, and for a sum that cancels, of terms that
 * are steep at long steps. */
static const struct {
    const char *op, *name;
    gd_dtype dtype;
    uint64_t seed;
} hard[] = {{"minimum", "b_scalar", GD_FLOAT64, 3303},
            {"maximum", "b_scalar", GD_FLOAT32, 3547},
            {"minimum", "b_row", GD_FLOAT32, 1142},
            {"pow_tensor", "a_scalar", GD_FLOAT32, 1191}};

TEST_CASE("float64", NULL, NULL)

LOOP_TEST(seeds_that_were_hard_pass, sizeof hard / sizeof *hard)
{
    gd_context *ctx = gd_context_create(NULL);
    const gd_gradcheck_options options = {.dtype = &hard[_i].dtype, .seed = hard[_i].seed};
    const gd_op *op = gd_find_op(ctx, hard[_i].op);
    gd_gradcheck_report report = {0};
    for (int i = 0; i < op->case_count; i++)
        if (!strcmp(op->cases[i].name, hard[_i].name))
            gd_gradcheck_case(ctx, op, &op->cases[i], &options, &report);
    ck_assert_no_error(ctx);
    ck_assert_int_eq(report.inputs, 2);
    ck_assert_int_eq(report.verdict, GD_VERDICT_PASS);
    ck_assert_uint_eq(report.seed, hard[_i].seed);
    for (int i = 0; i < 2; i++) {
        ck_assert_str_eq(report.input[i].behaviour, "");
        ck_assert_int_ge(report.input[i].compared, 1);
    }
    gd_gradcheck_report_free(&report);
    gd_context_free(ctx);
}

CHECK_MAIN("gradcheck of every op")
