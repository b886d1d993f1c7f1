/* each_report.h - a context and a report for each test of gradcheck. */
#ifndef GRADUS_TEST_EACH_REPORT_H
#define GRADUS_TEST_EACH_REPORT_H

#include <stdio.h>
#include <string.h>

#include "check_main.h"
#include "gradus/gradus.h"

static gd_context *ctx;
static gd_gradcheck_report report;

static inline void setup(void)
{
    ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 1});
    ck_assert_no_error(ctx);
}

static inline void teardown(void)
{
    gd_gradcheck_report_free(&report);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

static inline void ck_verdict(gd_verdict wanted)
{
    ck_assert_msg(report.verdict == wanted, "the verdict is %s, expected %s: %s",
                  gd_verdict_name(report.verdict), gd_verdict_name(wanted), report.message);
}

/* A case of an op. */
static inline void check_case(const gd_op *op, const gd_case *c,
                              const gd_gradcheck_options *options)
{
    gd_gradcheck_report_free(&report);
    ck_assert_int_eq(gd_gradcheck_case(ctx, op, c, options, &report), GD_OK);
}

static inline void check_function(gd_function f, void *user, gd_tensor *const *in, int count,
                                  const gd_gradcheck_options *options)
{
    gd_gradcheck_report_free(&report);
    gd_gradcheck_function(ctx, "f", f, user, in, count, options, &report);
}

typedef enum printed { SHORT, LONG, JSON } printed;

static inline const char *printed_report(printed how)
{
    static char text[8192];
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(how == JSON ? gd_gradcheck_print_json(&report, file)
                                 : gd_gradcheck_print(&report, file, how == LONG),
                     GD_OK);
    read_back(file, text, sizeof text);
    return text;
}

#endif
