/* check_main.h - the end of every test program: runs its suite. */
#ifndef GRADUS_CHECK_MAIN_H
#define GRADUS_CHECK_MAIN_H

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

/* Check's own notes the place of every assertion in a file, two calls of the system for each: most of the
 * time of a test with an assertion for each element. Here a place is noted where it fails. */
#undef ck_assert_msg
#define ck_assert_msg(expr, ...) \
    ((expr) ? (void)0            \
            : _ck_assert_failed(__FILE__, __LINE__, "Assertion '" #expr "' failed", __VA_ARGS__))

/* GRADUS_TEST_SHORT in the environment: fewer dtypes, sizes and rounds, for slow tools. */
static inline bool test_brief(void)
{
    return getenv("GRADUS_TEST_SHORT") != NULL;
}

static inline int check_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    /* none run: CK_RUN_CASE names no case */
    bool passed = srunner_ntests_failed(runner) == 0 && srunner_ntests_run(runner) > 0;
    srunner_free(runner);
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- A file of tests ------------------------------------------------------------------------ */

/* A file that writes TEST(name) and LOOP_TEST(name, times), whose function has _i, for START_TEST lists
 * none of them: CHECK_MAIN, its last line, runs all in their order, each for `seconds` at most, or 0 for
 * as long as check_timeout.c says. */
typedef struct file_tests {
    int count;
    struct {
        const TTest *test;
        int times;
    } of[64];
} file_tests;

static inline file_tests *file_tests_listed(void)
{
    static file_tests all;
    return &all;
}

static inline void file_tests_add(const TTest *test, int times)
{
    file_tests *all = file_tests_listed();
    if (all->count == (int)(sizeof all->of / sizeof *all->of)) abort();
    all->of[all->count].test = test;
    all->of[all->count++].times = times;
}

static inline int file_tests_run(const char *name, double seconds, SFun setup, SFun teardown)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    if (seconds > 0) tcase_set_timeout(tcase, seconds);
    if (setup) tcase_add_checked_fixture(tcase, setup, teardown);
    for (int i = 0; i < file_tests_listed()->count; i++)
        tcase_add_loop_test(tcase, file_tests_listed()->of[i].test, 0,
                            file_tests_listed()->of[i].times);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}

#define LOOP_TEST(name, times)                                     \
    static const TTest *name;                                      \
    __attribute__((constructor)) static void name##_is_there(void) \
    {                                                              \
        file_tests_add(name, (int)(times));                        \
    }                                                              \
    START_TEST(name)
#define TEST(name) LOOP_TEST(name, 1)

#define CHECK_MAIN(name, seconds) CHECK_MAIN_WITHIN(name, seconds, NULL, NULL)
/* Each test between these two. */
#define CHECK_MAIN_WITHIN(name, seconds, setup, teardown) \
    CHECK_MAIN_UNLESS(false, name, seconds, setup, teardown)
/* The program is skipped if something is missing. */
#define CHECK_MAIN_UNLESS(missing, name, seconds, setup, teardown)              \
    int main(void)                                                              \
    {                                                                           \
        return (missing) ? 77 : file_tests_run(name, seconds, setup, teardown); \
    }

/* ---- More assertions -------------------------------------------------------------------------- */

/* Fails with the context's error, if there is one. */
#define ck_assert_no_error(ctx) \
    ck_assert_msg(gd_error(ctx) == NULL, "unexpected error: %s", gd_error(ctx))

/* A gd_text, which a call returns: Check uses its strings after the expression's end. */
#define ck_assert_text_eq(gotten, words)       \
    do {                                       \
        const gd_text text_ = (gotten);        \
        ck_assert_str_eq(text_.text, (words)); \
    } while (0)

/* The context has an error that contains the words. Clears it. */
#define ck_assert_error(ctx, words)                                                  \
    do {                                                                             \
        ck_assert_msg(gd_error(ctx) != NULL, "no error, expected: %s", words);       \
        ck_assert_msg(strstr(gd_error(ctx), words) != NULL,                          \
                      "the error is \"%s\", expected \"%s\"", gd_error(ctx), words); \
        gd_error_clear(ctx);                                                         \
    } while (0)

#endif
