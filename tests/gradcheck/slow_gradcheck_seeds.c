/* slow_gradcheck_seeds.c - no false alarm: several seeds of every case of every op.
 * gradus-gradcheck --seeds N tries more. */
/* Build: a test for each case. */
#include "all_cases.h"
#include "check_main.h"

enum { SEEDS = 8 };

START_TEST(no_false_alarm_in_float64)
{
    all_cases all = all_cases_check(GD_FLOAT64, 100, SEEDS, 1);
    ck_assert_int_eq(all.troubled, 0);
    ck_assert(all.largest_smooth <= 1e-6);
}
END_TEST

START_TEST(no_false_alarm_in_float32)
{
    ck_assert_int_eq(all_cases_check(GD_FLOAT32, 100, SEEDS, 1).troubled, 0);
}
END_TEST

START_TEST(no_false_alarm_in_float16)
{
    ck_assert_int_eq(all_cases_check(GD_FLOAT16, 100, SEEDS, 1).troubled, 0);
}
END_TEST

START_TEST(no_false_alarm_in_bfloat16)
{
    ck_assert_int_eq(all_cases_check(GD_BFLOAT16, 100, SEEDS, 1).troubled, 0);
}
END_TEST

/* The checks of behaviour ask for equal bits, with threads as without. */
START_TEST(no_false_alarm_with_threads)
{
    ck_assert_int_eq(all_cases_check(GD_FLOAT64, 100, 1, 2).troubled, 0);
}
END_TEST

/* The cases run side by side (tests/CMakeLists.txt). */
static void add(Suite *suite, TCase *tcase, const TTest *test)
{
    tcase_set_timeout(tcase, 800);
    tcase_add_test(tcase, test);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("gradcheck, many seeds");
    add(suite, tcase_create("float64"), no_false_alarm_in_float64);
    add(suite, tcase_create("float32"), no_false_alarm_in_float32);
    add(suite, tcase_create("float16"), no_false_alarm_in_float16);
    add(suite, tcase_create("bfloat16"), no_false_alarm_in_bfloat16);
    add(suite, tcase_create("threads"), no_false_alarm_with_threads);
    return check_main(suite);
}
