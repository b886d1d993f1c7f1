/* check_main.h - the end of every test program: runs its suite. */
#ifndef GRADUS_CHECK_MAIN_H
#define GRADUS_CHECK_MAIN_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gradus/gradus.h"
#include "numbers.h"

/* Check's own notes the place of every assertion in a file, two calls of the system for each:
 * most of the time of a test with an assertion for each element. Here a place is noted where
 * it fails. */
#undef ck_assert_msg
#define ck_assert_msg(expr, ...) \
    ((expr) ? (void)0            \
            : _ck_assert_failed(__FILE__, __LINE__, "Assertion '" #expr "' failed", __VA_ARGS__))

/* GRADUS_TEST_SHORT in the environment: fewer dtypes, sizes and rounds, for slow tools. */
static inline bool test_brief(void)
{
    return getenv("GRADUS_TEST_SHORT") != NULL;
}

/* Of rounds on random problems then a fourth. */
static inline int test_rounds(int all)
{
    return test_brief() ? (all + 3) / 4 : all;
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

/* A file that writes TEST(name) and LOOP_TEST(name, times), whose function has _i, for START_TEST
 * lists none of them: CHECK_MAIN, its last line, runs all in their order, each for as long as
 * check_timeout.c says. TEST_CASE(name, setup, teardown) begins a part of the file with a name,
 * which ctest may run alone (CMakeLists.txt), and with functions, or NULL, around each test. */
typedef struct file_line {
    int line, times;
    const TTest *test; /* or NULL: a case begins */
    const char *name;
    SFun setup, teardown;
} file_line;

typedef struct file_tests {
    int count;
    file_line of[96];
} file_tests;

static inline file_tests *file_tests_listed(void)
{
    static file_tests all;
    return &all;
}

static inline void file_tests_add(file_line line)
{
    file_tests *all = file_tests_listed();
    if (all->count == (int)(sizeof all->of / sizeof *all->of)) abort();
    all->of[all->count++] = line;
}

static inline int file_line_order(const void *a, const void *b)
{
    return ((const file_line *)a)->line - ((const file_line *)b)->line;
}

static inline Suite *file_suite(file_line begun)
{
    file_tests *all = file_tests_listed();
    qsort(all->of, (size_t)all->count, sizeof *all->of, file_line_order);
    Suite *suite = suite_create(begun.name);
    TCase *tcase = NULL;
    for (int i = 0; i < all->count; i++) {
        const file_line *at = &all->of[i];
        if (!at->test) {
            begun = *at;
            tcase = NULL;
            continue;
        }
        if (!tcase) {
            tcase = tcase_create(begun.name);
            if (begun.setup || begun.teardown)
                tcase_add_checked_fixture(tcase, begun.setup, begun.teardown);
            suite_add_tcase(suite, tcase);
        }
        tcase_add_loop_test(tcase, at->test, 0, at->times);
    }
    return suite;
}

#define FILE_LINE_JOINED(line) file_line_##line
#define FILE_LINE_NAMED(line) FILE_LINE_JOINED(line)
#define FILE_LINE(...)                                                       \
    __attribute__((constructor)) static void FILE_LINE_NAMED(__LINE__)(void) \
    {                                                                        \
        file_tests_add((file_line){.line = __LINE__, __VA_ARGS__});          \
    }
#define TEST_CASE(case_name, before, after) \
    FILE_LINE(.name = case_name, .setup = before, .teardown = after)
#define LOOP_TEST(name_, times_)                     \
    static const TTest *name_;                       \
    FILE_LINE(.test = name_, .times = (int)(times_)) \
    START_TEST(name_)
#define TEST(name) LOOP_TEST(name, 1)

#define CHECK_MAIN(name) CHECK_MAIN_WITHIN(name, NULL, NULL)
/* Each test between these two. */
#define CHECK_MAIN_WITHIN(name, setup, teardown) CHECK_MAIN_UNLESS(false, name, setup, teardown)
/* The program is skipped if something is missing. */
#define CHECK_MAIN_UNLESS(missing, name, setup, teardown)                                          \
    int main(void)                                                                                 \
    {                                                                                              \
        return (missing) ? 77                                                                      \
                         : check_main(file_suite((file_line){0, 0, NULL, name, setup, teardown})); \
    }
/* All tests between these two. */
#define CHECK_MAIN_AROUND(missing, words, setup, teardown)                     \
    int main(void)                                                             \
    {                                                                          \
        if (missing) return 77;                                                \
        setup();                                                               \
        const int status = check_main(file_suite((file_line){.name = words})); \
        teardown();                                                            \
        return status;                                                         \
    }

/* ---- More assertions ------------------------------------------------------------------------- */

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

/* The call returns NULL, and ctx has an error that contains the words. Clears it. */
#define REFUSED(call, words)         \
    do {                             \
        ck_assert_ptr_null(call);    \
        ck_assert_error(ctx, words); \
    } while (0)

/* What a file holds, a text, and how long it is; closes it. */
static inline size_t read_back(FILE *file, char *text, size_t room)
{
    ck_assert_ptr_nonnull(file);
    rewind(file);
    const size_t length = fread(text, 1, room - 1, file);
    text[length] = '\0';
    fclose(file);
    return length;
}

/* shape() of ops whose outputs are like their first input. */
static inline gd_status shape_like_x(const gd_call *call, gd_shapes *out)
{
    for (int i = 0; i < call->outputs; i++) out->output[i] = gd_spec_like(call->input[0]);
    return GD_OK;
}

#endif
