/* slow_gradcheck_seeds.c - no false alarm: several seeds of every case of every op.
 * gradus-gradcheck --seeds N tries more. */
#include "all_cases.h"
#include "check_main.h"

enum { SEEDS = 8 };

TEST_CASE("float64", NULL, NULL)

TEST(no_false_alarm_in_float64)
{
    all_cases all = all_cases_check(GD_FLOAT64, 100, SEEDS, 1);
    ck_assert_int_eq(all.troubled, 0);
    ck_assert(all.largest_smooth <= 1e-6);
}

TEST_CASE("float32", NULL, NULL)

TEST(no_false_alarm_in_float32)
{
    ck_assert_int_eq(all_cases_check(GD_FLOAT32, 100, SEEDS, 1).troubled, 0);
}

TEST_CASE("float16", NULL, NULL)

TEST(no_false_alarm_in_float16)
{
    ck_assert_int_eq(all_cases_check(GD_FLOAT16, 100, SEEDS, 1).troubled, 0);
}

TEST_CASE("bfloat16", NULL, NULL)

TEST(no_false_alarm_in_bfloat16)
{
    ck_assert_int_eq(all_cases_check(GD_BFLOAT16, 100, SEEDS, 1).troubled, 0);
}

TEST_CASE("threads", NULL, NULL)

/* The checks of behaviour ask for equal bits, with threads as without. */
TEST(no_false_alarm_with_threads)
{
    ck_assert_int_eq(all_cases_check(GD_FLOAT64, 100, 1, 2).troubled, 0);
}

CHECK_MAIN("gradcheck, many seeds")
