/* test_gradcheck_ops.c - one seed of every case of every op, and seeds that were hard. */
/* Build: a test for each case. */
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

/* The report of a case of an op. */
static gd_gradcheck_report report_of(gd_context *ctx, const char *name, const char *which,
                                     const gd_gradcheck_options *options)
{
    gd_gradcheck_report report = {0};
    const gd_op *op = gd_find_op(ctx, name);
    for (int i = 0; i < op->case_count; i++) {
        if (strcmp(op->cases[i].name, which) != 0) continue;
        gd_gradcheck_case(ctx, op, &op->cases[i], options, &report);
    }
    ck_assert_no_error(ctx);
    ck_assert_int_eq(report.inputs, 2);
    return report;
}

TEST_CASE("float64", NULL, NULL)

/* A sum of terms of size 1 that is 3e-4: in another order it differs by 1e-12 of itself. */
TEST(terms_that_cancel_may_be_added_in_another_order)
{
    gd_context *ctx = gd_context_create(NULL);
    const gd_gradcheck_options options = {.seed = 3303};
    gd_gradcheck_report report = report_of(ctx, "minimum", "b_scalar", &options);
    ck_assert_str_eq(report.input[1].behaviour, "");
    ck_assert_int_eq(report.verdict, GD_VERDICT_PASS);
    gd_gradcheck_report_free(&report);
    gd_context_free(ctx);
}

/* The first values drawn leave a scalar within a step of a kink. */
TEST(values_at_kinks_are_drawn_again)
{
    gd_context *ctx = gd_context_create(NULL);
    const gd_dtype dtype = GD_FLOAT32;
    const gd_gradcheck_options options = {.dtype = &dtype, .seed = 3547};
    gd_gradcheck_report report = report_of(ctx, "maximum", "b_scalar", &options);
    ck_assert_int_eq(report.verdict, GD_VERDICT_PASS);
    ck_assert_int_eq(report.input[1].compared, 1);
    ck_assert_uint_eq(report.seed, 3547);
    gd_gradcheck_report_free(&report);
    gd_context_free(ctx);
}

CHECK_MAIN("gradcheck of every op")
