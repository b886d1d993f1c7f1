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
