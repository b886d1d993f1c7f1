/* test_gradcheck_ops.c - one seed of every case of every op. */
#include "all_cases.h"
#include "check_main.h"

START_TEST(every_case_passes_in_float64)
{
    all_cases all = all_cases_check(GD_FLOAT64, 1, 1, 1);
    ck_assert_int_eq(all.troubled, 0);
    ck_assert(!all.idle);
    ck_assert(all.largest_smooth <= 1e-6);
}
END_TEST

START_TEST(every_case_passes_in_float32)
{
    ck_assert_int_eq(all_cases_check(GD_FLOAT32, 1, 1, 1).troubled, 0);
}
END_TEST

START_TEST(every_case_passes_in_16_bits)
{
    if (!test_brief()) ck_assert_int_eq(all_cases_check(GD_FLOAT16, 1, 1, 1).troubled, 0);
    ck_assert_int_eq(all_cases_check(GD_BFLOAT16, 1, 1, 1).troubled, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gradcheck of every op");
    TCase *tcase = tcase_create("gradcheck of every op");
    tcase_set_timeout(tcase, 100);
    tcase_add_test(tcase, every_case_passes_in_float64);
    tcase_add_test(tcase, every_case_passes_in_float32);
    tcase_add_test(tcase, every_case_passes_in_16_bits);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
